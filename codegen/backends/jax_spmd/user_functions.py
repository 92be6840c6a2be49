"""The user's functions that a module calls several times, such as `norm(x, scale)`.

Two calls share a function if their steps, written as a function of their operands, have the same
text except for names."""

from __future__ import annotations

import itertools
import sys
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, Self

from shardwright.codegen.backends.jax_spmd.control import BodyWriter
from shardwright.codegen.backends.jax_spmd.names import LocalNames
from shardwright.codegen.ops.text import Expression
from shardwright.codegen.partition.local.leaves import LeafUpdate, Results
from shardwright.codegen.partition.local.steps import LocalBody, LocalProgram, made
from shardwright.codegen.partition.local.user_calls import (
    UserSteps,
    UserStepsOf,
    WholeCalls,
    bodies_of,
)
from shardwright.codegen.text.python_text import called, indented, returned

NOWHERE = sys.maxsize
"""The number of enclosing calls for steps in which no call becomes a function."""
SHORTEST = 3
"""The fewest statements of a function."""
CALL, DEFINITION = 3, 5
"""The lines of a call, and the lines of a function other than its statements."""
COST = {False: 3, True: 0}
"""The most lines that a function may add to the module in return for having the user's name, by
whether it is a backward pass."""
FEW, MOST = 5, 10
"""FEW: how many operands and results of a call fit in a line. MOST: the most that a function may
have."""
ALL = 0.8
"""The fraction of a function's steps that must be its own, rather than those of a call in it."""


class UserWriter(BodyWriter, Protocol):
    """An object that writes bodies, and the user's functions."""

    names: LocalNames
    around: int

    def of_user(self, names: LocalNames, own: UserSteps, style: Style) -> Self:
        """Return a writer for a function with the steps of a call."""


@dataclass(frozen=True)
class Style:
    """The comments in a function: the types of values, and the user's lines. `around`: the number
    of calls that contain its steps, whose functions it does not call."""

    typed: bool
    lined: bool
    around: int


STYLES = ((True, True), (False, True), (True, False), (False, False))


class PlainNames(LocalNames):
    """Names that depend only on the order in which values are named."""

    def own(self, local: int) -> str:
        """Return the same name for every value."""
        return "v"


@dataclass(frozen=True)
class UserFunction:
    """A function, and the comments in it, which are the same for all calls. `first`: its first
    call; its results are all values that any call uses."""

    name: str
    first: UserSteps
    typed: bool
    lined: bool


class UserFunctions:
    """The user's functions that a module calls. Writing the first call of a function appends its
    definition to `lines`."""

    def __init__(self, program: LocalProgram, names: LocalNames, lines: list[str]) -> None:
        self.program, self.names, self.lines = program, names, lines
        self.kept: dict[tuple[Results, ...], UserFunction] = {}  # by the steps of each call
        self.whole = WholeCalls(program)
        self._written: set[str] = set()
        self._known: dict[Hashable, UserStepsOf] = {}

    def functions(self) -> Iterator[str]:
        """Yield the names of the functions."""
        yield from dict.fromkeys(function.name for function in self.kept.values())

    def find(self, writer: UserWriter, leaves: Sequence[LeafUpdate]) -> None:
        """Find the functions. `leaves`: the updates of leaves, which already have functions."""
        of_leaves = {made(step) for leaf in leaves for step in leaf.steps}
        alike: dict[Hashable, list[UserSteps]] = defaultdict(list)
        for body in bodies_of(self.program):
            whole = len(body.steps) * ALL if body in self.program.functions else NOWHERE
            for each in self._of(body, 0).every():
                if len(each.steps) < whole and not of_leaves.intersection(each.key):
                    alike[each.likeness].append(each)
        found: list[tuple[tuple[UserSteps, ...], int]] = []  # calls, and lines of the function
        for calls in alike.values():
            same: dict[tuple[str, ...], list[UserSteps]] = defaultdict(list)
            for each in _with_all_results(calls) if len(calls) > 1 else ():
                same[self._plain(writer, each, False, False)].append(each)
            for first, *others in same.values():
                text = self._plain(writer, first, True, True) if others else ()
                length = len(text) - len(first.operands) - len(first.results)
                found.append(((first, *others), length))
        for several in self._worth(found):
            name = self.names.fresh(_name(several[0]))
            function = UserFunction(name, several[0], *self._style(writer, several))
            self.kept.update((each.key, function) for each in several)

    def placed(self, body: LocalBody, around: int) -> dict[int, list[UserSteps]]:
        """Return the calls in a body, by the run of steps that follows each."""
        if not self.kept or around == NOWHERE:
            return {}
        return self._of(body, around).placed(lambda each: each.key in self.kept)

    def call(self, writer: UserWriter, each: UserSteps) -> tuple[str, Expression]:
        """Return the targets of a call, with "_" for unused values, and its expression."""
        function = self.kept[each.key]
        if function.name not in self._written:
            self._written.add(function.name)
            self.lines += ["", "", *self._definition(writer, function)]
        targets = []
        for place in function.first.places():
            value = each.values()[place]
            if value in each.results:
                writer.text[value] = writer.names.of(value)
            targets.append(writer.text[value] if value in each.results else "_")
        arguments = [writer.read(values[0]) for values in self._alike(each)]
        return ", ".join(targets), (function.name, arguments)

    def _of(self, body: LocalBody, around: int) -> UserStepsOf:
        key = tuple(map(made, body.steps)), body.results, around
        if key not in self._known:
            self._known[key] = UserStepsOf(self.program, body, around, self.whole)
        return self._known[key]

    def _worth(
        self, found: Sequence[tuple[tuple[UserSteps, ...], int]]
    ) -> Iterator[tuple[UserSteps, ...]]:
        """Yield the calls of each function that makes the module shorter. A call within a function
        counts once, because the function is written once."""
        kept = {number: own for number, (own, length) in enumerate(found) if length >= SHORTEST}
        while kept:
            numbers = {each.key: number for number, own in kept.items() for each in own}
            counts = self._counts(numbers)
            dropped = [
                number
                for number, own in kept.items()
                if self._cost(own[0], found[number][1], counts[number]) > COST[own[0].backward]
            ]
            outermost = min((kept[number][0].depth for number in dropped), default=0)
            for number in dropped:
                if kept[number][0].depth == outermost:
                    del kept[number]
            if not dropped:
                break
        yield from kept.values()

    def _cost(self, each: UserSteps, length: int, count: int) -> int:
        """Return the lines that a function adds to the module."""
        ends = len(self._alike(each)) + len(each.results)
        if count < 2 or ends > MOST:
            return NOWHERE
        call = CALL + max(0, ends - FEW)
        return count * call + length + DEFINITION - count * length

    def _counts(self, numbers: dict[tuple[Results, ...], int]) -> Counter[int]:
        """Return how often the module calls each function. `numbers`: the number of each call's
        function."""
        counts: Counter[int] = Counter()
        left = [(body, 0) for body in bodies_of(self.program)]
        while left:
            body, around = left.pop()
            placed = self._of(body, around).placed(lambda each: each.key in numbers)
            for each in itertools.chain.from_iterable(placed.values()):
                number = numbers[each.key]
                if not counts[number]:
                    left.append((_body(each), each.depth + 1))
                counts[number] += 1
        return counts

    def _style(self, writer: UserWriter, calls: Sequence[UserSteps]) -> tuple[bool, bool]:
        """Return whether the calls agree on comments with types, and on comments with lines."""
        for typed, lined in STYLES:
            if len({self._plain(writer, each, typed, lined) for each in calls}) == 1:
                return typed, lined
        return False, False

    def _plain(
        self, writer: UserWriter, each: UserSteps, typed: bool, lined: bool
    ) -> tuple[str, ...]:
        """Return the text of a call's steps as a function, independent of the names of values."""
        names = PlainNames(self.program, self.names.module)
        inner = writer.of_user(names, each, Style(typed, lined, NOWHERE))
        for values in self._alike(each):
            inner.text.update(dict.fromkeys(values, names.of(values[0])))
        lines = inner.body(_body(each), 1)
        return (*map(inner.text.__getitem__, each.operands), *lines, *map(inner.read, each.results))

    def _alike(self, each: UserSteps) -> list[list[int]]:
        """Return the operands of a call, grouped so that copies of one value are together."""
        found: dict[Hashable, list[int]] = defaultdict(list)
        for value in each.operands:
            name, _, _ = self.program.of(value).name.partition(".")
            found[name, self.program.values[value].layout].append(value)
        return list(found.values())

    def _definition(self, writer: UserWriter, function: UserFunction) -> list[str]:
        each = function.first
        names = self.names.inside(self.functions())
        names.is_shared = each.backward
        inner = writer.of_user(names, each, Style(function.typed, function.lined, each.depth + 1))
        said = self._said(each)
        for values in self._alike(each):
            name = next((said[v] for v in values if v in said), names.own(values[0]))
            inner.text.update(dict.fromkeys(values, names.fresh(name)))
        parameters = list(dict.fromkeys(inner.text[value] for value in each.operands))
        lines = inner.body(_body(each), 1)
        ends = returned(", ".join(map(inner.read, each.results)), 1)
        backward = "the backward pass of " if each.backward else ""
        defined = f" at {each.call.defined}" if each.call.defined else ""
        document = f'"""Compute one device\'s part of {backward}{each.call.function}{defined}."""'
        head = called(f"def {function.name}", parameters, ":")
        return [*head, *indented([document, *lines, *ends])]

    def _said(self, each: UserSteps) -> dict[int, str]:
        """Return the names of operands in the user's function, where they are clear."""
        found: dict[int, str] = {}
        for step in () if each.backward else each.steps:
            calls = self.program.of(step.results[0]).calls
            names = calls[each.depth].operands if len(calls) > each.depth else ()
            outside = [v for v in step.operands if v in each.operands and v not in found]
            if len(names) == len(step.operands):
                pairs = dict(zip(step.operands, names, strict=True))
                own = {v: pairs[v] for v in outside if pairs[v]}
            else:
                clear = [name for name in dict.fromkeys(names) if name]
                own = {outside[0]: clear[0]} if len(outside) == len(clear) == 1 else {}
            found.update((v, n) for v, n in own.items() if n not in found.values())
        return found


def _with_all_results(calls: Sequence[UserSteps]) -> Iterator[UserSteps]:
    """Yield calls whose steps have the same kinds, changed so that each returns every value that
    any of the calls returns."""
    places = sorted({place for each in calls for place in each.places()})
    for each in calls:
        values = each.values()
        yield replace(each, results=tuple(values[place] for place in places))


def _body(each: UserSteps) -> LocalBody:
    return LocalBody(each.operands, (*each.numbers, *each.steps), each.results)


def _name(each: UserSteps) -> str:
    return f"{each.call.function}_backward" if each.backward else each.call.function
