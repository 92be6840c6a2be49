"""The statements of a body: one for each op and each layout change, with nested functions for
control flow."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from shardwright.codegen.backends.jax_spmd.changes import change_call, sums_lines
from shardwright.codegen.backends.jax_spmd.comments import Comments
from shardwright.codegen.backends.jax_spmd.control import control
from shardwright.codegen.backends.jax_spmd.direct import direct_statements
from shardwright.codegen.backends.jax_spmd.exchange import exchange_statements
from shardwright.codegen.backends.jax_spmd.names import LocalNames
from shardwright.codegen.backends.jax_spmd.opaque import Key, key_of
from shardwright.codegen.backends.jax_spmd.ops import expression
from shardwright.codegen.backends.jax_spmd.rings import ProgramRing
from shardwright.codegen.backends.jax_spmd.starts import counted
from shardwright.codegen.backends.jax_spmd.stopped import stopped, uses_of
from shardwright.codegen.backends.jax_spmd.user_functions import NOWHERE, Style
from shardwright.codegen.backends.jax_spmd.varying import stays
from shardwright.codegen.moves.block_moves import direct, permutation
from shardwright.codegen.ops.calls import OPAQUE
from shardwright.codegen.ops.form_texts.statement import FormText
from shardwright.codegen.ops.literals import (
    dtype_text,
    integers,
)
from shardwright.codegen.ops.table import imports_of, kind_of
from shardwright.codegen.ops.text import Expression
from shardwright.codegen.partition.local.communications import (
    Communication,
    WrittenRow,
    notation,
)
from shardwright.codegen.partition.local.known import plain_name
from shardwright.codegen.partition.local.steps import (
    CallFunction,
    Compute,
    LocalBody,
    MoveValue,
    Step,
    moves_of,
)
from shardwright.codegen.partition.local.steps import made as results_of
from shardwright.codegen.partition.local.together import runs_of
from shardwright.codegen.partition.local.user_calls import UserSteps
from shardwright.codegen.text.python_text import INDENT, WIDTH, called, fitted
from shardwright.ir.axes import axes_text
from shardwright.ir.errors import InternalError
from shardwright.ir.program import Line


@dataclass
class Writer(Comments):
    """Write bodies. Record what is known about local values, and the constants and imports that the
    statements need."""

    names: LocalNames
    communications: dict[int, Communication]  # by the local value that it produces
    checked: bool  # whether the program runs under `check_vma`
    arrays: tuple[str, ...] = ()  # expressions for the arrays that the function closes over
    calls: dict[Key, str] = field(default_factory=dict)  # names of calls stored as StableHLO
    tables: dict[str, Any] = field(default_factory=dict)  # tables of moves, by constant
    imports: dict[str, None] = field(default_factory=dict)
    made: dict[str, str] = field(default_factory=dict)  # names of fetched rows in this body, by key
    stopped: set[int] = field(default_factory=set)  # local values through which no gradient flows
    rows: dict[int, WrittenRow] = field(default_factory=dict)  # communications, by number
    is_of_leaf: bool = False  # whether it writes a function for leaves of several shapes
    is_typed: bool = True  # whether comments have the types of values
    is_lined: bool = True  # whether comments have the user's lines
    around: int = 0  # the number of calls of user functions that enclose the written steps
    locals: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    """The local values with each name."""

    moved: dict[int, int] = field(default_factory=dict)
    """The operand of each communication, by its result."""

    def __post_init__(self) -> None:
        self.moved.update((move.result, move.operand) for move, _ in moves_of(self.program))
        for local in () if self.locals else range(len(self.program.values)):
            self.locals[plain_name(self.program.of(local))].append(local)

    def body(self, body: LocalBody, indent: int) -> list[str]:
        """Return the lines of a body's steps, with a comment before the steps of each line of the
        user's code."""
        lines: list[str] = []
        calls = self.functions.users.placed(body, self.around)
        uses, outside = uses_of(body), (self.made, self.seen)
        for each in itertools.chain.from_iterable(calls.values()):
            uses.update(
                (v, [None if use in each.steps else use for use in uses[v]]) for v in each.operands
            )
        self.made, self.seen = {}, {}
        self.stopped |= stopped(self.program, body, uses)
        self.counted.update(counted(self.program, body, uses))
        at: Line | None = None
        own = itertools.chain.from_iterable(calls.values())
        done = {key for each in own for key in each.key}  # the steps that calls perform
        runs = [*runs_of(self.program, body.steps), ()]
        for place, run in enumerate(runs):
            for each in calls.get(place, ()):
                if self.is_lined and each.call.line not in (None, at):
                    lines.append(f"# {each.call.line}")
                    at = each.call.line
                lines += self._user_call(each, indent)
            if not run:
                break
            step = run[0]
            made, line = self.functions.leaves.update(self, step, done, indent), None
            if results_of(step) not in done:
                if isinstance(step, Compute) and self.implied(step, uses):
                    continue
                made = self._step(step, indent) if len(run) == 1 else self._sums(run, indent)
                line = _line(step)
            is_call = results_of(step) in done or isinstance(step, CallFunction)
            if made and is_call:  # calls have no single line of the user's code
                lines += [""] if at else []
                at = None
            if made and self.is_lined and line is not None and line != at:
                lines.append(f"# {line}")
                at = line
            lines += made
        self.made, self.seen = outside
        return [each for line in lines for each in self.explained(line, indent)]

    def of_leaf(self, names: LocalNames) -> Writer:
        """Return a writer for a function of leaves. It writes no types, which may differ."""
        inner = replace(self, names=names, is_of_leaf=True, is_typed=False, text={}, inline={})
        inner.roots, inner.turned, inner.flags, inner.around = {}, {}, {}, NOWHERE
        return inner

    def of_user(self, names: LocalNames, own: UserSteps, style: Style) -> Writer:
        """Return a writer for a function with the steps of a call. It knows nothing about the
        operands, so that all calls have the same text."""
        inner = replace(self, names=names, text={}, inline={}, counted={}, stopped=set())
        inner.filled = {v: n for v, n in self.filled.items() if v not in own.operands}
        inner.roots, inner.turned, inner.flags, inner.around = {}, {}, {}, style.around
        inner.is_typed, inner.is_lined = style.typed, style.lined
        return inner

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
        if kind_of(step.op.kind).joins:
            self.joined.update(step.results)
        if step.formed:
            return self._form(step, indent)
        made = self._made(step)
        names = self._named(step)
        target = ", ".join(names)
        if len(names) == 1 and kind_of(step.op.kind).is_list:
            target += ","
        shown = step.results[0]
        types = list(map(self._type, step.results))
        comments = (self.comment(move.result, names, types) for move in step.moves)
        lines = self._statement(target, made, shown, indent)
        return [*itertools.chain.from_iterable(comments), *lines]

    def _user_call(self, each: UserSteps, indent: int) -> list[str]:
        target, made = self.functions.users.call(self, each)
        shown = each.results[0] if target.isidentifier() else None
        return self._statement(target, made, shown, indent)

    def _ring(self, ring: ProgramRing, indent: int) -> list[str]:
        result = ring.result
        shapes = list(map(self.program.shape, (*ring.operands(), result)))
        name = self.text[result] = self.names.of(result)
        given = list(map(self.read, ring.operands()))
        lines = list(self.comment(ring.beside.move.result, [name], [self._type(result)]))
        for target, made in ring.statements(name, given, shapes, self.names.fresh):
            shown = result if target == name else None
            lines += self._statement(target, made, shown, indent)
        return lines

    def _named(self, step: Compute) -> list[str]:
        self._broadcast_named(step)
        for result in step.results:
            self.text[result] = self.names.of(result)
        return [self.text[result] for result in step.results]

    def _broadcast_named(self, step: Compute) -> None:
        """Let a broadcast have the user's name for its operand if no statement produces that."""
        if step.op.kind != "broadcast_in_dim" or step.operands[0] in self.filled:
            return
        (operand,), (result,) = (
            map(self.program.of, step.operands),
            map(self.program.of, step.results),
        )
        is_free = not (result.is_named or result.gradient_of or operand.gradient_of)
        if is_free and operand.is_named and "(" in self.read(step.operands[0]):
            self.names.called.setdefault(result.name, self.names.own(step.operands[0]))

    def _form(self, step: Compute, indent: int) -> list[str]:
        text, kind = self.op_text(step), kind_of(step.op.kind)
        if kind.text is None or kind.form_text is None:
            raise InternalError(f"no code makes the form of {kind.name}")
        names, fresh = tuple(self._named(step)), self.names.fresh
        form = FormText(text, kind.text, names, fresh, self.made, self.checked)
        moves = iter(step.moves)
        if kind.form_imports:
            self.imports[kind.form_imports] = None
        lines = []
        for each in kind.form_text(form):
            found = next(moves).result if each.moves else None
            if not each.target:
                continue
            shown = {form.results[n]: local for n, local in enumerate(step.results)}.get(
                each.target
            )
            types = [] if shown is None else [self._type(shown)]
            lines += [f"# {each.said}"] if each.said else []
            lines += [] if found is None else self.comment(found, [each.target], types)
            lines += self._statement(each.target, each.made, shown, indent)
        if next(moves, None) is not None:
            raise InternalError(f"no code makes a communication of {kind.name}")
        return lines

    def _made(self, step: Compute) -> Expression:
        if step.op.kind == "gather" and (first := self.first_rows(step)):
            return first
        if step.op.kind == "constant":
            return self.arrays[step.op.integers("array")[0]]
        if step.op.kind in OPAQUE:
            return self.calls[key_of(step, self.program)], list(self.op_text(step).given)
        if needed := imports_of(step.op):
            self.imports[needed] = None
        return expression(self.op_text(step))

    def _statement(
        self, target: str, made: Expression, shown: int | None, indent: int
    ) -> list[str]:
        """Return the lines of `target = made`. The type of the local value `shown` is a comment on
        the last line, or before the statement if that line would be too long."""
        comment = "" if shown is None or not self.is_typed else f"  # {self._type(shown)}"
        if isinstance(made, str):
            lines = [f"{target} = {made}"]
        else:
            lines = called(f"{target} = {made[0]}", made[1], "", indent)
        lines = [part for line in lines for part in fitted(line, indent)]
        if len(lines[-1]) + len(comment) + indent * len(INDENT) > WIDTH:
            return [*filter(None, [comment.strip()]), *lines]
        lines[-1] += comment
        return lines

    def _move(self, step: MoveValue, indent: int) -> list[str]:
        change = step.change
        if self._stays(step):
            return []
        source = self.program.values[step.operand].layout
        pairs = ""
        if change.op == "permute":
            found = permutation(change.axes, self.program.axes.pieces, source, change.after)
            pairs = self._table("PERMUTATION", list(map(str, found)))
        shape = self.program.shape(step.result)
        given = self.read(step.operand)
        # An operand is recomputed behind a barrier, because XLA would otherwise reuse the earlier
        # value. The barrier also follows a concatenation. Without it, XLA on CPU makes the
        # operands of the concatenation the blocks of the exchange, and then fails because their
        # layouts differ.
        if step.again or (step.operand in self.joined and change.collective == "all_to_all"):
            given = f"lax.optimization_barrier({given})"
        if source.operator in ("max", "min") and step.result in self.stopped:
            given = f"lax.stop_gradient({given})"  # jax has no derivative of `lax.pmax`
        name = self.names.changed(step.result, change.collective)
        lines = self.comment(step.result, [name], [self._type(step.result)])
        self.text[step.result] = name
        if 0 in shape:  # collectives do not accept empty arrays
            empty = "jnp.zeros", [integers(shape), dtype_text(self.program.of(step.result).dtype)]
            return self._statement(name, empty, step.result, indent)
        for to, made in self._statements(step, given, name, pairs):
            lines += self._statement(to, made, step.result if to == name else None, indent)
        return lines

    def _sums(self, run: Sequence[Step], indent: int) -> list[str]:
        """Return the lines of all-reduces that form one communication: a single `lax.psum` of
        values, each of which keeps its dtype."""
        moves = [each for each in run if isinstance(each, MoveValue) and not self._stays(each)]
        if not moves:
            return []
        given = [self.read(move.operand) for move in moves]
        names = [self.names.changed(move.result, move.change.collective) for move in moves]
        types = [self._type(move.result) for move in moves]
        lines = self.comment(_first_result(run[0]), names, types)
        self.text.update((move.result, name) for move, name in zip(moves, names, strict=True))
        axes = axes_text(moves[0].change.axes)
        if len(moves) == 1:
            made = ("lax.psum", [given[0], axes])
            return [*lines, *self._statement(names[0], made, moves[0].result, indent)]
        return [*lines, *sums_lines(names, given, types, axes, indent)]

    def _stays(self, move: MoveValue) -> bool:
        """Return whether a layout change keeps a value that is filled with one number unchanged. If
        so, record the number for the result."""
        one_number = self.filled.get(move.operand)
        if one_number is None or not stays(move.change.op, one_number.value):
            return False
        self.filled[move.result] = one_number
        return True

    def _statements(
        self, step: MoveValue, given: str, name: str, pairs: str
    ) -> Iterator[tuple[str, Expression]]:
        """Yield (target, expression) for each statement that changes the layout of `given`. The
        last target is `name`."""
        change, axes = step.change, self.program.axes
        source = self.program.values[step.operand].layout
        shape = self.program.shape(step.result)
        ends, fresh = (given, name), self.names.fresh
        if change.op == "all_to_all" and not change.dims:
            before = self.program.shape(step.operand)
            yield from exchange_statements(change, source, before, axes.sizes, ends, fresh)
        elif change.op == "exchange":
            whole = self.program.of(step.operand).shape
            found = direct(source, change.after, whole, axes.pieces)
            yield from direct_statements(found, ends, fresh, self._table)
        else:
            yield name, change_call(change, source, given, shape, pairs, self.checked)

    def _table(self, word: str, tree: Any) -> str:
        """Return the name of the constant for this tree of texts. A new constant is named `word`
        with a number."""
        own = [name for name in self.tables if name.startswith(f"{word}_")]
        for name in own:
            if self.tables[name] == tree:
                return name
        name = f"{word}_{len(own) + 1}"
        self.tables[name] = tree
        return name

    def _type(self, local: int) -> str:
        value = self.program.of(local)
        return notation(value.dtype, value.shape, self.program.values[local].layout)


def _first_result(step: Step) -> int:
    made = (step.result,) if isinstance(step, MoveValue) else step.results
    return made[0] if made else -1


def _line(step: Step) -> Line | None:
    """Return the line of the user's code for a step, or None for a call of a function, whose steps
    have their own lines."""
    match step:
        case Compute(op):
            return op.line
        case MoveValue():
            return step.line
    return None
