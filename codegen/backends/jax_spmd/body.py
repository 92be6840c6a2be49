"""The statements of a body: one per op, one per layout change, control flow as nested functions."""

from __future__ import annotations

import itertools
import re
import textwrap
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field

from shardwright.codegen.backends.jax_spmd.changes import change_call
from shardwright.codegen.backends.jax_spmd.control import control
from shardwright.codegen.backends.jax_spmd.exchange import exchange_statements
from shardwright.codegen.backends.jax_spmd.expressions import (
    IMPORTED,
    WEAK,
    Expression,
    OpText,
    expanded,
)
from shardwright.codegen.backends.jax_spmd.forms.statement import FormText
from shardwright.codegen.backends.jax_spmd.forms.table import FORM_TEXTS, IMPORTS
from shardwright.codegen.backends.jax_spmd.functions import Functions
from shardwright.codegen.backends.jax_spmd.known import (
    COMMUTATIVE,
    LONGEST_VIEW,
    REPEATED,
    VIEWS,
    is_reshape,
    known_number,
    same_operand,
)
from shardwright.codegen.backends.jax_spmd.literals import (
    dtype_text,
    integers,
    is_weak,
    number,
    scalar,
)
from shardwright.codegen.backends.jax_spmd.names import LocalNames
from shardwright.codegen.backends.jax_spmd.ops import expression
from shardwright.codegen.backends.jax_spmd.rings import ProgramRing, ProgramRings
from shardwright.codegen.backends.jax_spmd.stopped import Uses, stopped, uses_of
from shardwright.codegen.backends.jax_spmd.varying import stays
from shardwright.codegen.emit.python_text import INDENT, WIDTH, called, fitted
from shardwright.codegen.partition.local.communications import Communication, notation
from shardwright.codegen.partition.local.permutation import permutation
from shardwright.codegen.partition.local.steps import (
    CallFunction,
    Compute,
    LocalBody,
    LocalProgram,
    MoveValue,
    Step,
)
from shardwright.ir.errors import InternalError
from shardwright.ir.program import Line

JOINING = ("concatenate", "pad", "dynamic_update_slice")
"""Ops that join operands, of whose results XLA may slice an operand out."""

EXCHANGED = ("all_to_all", "exchange")
"""Changes that send each block of a value to another device."""


@dataclass(frozen=True)
class Filled:
    """A value equal to one number everywhere; the number is written at each use."""

    value: object


@dataclass
class Writer:
    """Writes bodies, accumulating knowledge about local values and constants."""

    program: LocalProgram
    names: LocalNames
    communications: dict[int, Communication]  # by produced local value
    functions: Functions
    checked: bool  # whether all stands under `check_vma`
    arrays: tuple[str, ...] = ()  # values of the function's closure
    text: dict[int, str] = field(default_factory=dict)  # names, by local value
    filled: dict[int, Filled] = field(default_factory=dict)
    inline: dict[int, str] = field(default_factory=dict)  # broadcasts implied by their uses
    permutations: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    imports: dict[str, None] = field(default_factory=dict)
    made: dict[str, str] = field(default_factory=dict)  # rows of other shards fetched in this body
    joined: set[int] = field(default_factory=set)
    stopped: set[int] = field(default_factory=set)  # through which no gradient goes
    seen: dict[Hashable, int] = field(default_factory=dict)  # results of ops in this body
    roots: dict[int, int] = field(default_factory=dict)  # values that others are reshapes of
    rings: ProgramRings = field(default_factory=ProgramRings)

    def __post_init__(self) -> None:
        self.locals: dict[str, list[int]] = defaultdict(list)  # local values, by their value's name
        for local in range(len(self.program.values)):
            self.locals[self.program.of(local).name].append(local)

    def read(self, local: int) -> str:
        """Return a local value as an expression of an array."""
        if local in self.text:
            return self.text[local]
        if local not in self.filled:
            return "".join(self.functions.paths[local])
        value, shape = self.filled[local].value, self.program.shape(local)
        dtype = self.program.of(local).dtype
        if not shape:
            return scalar(value, dtype)
        return f"jnp.full({integers(shape)}, {number(value, dtype)}, {dtype_text(dtype)})"

    def alias(self, local: int, like: int) -> None:
        """Make a local value a synonym of another."""
        if like in self.filled:
            self.filled[local] = self.filled[like]
        else:
            self.text[local] = self.read(like)

    def body(self, body: LocalBody, indent: int) -> list[str]:
        """Return the lines of the steps of a body."""
        lines: list[str] = []
        uses, outside = uses_of(body), (self.made, self.seen)
        self.made, self.seen = {}, {}
        self.stopped |= stopped(self.program, body, uses)
        at: Line | None = None
        for step in body.steps:
            if isinstance(step, Compute) and self._implied(step, uses):
                continue
            line = _line(step)
            made = self._step(step, indent)
            if made and line is not None and line != at:
                lines.append(f"# {line}")
                at = line
            lines += made
        self.made, self.seen = outside
        return lines

    def _step(self, step: Step, indent: int) -> list[str]:
        ring = self.rings.by_step.get(_first_result(step))
        if ring is not None:
            return self._ring(ring, indent) if _first_result(step) == ring.result else []
        if isinstance(step, MoveValue):
            return self._move(step, indent)
        if isinstance(step, CallFunction):
            return self.functions.call(self, step, indent)
        if step.bodies:
            return control(self, step, indent)
        if step.op.kind in JOINING:
            self.joined.update(step.results)
        if step.formed:
            return self._form(step, indent)
        made = self._made(step)
        names = self._named(step)
        target = ", ".join(names)
        if len(names) == 1 and step.op.kind == "split":  # which returns a list
            target += ","
        comments = (self._comment(move.result, indent) for move in step.moves)
        lines = self._statement(target, made, step.results[0], indent)
        return [*itertools.chain.from_iterable(comments), *lines]

    def _ring(self, ring: ProgramRing, indent: int) -> list[str]:
        """Return the lines of a kernel that multiplies while parts travel."""
        result = ring.result
        shapes = list(map(self.program.shape, (*ring.operands(), result)))
        name = self.text[result] = self.names.of(result)
        given = list(map(self.read, ring.operands()))
        lines = list(self._comment(ring.beside.move.result, indent))
        for target, made in ring.statements(name, given, shapes, self.names.fresh):
            shown = result if target == name else None
            lines += self._statement(target, made, shown, indent)
        return lines

    def _named(self, step: Compute) -> list[str]:
        """Name the results of an op, and return the names."""
        for result in step.results:
            self.text[result] = self.names.of(result)
        return [self.text[result] for result in step.results]

    def _form(self, step: Compute, indent: int) -> list[str]:
        """Return the statements of a local form, with a comment at each communication."""
        text = self.op_text(step)
        form = FormText(text, tuple(self._named(step)), self.names.fresh, self.made, self.checked)
        moves = iter(step.moves)
        kind = step.op.kind
        if kind in IMPORTS:
            self.imports[IMPORTS[kind]] = None
        lines = []
        for each in FORM_TEXTS[kind](form):
            found = next(moves).result if each.moves else None
            if not each.target:
                continue
            lines += [] if found is None else self._comment(found, indent)
            shown = {form.results[n]: local for n, local in enumerate(step.results)}.get(
                each.target
            )
            lines += self._statement(each.target, each.made, shown, indent)
        if next(moves, None) is not None:
            raise InternalError(f"a communication of {kind} that nothing makes")
        return lines

    def _made(self, step: Compute) -> Expression:
        if step.op.kind == "constant":
            return self.arrays[step.op.integers("array")[0]]
        if step.op.kind == "pure_callback":
            module, _, name = str(step.op.param("callback")).partition(":")
            self.imports[f"from {module} import {name}"] = None
        if step.op.kind in IMPORTED:
            self.imports[IMPORTED[step.op.kind]] = None
        return expression(self.op_text(step))

    def _statement(
        self, target: str, made: Expression, shown: int | None, indent: int
    ) -> list[str]:
        """Return `target = made  # f32[16@d]`; the comment describes a local value and stands
        above if it is too long."""
        comment = ""
        if shown is not None:
            own, value = self.program.values[shown], self.program.of(shown)
            comment = f"  # {notation(value.dtype, value.shape, own.layout)}"
        if isinstance(made, str):
            lines = [f"{target} = {made}"]
        else:
            lines = called(f"{target} = {made[0]}", made[1], "", indent)
        lines = [part for line in lines for part in fitted(line, indent)]
        if len(lines[-1]) + len(comment) + indent * len(INDENT) <= WIDTH:
            lines[-1] += comment
            return lines
        return [comment.strip(), *lines]

    def op_text(self, step: Compute) -> OpText:
        """Return the table's view of an op."""
        everything = (*step.operands, *step.results)
        return OpText(
            step.op,
            tuple(self._given(step)),
            tuple(map(self.program.shape, everything)),
            tuple(self.program.of(local).dtype for local in everything),
            tuple(self.program.values[local].layout for local in everything),
            self.program.axes,
        )

    def _given(self, step: Compute) -> Iterator[str]:
        """Yield the operands; numbers stay numbers if another operand is an array."""
        weak = self._is_weak(step) and not all(o in self.filled for o in self._branches(step))
        for place, local in enumerate(step.operands):
            own = self.filled.get(local)
            dtype = self.program.of(local).dtype
            if weak and own is not None and is_weak(own.value, dtype):
                if step.op.kind == "select_n" and place == 0:
                    yield self.read(local)
                elif step.op.kind == "div" and dtype[0] in "iu":  # lax treats it as a wide one
                    yield scalar(own.value, dtype)
                else:
                    yield number(own.value, dtype)
            elif local in self.inline:
                yield self.inline[local]
            else:
                yield self.read(local)

    def _is_weak(self, step: Compute) -> bool:
        """Return whether operands of an op may be numbers, or broadcast by it: for a select, only
        those chosen by its predicate."""
        chooses = step.op.kind == "select_n"
        return step.op.kind in WEAK and not (
            chooses and self.program.of(step.operands[0]).dtype != "bool"
        )

    def _branches(self, step: Compute) -> Sequence[int]:
        return step.operands[1:] if step.op.kind == "select_n" else step.operands

    def _implied(self, step: Compute, uses: Uses) -> bool:
        """Record a constant, or a broadcast implied by its uses, and return whether it is one."""
        kind, (result, *_) = step.op.kind, step.results
        if kind == "constant" and "value" in dict(step.op.params):
            self.filled[result] = Filled(step.op.param("value"))
            return True
        is_ring = result in self.rings.by_step
        if step.bodies or step.formed or len(step.results) > 1 or is_ring:
            return False
        if self._is_known(step) or self._is_view(step, uses):
            return True
        if kind != "broadcast_in_dim":
            return False
        if all(self._broadcasts(use, result) for use in uses[result]) and uses[result]:
            self.inline[result] = expanded(self.op_text(step))
            return True
        return False

    def _is_known(self, step: Compute) -> bool:
        """Record a result that is one number everywhere, or equals an operand, and return whether
        it is."""
        text, (result,) = self.op_text(step), step.results
        values = [self.filled[o].value if o in self.filled else None for o in step.operands]
        found = known_number(text, values) if values else None
        if found is not None:
            self.filled[result] = Filled(found)
            return True
        place = same_operand(text, values)
        like = self._reshaped(text, step) if place is None else step.operands[place]
        like = self._repeated(text, result) if like is None else like
        if like is None or like in self.inline:
            return False
        self.alias(result, like)
        if like in self.joined:
            self.joined.add(result)
        return True

    def _reshaped(self, text: OpText, step: Compute) -> int | None:
        """Return the value that reshapes, of which this is the last, give its first shape again."""
        if not is_reshape(text):
            return None
        (operand, *_), (result,) = step.operands, step.results
        first = self.roots[result] = self.roots.get(operand, operand)
        return first if self._is_alike(first, result) else None

    def _repeated(self, text: OpText, result: int) -> int | None:
        """Return the value that the same op had for the same operands earlier in this body."""
        if text.op.kind not in REPEATED:
            return None
        given = sorted(text.given) if text.op.kind in COMMUTATIVE else text.given
        key = text.op.kind, text.op.params, tuple(given), text.dtypes
        earlier = self.seen.setdefault(key, result)
        return earlier if earlier != result and self._is_alike(earlier, result) else None

    def _is_alike(self, one: int, other: int) -> bool:
        """Return whether two local values have one type."""
        types = {(self.program.of(v).dtype, self.program.of(v).shape) for v in (one, other)}
        return len(types) == 1 and (
            self.program.values[one].layout == self.program.values[other].layout
        )

    def _is_view(self, step: Compute, uses: Uses) -> bool:
        """Record an expression that may replace the uses of its result, and return whether it is
        one."""
        (result,) = step.results
        users = uses[result]
        if step.op.kind not in VIEWS or len(users) != 1 or not isinstance(users[0], Compute):
            return False
        if users[0].bodies or users[0].formed or step.operands[0] in self.joined:
            return False
        made = expression(self.op_text(step))
        if not isinstance(made, str) or len(made) > LONGEST_VIEW:
            return False
        self.text[result] = made
        return True

    def _broadcasts(self, use: Step | None, local: int) -> bool:
        """Return whether a use is elementwise, with another operand of the full shape."""
        if not isinstance(use, Compute) or not self._is_weak(use):
            return False
        return any(
            other != local
            and (other in self.text or other in self.functions.paths)
            and self.program.shape(other) == self.program.shape(local)
            for other in use.operands
        )

    def _move(self, step: MoveValue, indent: int) -> list[str]:
        change = step.change
        one_number = self.filled.get(step.operand)
        if one_number is not None and stays(change.kind, one_number.value):
            self.filled[step.result] = one_number
            return []
        source = self.program.values[step.operand].layout
        pairs = ""
        if change.kind == "permute":
            pairs = f"PERMUTATION_{len(self.permutations) + 1}"
            sizes = self.program.axes.sizes
            self.permutations[pairs] = permutation(change.axes, sizes, source, change.layout)
        shape = self.program.shape(step.result)
        given = self.read(step.operand)
        # Recomputed, because XLA would otherwise keep the earlier value. Concatenated, because XLA
        # on CPU would otherwise take the concatenation for the blocks that it sends, in different
        # layouts, and reject them.
        if step.again or (step.operand in self.joined and change.kind in EXCHANGED):
            given = f"lax.optimization_barrier({given})"
        if source.operator in ("max", "min") and step.result in self.stopped:
            given = f"lax.stop_gradient({given})"  # jax has no derivative of `lax.pmax`
        lines = self._comment(step.result, indent)
        name = self.text[step.result] = self.names.changed(step.result, change.kind)
        if 0 in shape:  # nothing to send, which collectives do not accept
            empty = "jnp.zeros", [integers(shape), dtype_text(self.program.of(step.result).dtype)]
            return self._statement(name, empty, step.result, indent)
        if change.kind == "exchange":
            shapes, ends = (self.program.shape(step.operand), shape), (given, name)
            sizes = self.program.axes.sizes
            for to, made in exchange_statements(
                change, source, shapes, sizes, ends, self.names.fresh
            ):
                lines += self._statement(to, made, step.result if to == name else None, indent)
            return lines
        made = change_call(change, source, given, shape, pairs, self.checked)
        return [*lines, *self._statement(name, made, step.result, indent)]

    def _comment(self, local: int, indent: int) -> list[str]:
        """Return the comment of the communication that produces a local value, if any."""
        found = self.communications.get(local)
        if found is None:
            return []
        room = WIDTH - indent * len(INDENT)
        return textwrap.wrap(
            re.sub(r"[\w.]+", self._called, str(found)),
            room,
            initial_indent="# ",
            subsequent_indent="#   ",
            break_long_words=False,
            break_on_hyphens=False,
        )

    def _called(self, word: re.Match[str]) -> str:
        """Return what this function calls a value of the program; any other word as it is, and
        the name of a value that is not named here."""
        texts = (self.text.get(v, "(") for v in reversed(self.locals.get(word[0], [])))
        return next((text for text in texts if "(" not in text), word[0])


def _first_result(step: Step) -> int:
    """Return the first local value that a step produces, -1 if there is none."""
    made = (step.result,) if isinstance(step, MoveValue) else step.results
    return made[0] if made else -1


def _line(step: Step) -> Line | None:
    """Return the user's line of a step; a function has its own."""
    match step:
        case Compute(op):
            return op.line
        case MoveValue():
            return step.line
    return None
