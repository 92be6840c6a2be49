"""A program as a graph: its values in each layout, their dependencies, and communications as edges
between two layouts of one value."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

from shardwright.codegen.ops.layout import LocalLayout
from shardwright.codegen.partition.local.communications import communications
from shardwright.codegen.partition.local.sizes import size_text
from shardwright.codegen.partition.local.steps import (
    CallFunction,
    Compute,
    LocalBody,
    LocalProgram,
    MoveValue,
    Step,
)
from shardwright.codegen.partition.local.together import rows_of

SYMBOLS = {"sum": "+", "max": "max ", "min": "min "}
"""The symbol before the axes of a partial value."""


HIDDEN = frozenset({"constant"})
"""Ops that are not drawn."""


@dataclass(frozen=True)
class GraphValue:
    """A value in one layout. `split`: the axes that split its dimensions, such as `@d, -, @t`.
    `times`: the number of iterations of its enclosing loops."""

    name: str
    type: str
    made_by: str
    line: str
    split: str
    times: int = 1
    is_result: bool = False

    @property
    def text(self) -> str:
        """The name and type of the value, and the number of times that it is computed."""
        often = f" (x{self.times})" if self.times > 1 else ""
        return f"{self.name}: {self.type}{often}"


@dataclass(frozen=True)
class GraphEdge:
    """A dependency between two values or a move between layouts. `source` and `target` are indices
    of values.

    `label`: the communication, or the local change of layout. `number`: the communication's number,
    0 without one. `hidden`: whether the dependency passes through omitted values.
    """

    source: int
    target: int
    label: str = ""
    number: int = 0
    hidden: bool = False


@dataclass(frozen=True)
class ProgramGraph:
    """Values in program order, and edges, each to a later value."""

    values: tuple[GraphValue, ...]
    edges: tuple[GraphEdge, ...]

    def around_communications(self) -> ProgramGraph:
        """Return the graph of arguments, results and values at the ends of communications. An
        edge is hidden if its target depends on its source through omitted values."""
        ends = {end for each in self.edges if each.number for end in (each.source, each.target)}
        kept = [
            number
            for number, value in enumerate(self.values)
            if number in ends or value.is_result or value.made_by == "argument"
        ]
        place = {number: at for at, number in enumerate(kept)}
        values = tuple(self.values[number] for number in kept)
        return ProgramGraph(values, _direct(tuple(self._between(place)))).without_idle()

    def _between(self, place: dict[int, int]) -> Iterator[GraphEdge]:
        into: dict[int, list[GraphEdge]] = defaultdict(list)
        for each in self.edges:
            into[each.target].append(each)
        behind: dict[int, dict[int, None]] = {}  # the kept values that each omitted value needs
        for number in range(len(self.values)):
            hidden: dict[int, None] = {}
            for each in into[number]:
                if each.source not in place:
                    hidden.update(behind[each.source])
                elif number in place:
                    yield replace(each, source=place[each.source], target=place[number])
                else:
                    hidden[each.source] = None
            behind[number] = hidden
            if number in place:
                for source in hidden:
                    yield GraphEdge(place[source], place[number], hidden=True)

    def without_idle(self) -> ProgramGraph:
        """Return the graph without values that are neither connected nor results."""
        used = {end for each in self.edges for end in (each.source, each.target)}
        kept = [n for n, value in enumerate(self.values) if n in used or value.is_result]
        place = {number: at for at, number in enumerate(kept)}
        edges = (
            replace(each, source=place[each.source], target=place[each.target])
            for each in self.edges
        )
        return ProgramGraph(tuple(self.values[n] for n in kept), tuple(edges))


def _direct(edges: tuple[GraphEdge, ...]) -> tuple[GraphEdge, ...]:
    """Drop hidden edges that a longer path implies."""
    into: dict[int, list[int]] = defaultdict(list)
    for each in edges:
        into[each.target].append(each.source)
    behind: dict[int, int] = {}  # the values that a value needs, as bits
    for target in range(max(into, default=-1) + 1):
        sources = into[target]
        behind[target] = 0
        for source in sources:
            behind[target] |= behind[source] | 1 << source
    return tuple(
        each
        for each in edges
        if not each.hidden
        or not any(behind[other] >> each.source & 1 for other in into[each.target])
    )


def graph_of(program: LocalProgram) -> ProgramGraph:
    """Return the graph of a program; loop bodies appear once."""
    made = GraphSteps(program)
    for argument in program.body.arguments:
        made.add(argument, "argument", "", 1)
    made.body(program.body, 1)
    results = {made.number.get(result) for result in program.body.results}
    values = (
        replace(value, is_result=number in results) for number, value in enumerate(made.values)
    )
    return ProgramGraph(tuple(values), tuple(dict.fromkeys(made.edges))).without_idle()


class GraphSteps:
    """Builds the graph of a program step by step. `number`: the index in the graph of each local
    value."""

    def __init__(self, program: LocalProgram) -> None:
        found = communications(program)
        rows = [run for run, _ in rows_of(program)]
        self.communications = {move.result: found[run[0].result] for run in rows for move in run}
        self.program = program
        self.values: list[GraphValue] = []
        self.edges: list[GraphEdge] = []
        self.number: dict[int, int] = {}
        self.drawn: set[int] = set()  # the functions added so far

    def add(self, local: int, made_by: str, line: str, times: int) -> int:
        """Add a local value and return its index."""
        value, layout = self.program.of(local), self.program.values[local].layout
        kind = short_type(value.dtype, value.shape, layout)
        self.number[local] = len(self.values)
        self.values.append(GraphValue(value.name, kind, made_by, line, split_text(layout), times))
        return self.number[local]

    def body(self, body: LocalBody, times: int) -> None:
        """Add the steps of a body."""
        for step in body.steps:
            self._step(step, times)

    def _step(self, step: Step, times: int) -> None:
        if isinstance(step, MoveValue):
            self._move(step, times)
            return
        if isinstance(step, CallFunction):
            self._call(step)
            return
        line = "" if step.op.line is None else str(step.op.line)
        turns = times * (step.op.integers("length")[0] if step.op.kind == "scan" else 1)
        for body in step.bodies:
            self._enter(step, body, line, turns)
        for place, result in enumerate(step.results):
            if step.op.kind in HIDDEN:
                continue
            sources = self._sources(step, place)
            target = self.add(result, step.op.kind, line, times)
            labels = [
                (self.number[move.operand], self._label(move))
                for move in step.moves
                if move.operand in self.number
            ]
            moved = {source for source, _ in labels}
            self.edges += [GraphEdge(source, target, *label) for source, label in labels]
            self.edges += [GraphEdge(each, target) for each in sources if each not in moved]

    def _call(self, step: CallFunction) -> None:
        body = self.program.functions[step.function]
        if step.function not in self.drawn:
            self.drawn.add(step.function)
            times = sum(
                isinstance(other, CallFunction) and other.function == step.function
                for other in self.program.body.steps
            )
            for argument in body.arguments:
                self.add(argument, f"in a part that runs {times} times", "", times)
            for operand, argument in zip(step.operands, body.arguments, strict=True):
                if operand in self.number:
                    self.edges.append(GraphEdge(self.number[operand], self.number[argument]))
            self.body(body, times)
        self.number.update(
            (result, self.number[own])
            for result, own in zip(step.results, body.results, strict=True)
            if own in self.number
        )

    def _sources(self, step: Compute, place: int) -> list[int]:
        """Return the sources of a result: the operands, or result `place` of each body."""
        giving = [body for body in step.bodies if len(body.results) == len(step.results)]
        ends = [body.results[place] for body in giving] if step.bodies else step.operands
        return [self.number[end] for end in ends if end in self.number]

    def _enter(self, step: Compute, body: LocalBody, line: str, times: int) -> None:
        """Add a body, whose arguments receive the op's last operands."""
        given = step.operands[len(step.operands) - len(body.arguments) :]
        if step.op.kind == "while":
            given = self._looped(step, body)
        for argument, operand in zip(body.arguments, given, strict=True):
            target = self.add(argument, f"in {step.op.kind}", line, times)
            if operand in self.number:
                self.edges.append(GraphEdge(self.number[operand], target))
        self.body(body, times)

    def _looped(self, step: Compute, body: LocalBody) -> tuple[int, ...]:
        first, second = step.op.integers("lengths")
        start, count = (0, first) if body is step.bodies[0] else (first, second)
        return (*step.operands[start : start + count], *step.operands[first + second :])

    def _move(self, step: MoveValue, times: int) -> None:
        change = step.change
        line = "" if step.line is None else str(step.line)
        target = self.add(step.result, change.collective.replace("_", "-"), line, times)
        if step.operand in self.number:
            self.edges.append(GraphEdge(self.number[step.operand], target, *self._label(step)))

    def _label(self, move: MoveValue) -> tuple[str, int]:
        change, found = move.change, self.communications.get(move.result)
        axes = ", ".join(change.axes)
        if found is None:
            return f"{change.collective.replace('_', '-')} {axes}", 0
        often = f" x{found.times}" if found.times > 1 else ""
        said = f"C{found.number} {found.called} {axes} {size_text(found.received)}{often}"
        return said, found.number


def short_type(dtype: str, shape: tuple[int, ...], layout: LocalLayout) -> str:
    """Return a type with its splits, and the axes of a partial sum: `f32[16@d,32]+t`."""
    dims = (
        f"{extent}@{'@'.join(names)}" if names else str(extent)
        for extent, names in zip(shape, layout.dims, strict=True)
    )
    return f"{dtype}[{','.join(dims)}]{_terms(layout)}"


def split_text(layout: LocalLayout) -> str:
    """Return the axes that split a layout's dimensions, without trailing whole dimensions."""
    dims = ["@".join(names) for names in layout.dims]
    while dims and not dims[-1]:
        dims.pop()
    said = ", ".join(f"@{each}" if each else "-" for each in dims) or "whole"
    return f"{said} {_terms(layout)}".rstrip()


def _terms(layout: LocalLayout) -> str:
    return SYMBOLS[layout.operator] + ",".join(layout.partial) if layout.partial else ""
