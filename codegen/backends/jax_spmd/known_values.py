"""The expressions of local values, including values that need no statement."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field

from shardwright.codegen.backends.jax_spmd.functions import Functions
from shardwright.codegen.backends.jax_spmd.known import (
    INLINED,
    LONGEST_VIEW,
    REPEATED,
    added_number,
    is_reshape,
    known_number,
    same_operand,
)
from shardwright.codegen.backends.jax_spmd.ops import expression
from shardwright.codegen.backends.jax_spmd.rings import ProgramRings
from shardwright.codegen.backends.jax_spmd.stopped import Uses
from shardwright.codegen.ops.literals import (
    dtype_text,
    integers,
    is_weak,
    number,
    scalar,
)
from shardwright.codegen.ops.shapes import expanded, expanded_shape
from shardwright.codegen.ops.table import kind_of
from shardwright.codegen.ops.text import OpText
from shardwright.codegen.partition.local.steps import (
    Compute,
    LocalProgram,
    Step,
)


@dataclass(frozen=True)
class Filled:
    """A value filled with one number, which is written at each use."""

    value: object


@dataclass
class KnownValues:
    """The expressions of a program's local values: names, numbers, or expressions inlined at their
    uses.

    `inline`: the operands of broadcasts that their uses imply; `joined`: values that join several
    operands; `seen`: results of this body, by op and operands; `roots`: for the result of a chain
    of reshapes, the operand of the first one.
    """

    program: LocalProgram
    functions: Functions
    text: dict[int, str] = field(default_factory=dict, kw_only=True)  # expressions, by local value
    filled: dict[int, Filled] = field(default_factory=dict, kw_only=True)
    inline: dict[int, str] = field(default_factory=dict, kw_only=True)
    joined: set[int] = field(default_factory=set, kw_only=True)
    seen: dict[Hashable, int] = field(default_factory=dict, kw_only=True)
    roots: dict[int, int] = field(default_factory=dict, kw_only=True)
    turned: dict[int, tuple[int, tuple[int, ...]]] = field(default_factory=dict, kw_only=True)
    """For the result of a chain of transpositions, the operand of the first one, and the resulting
    order of its dimensions."""
    flags: dict[int, int] = field(default_factory=dict, kw_only=True)
    """For a boolean value that is converted to numbers, the boolean value."""
    counted: dict[int, int | None] = field(default_factory=dict, kw_only=True)
    """Start indices of updates, as in `starts.py`."""
    rings: ProgramRings = field(default_factory=ProgramRings, kw_only=True)

    def read(self, local: int) -> str:
        """Return the expression for a local value as an array."""
        if local in self.text:
            return self.text[local]
        if local not in self.filled:
            return "".join(self.functions.paths[local])
        value, shape = self.filled[local].value, self.program.shape(local)
        dtype = self.program.of(local).dtype
        if not shape:
            return scalar(value, dtype)
        if number(value, dtype) in ("0", "0.0"):
            return f"jnp.zeros({integers(shape)}, {dtype_text(dtype)})"
        return f"jnp.full({integers(shape)}, {number(value, dtype)}, {dtype_text(dtype)})"

    def alias(self, local: int, like: int) -> None:
        if like in self.filled:
            self.filled[local] = self.filled[like]
        else:
            self.text[local] = self.read(like)

    def op_text(self, step: Compute) -> OpText:
        """Return an op with the expressions, types and layouts of its operands and results."""
        everything = (*step.operands, *step.results)
        return OpText(
            step.op,
            tuple(self._given(step)),
            tuple(map(self.program.shape, everything)),
            tuple(self.program.of(local).dtype for local in everything),
            tuple(self.program.values[local].layout for local in everything),
            self.program.axes,
            tuple(
                at for at, local in enumerate(step.operands) if self.counted.get(local) is not None
            ),
        )

    def _given(self, step: Compute) -> Iterator[str]:
        """Yield the expressions of operands. A number stays a Python number if another operand is
        an array."""
        weak, numbers = self._is_weak(step), all(o in self.filled for o in self._branches(step))
        by_predicate = weak and numbers and self._is_shaped_by_predicate(step)
        weak = weak and not numbers
        for place, local in enumerate(step.operands):
            own = self.filled.get(local)
            dtype = self.program.of(local).dtype
            if weak and own is not None and is_weak(own.value, dtype):
                if step.op.kind == "select_n" and place == 0:
                    yield self.read(local)
                elif step.op.kind == "div" and dtype[0] in "iu":  # lax widens Python numbers
                    yield scalar(own.value, dtype)
                else:
                    yield number(own.value, dtype)
            elif by_predicate and own is not None and place > 0:
                yield scalar(own.value, dtype)
            elif local in self.inline:
                yield self.inline[local]
            else:
                yield self.read(local)

    def _is_weak(self, step: Compute) -> bool:
        """Return whether an op accepts operands that are Python numbers or that it must broadcast.
        In a select, only the values that a boolean predicate chooses between may be such
        operands."""
        chooses = step.op.kind == "select_n"
        return kind_of(step.op.kind).numbers and not (
            chooses and self.program.of(step.operands[0]).dtype != "bool"
        )

    def _is_shaped_by_predicate(self, step: Compute) -> bool:
        shapes = {self.program.shape(v) for v in (step.operands[0], step.results[0])}
        is_array = step.operands[0] not in self.filled
        return step.op.kind == "select_n" and is_array and len(shapes) == 1

    def _branches(self, step: Compute) -> Sequence[int]:
        return step.operands[1:] if step.op.kind == "select_n" else step.operands

    def implied(self, step: Compute, uses: Uses) -> bool:
        """Return whether an op needs no statement, because it is a constant, a known value, an
        inlined expression, or a broadcast that its uses imply. If so, record its result."""
        kind, (result, *_) = step.op.kind, step.results
        if kind == "constant" and "value" in dict(step.op.params):
            self.filled[result] = Filled(step.op.param("value"))
            return True
        if result in self.counted:
            index = self.counted[result]
            if index is not None:
                self.alias(result, index)
            return True
        is_ring = result in self.rings.by_step
        if step.bodies or step.formed or len(step.results) > 1 or is_ring:
            return False
        if self._is_known(step) or self._is_view(step, uses):
            return True
        if kind != "broadcast_in_dim":
            return False
        if all(self._broadcasts(use, result) for use in uses[result]) and uses[result]:
            self.inline[result] = self._expanded(step)
            return True
        return False

    def first_rows(self, step: Compute) -> str:
        """Return the index expression of a gather at index 0 of each dimension, or "" for any other
        op."""
        text, own = self.op_text(step), self.filled.get(step.operands[1])
        if own is None or own.value != 0 or len(text.shapes[1]) != 1:
            return ""
        gone, sizes = text.op.integers("collapsed_slice_dims"), text.op.integers("slice_sizes")
        whole = self.program.of(step.operands[0]).shape
        index = ["0" if dim in gone else ":" for dim in range(len(whole))]
        if any(sizes[dim] != whole[dim] for dim in range(len(whole)) if dim not in gone):
            return ""
        if any(text.layouts[0].dims[dim] for dim in gone):
            return ""
        return f"{text.given[0]}[{', '.join(index)}]"

    def _expanded(self, step: Compute) -> str:
        """Return the operand of a broadcast, extended to the rank of the result. If it was
        reshaped from a value that already has the extended shape, return that value."""
        text, (operand,) = self.op_text(step), step.operands
        first = self.roots.get(operand, operand)
        is_first = first in self.text and self.program.shape(first) == expanded_shape(text)
        return self.read(first) if is_first else expanded(text)

    def _is_known(self, step: Compute) -> bool:
        text, (result,) = self.op_text(step), step.results
        values = [self.filled[o].value if o in self.filled else None for o in step.operands]
        found = known_number(text, values) if values else None
        found = added_number(text, values) if step.op.kind == "scatter-add" else found
        if found is not None:
            self.filled[result] = Filled(found)
            return True
        place = same_operand(text, values)
        like = self._reshaped(text, step) if place is None else step.operands[place]
        like = self._turned_back(text, step) if like is None else like
        like = self._flag(text, step, values) if like is None else like
        like = self._repeated(text, result) if like is None else like
        if like is None or like in self.inline:
            return False
        self.alias(result, like)
        if like in self.joined:
            self.joined.add(result)
        return True

    def _reshaped(self, text: OpText, step: Compute) -> int | None:
        """Return the value whose shape a chain of reshapes restores, of which this is the last, or
        None."""
        if not is_reshape(text):
            return None
        (operand, *_), (result,) = step.operands, step.results
        first = self.roots[result] = self.roots.get(operand, operand)
        return first if self._is_alike(first, result) else None

    def _turned_back(self, text: OpText, step: Compute) -> int | None:
        """Return the value whose order of dimensions a chain of transpositions restores, of which
        this is the last, or None."""
        if text.op.kind != "transpose":
            return None
        (operand, *_), (result,) = step.operands, step.results
        plain = tuple(range(len(text.shape)))
        first, order = self.turned.get(operand, (operand, plain))
        order = tuple(order[dim] for dim in text.op.integers("permutation"))
        self.turned[result] = first, order
        return first if order == plain and self._is_alike(first, result) else None

    def _flag(self, text: OpText, step: Compute, values: Sequence[object]) -> int | None:
        """Return the boolean value that this comparison with zero recovers from numbers, or
        None."""
        if text.op.kind not in ("convert_element_type", "ne"):
            return None
        (operand, *_), (result,) = step.operands, step.results
        if text.op.kind == "convert_element_type" and text.dtypes[0] == "bool":
            self.flags[result] = operand
        first = self.flags.get(operand) if text.op.kind == "ne" and values[1] == 0 else None
        return first if first is not None and self._is_alike(first, result) else None

    def _repeated(self, text: OpText, result: int) -> int | None:
        if text.op.kind not in REPEATED:
            return None
        given = sorted(text.given) if kind_of(text.op.kind).commutes else text.given
        key = text.op.kind, text.op.params, tuple(given), text.dtypes
        earlier = self.seen.setdefault(key, result)
        return earlier if earlier != result and self._is_alike(earlier, result) else None

    def _is_alike(self, one: int, other: int) -> bool:
        types = {(self.program.of(v).dtype, self.program.of(v).shape) for v in (one, other)}
        return len(types) == 1 and (
            self.program.values[one].layout == self.program.values[other].layout
        )

    def _is_view(self, step: Compute, uses: Uses) -> bool:
        (result,) = step.results
        users = uses[result]
        is_view = step.op.kind in INLINED or is_reshape(self.op_text(step))
        if not is_view or len(users) != 1 or not isinstance(users[0], Compute):
            return False
        if users[0].bodies or users[0].formed or step.operands[0] in self.joined:
            return False
        made = expression(self.op_text(step))
        if not isinstance(made, str) or len(made) > LONGEST_VIEW:
            return False
        self.text[result] = made
        return True

    def _broadcasts(self, use: Step | None, local: int) -> bool:
        """Return whether a use itself broadcasts a value: it is elementwise, and another operand
        has the full shape."""
        if not isinstance(use, Compute) or not self._is_weak(use):
            return False
        return any(
            other != local
            and (other in self.text or other in self.functions.paths)
            and self.program.shape(other) == self.program.shape(local)
            for other in use.operands
        )
