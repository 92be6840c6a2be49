"""Lower a program whose values have shardings to the steps of one device.

Every op runs on shards with its chosen split. Each operand is moved to the required layout from the
nearest existing layout. Intermediate layouts are kept, so a value is gathered only once.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence

from shardwright.codegen.moves.move import Move
from shardwright.codegen.moves.paths import way
from shardwright.codegen.ops.collectives import COLLECTIVES
from shardwright.codegen.ops.forms.form import FormMove
from shardwright.codegen.ops.layout import LocalLayout
from shardwright.codegen.partition.local.assign import FactorAxes, splits_of
from shardwright.codegen.partition.local.axes import CutAxes
from shardwright.codegen.partition.local.control import control_ends, is_control
from shardwright.codegen.partition.local.known import known_as
from shardwright.codegen.partition.local.ports import Port, ports_of
from shardwright.codegen.partition.local.reasons import (
    OpReasons,
    Reason,
    after_loop,
    plainly,
    port_reason,
    settled,
)
from shardwright.codegen.partition.local.steps import (
    Compute,
    LocalBody,
    LocalProgram,
    LocalValue,
    MoveValue,
    Step,
    tensor_of,
)
from shardwright.ir.program import Body, Line, Op, Program

Choice = Mapping[int, FactorAxes]  # the split of each op, by the op's first result


def lower(
    program: Program,
    axes: CutAxes,
    choice: Choice,
    layouts: Sequence[LocalLayout | None],
    regather: bool = False,
) -> LocalProgram:
    """Return the steps of one device. `layouts`: the layout that each value must have after its op,
    None if its uses decide; `regather`: whether moved arguments are dropped after a use and moved
    again for the next."""
    lowering = _Lowering(program, axes, choice, layouts)
    lowering.forgotten = frozenset(program.body.arguments if regather else ())
    arguments = [
        axes.layout(program.values[v].sharding, program.values[v].shape)
        for v in program.body.arguments
    ]
    results = [
        axes.layout(s, program.values[v].shape)
        for s, v in zip(program.results, program.body.results, strict=True)
    ]
    reasons = [f"{n} must be {s}" for n, s in zip(program.result_names, results, strict=True)]
    body = lowering.body(program.body, arguments, results, reasons)
    return LocalProgram(program, axes, tuple(lowering.values), body)


class _Lowering:
    """Lower the bodies of a program, extending `values`."""

    def __init__(
        self,
        program: Program,
        axes: CutAxes,
        choice: Choice,
        layouts: Sequence[LocalLayout | None],
    ) -> None:
        self.program, self.axes, self.choice, self.layouts = program, axes, choice, layouts
        self.forgotten: frozenset[int] = frozenset()  # arguments that are moved again for every use
        # for a value that a loop produces as a partial sum, the number of iterations
        self.loops: dict[int, int] = {}
        self.summed: dict[int, str] = {}  # for a partial sum, the reduction that produced it
        self.values: list[LocalValue] = []
        self.known = known_as(program)

    def body(
        self,
        body: Body,
        arguments: Sequence[LocalLayout],
        results: Sequence[LocalLayout],
        reasons: Sequence[str],
    ) -> LocalBody:
        """Return the steps of a body whose arguments and results have these layouts. `reasons`: the
        reason for moving each result."""
        block = _Steps(self)
        taken = tuple(
            block.define(value, layout)
            for value, layout in zip(body.arguments, arguments, strict=True)
        )
        for op in body.ops:
            block.op(op)
        given = tuple(
            block.use(
                value,
                layout,
                settled(reason, self.summed.get(value)),
                self.program.values[value].line,
            )
            for value, layout, reason in zip(body.results, results, reasons, strict=True)
        )
        return LocalBody(taken, tuple(block.steps), given)

    def of_port(self, port: Port) -> tuple[LocalLayout, ...]:
        splits = splits_of(port.op, self.program.values, self.axes)
        split = self.choice[port.op.results[0]] if port.op.results else splits.whole
        layouts = splits.layouts(split)
        return (*layouts.operands, *layouts.results)

    def new(self, value: int, layout: LocalLayout) -> int:
        self.values.append(LocalValue(value, layout))
        return len(self.values) - 1


class _Steps:
    """The steps of one body. `versions`: the local values of each value, by layout."""

    def __init__(self, lowering: _Lowering) -> None:
        self.lowering = lowering
        self.steps: list[Step] = []
        self.versions: dict[int, dict[LocalLayout, int]] = {}
        self.lost: set[tuple[int, LocalLayout]] = set()  # (value, dropped layout) pairs
        self.brought: set[Hashable] = set()  # keys of the data that ops have fetched
        self.moved: int | None = None  # of the arguments in `forgotten`, the one moved last

    def define(self, value: int, layout: LocalLayout) -> int:
        """Return a new local value, and forget all earlier layouts of `value`."""
        number = self.lowering.new(value, layout)
        self.versions[value] = {layout: number}
        return number

    def use(self, value: int, layout: LocalLayout, reason: Reason, line: Line | None) -> int:
        """Append the moves that bring a value to a layout, and return the resulting local value."""
        known = self.versions[value]
        if layout in known:
            return known[layout]
        if value in self.lowering.forgotten:
            self._forget(value)
        own = self.lowering.program.values[value]
        tensor = tensor_of(own, self.lowering.axes)
        _, place, changes = way(tuple(known), layout, tensor)
        number = tuple(known.values())[place]
        for change in changes:
            operand, number = number, self.lowering.new(value, change.after)
            again = (value, change.after) in self.lost
            said = reason(change) + after_loop(change, self.lowering.loops.get(value))
            self.steps.append(MoveValue(change, operand, number, said, line, again))
            known.setdefault(change.after, number)
        return number

    def _forget(self, value: int) -> None:
        """Drop all layouts but the first of the argument that was moved last, unless it is
        `value`."""
        if self.moved not in (None, value):
            known = self.versions[self.moved]
            home = next(iter(known))
            self.lost.update((self.moved, layout) for layout in known)
            self.versions[self.moved] = {home: known[home]}
        self.moved = value

    def op(self, op: Op) -> None:
        if is_control(op):
            self._control(op)
        else:
            self._plain(op)

    def _plain(self, op: Op) -> None:
        splits = splits_of(op, self.lowering.program.values, self.lowering.axes)
        split = self.lowering.choice.get(op.results[0], splits.whole)
        layouts = splits.layouts(split)
        names = tuple(map(self._of, (*op.operands, *op.results)))
        given = tuple(tuple(self.versions[operand]) for operand in op.operands)
        values = tuple(self.lowering.program.values[result] for result in op.results)
        reasons = OpReasons(splits, split, names, given, values)
        operands = tuple(
            self.use(value, layout, reasons.operand(place), op.line)
            for place, (value, layout) in enumerate(zip(op.operands, layouts.operands, strict=True))
        )
        if op.kind == "constrain":
            self.versions[op.results[0]] = {layouts.results[0]: operands[0]}
            return
        results = tuple(map(self.define, op.results, layouts.results))
        if layouts.results[0].partial and (found := self._origin(op, split, reasons)):
            self.lowering.summed.update(dict.fromkeys(op.results, found))
        turns = [self.lowering.loops.get(op.operands[place]) for place in split.carriers]
        for length in filter(None, turns):
            self.lowering.loops.update(dict.fromkeys(op.results, length))
        moves = tuple(self._inside(splits.moves(split), operands, results[0], reasons, op.line))
        self.steps.append(
            Compute(op, operands, results, moves=moves, formed=splits.is_formed(split))
        )
        self._settle(op, reasons)

    def _origin(self, op: Op, split: FactorAxes, reasons: OpReasons) -> str:
        """Return the sentence about the reduction that makes an op's results partial sums: by the
        op itself or, if the op only passes them on, before it. Return "" if it is unknown."""
        passed = (self.lowering.summed.get(op.operands[place], "") for place in split.carriers)
        return next(filter(None, (*reasons.summed(), *passed)), "")

    def _inside(
        self,
        moves: Sequence[FormMove],
        operands: Sequence[int],
        result: int,
        reasons: OpReasons,
        line: Line | None,
    ) -> Iterator[MoveValue]:
        """Yield the communications inside an op, each with a new local value as its result."""
        known = self.lowering.values
        for move in moves:
            operand = operands[move.place]
            layout = known[operand].layout
            number = self.lowering.new(known[result].value, layout)
            same = (operand, move.op, move.axes, move.dim, move.rows)
            is_known = move.rows is not None and same in self.brought
            self.brought.add(same)
            received = 0 if is_known else move.received
            change = Move(move.op, move.axes, layout, (move.dim,), received)
            ends, reason = (operand, number), reasons.inside(move)
            own = reasons.kind in COLLECTIVES
            yield MoveValue(change, *ends, reason, line, inside=True, known=is_known, own=own)

    def _of(self, value: int) -> str:
        return self.lowering.known[value]

    def _settle(self, op: Op, reasons: OpReasons) -> None:
        for value in op.results:
            layout = self.lowering.layouts[value]
            if layout is not None:
                number = self.use(value, layout, reasons.result(layout), op.line)
                self.versions[value] = {layout: number}

    def _control(self, op: Op) -> None:
        """Append a loop or a branch. Its operands and results have the layouts of its ports."""
        lowering = self.lowering
        ends = control_ends(op, ports_of(op, lowering.program.values), lowering.of_port)
        operands = tuple(
            self.use(value, layout, plainly(port_reason(port)), op.line)
            for value, layout, port in zip(
                op.operands, ends.operands, ends.ports("operands"), strict=True
            )
        )
        bodies = tuple(
            lowering.body(body, *layouts, list(map(port_reason, ends.ports("results", number))))
            for number, (body, layouts) in enumerate(zip(op.bodies, ends.bodies, strict=True))
        )
        results = tuple(map(self.define, op.results, ends.results))
        self.steps.append(Compute(op, operands, results, bodies))
        if op.kind == "scan":
            summed = (
                v for v, layout in zip(op.results, ends.results, strict=True) if layout.partial
            )
            lowering.loops.update(dict.fromkeys(summed, op.integers("length")[0]))
        for value in op.results:
            layout = lowering.layouts[value]
            if layout is not None:
                self.use(value, layout, plainly(f"the result of {op.kind} is {layout}"), op.line)
