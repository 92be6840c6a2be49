"""Sums reduced together: all-reduces over the same axes that one line of the user's code needs, of
values that are ready at the same time, become neighbours. Neighbours are one communication, which a
module writes as one `lax.psum` of several values.

Each all-reduce may run anywhere between the step that makes its operand and the first step that
uses its result. This extends no value's lifetime, except that a small operand with other uses may
be reduced earlier.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from shardwright.codegen.partition.local.memory import size_of
from shardwright.codegen.partition.local.steps import (
    Compute,
    LocalBody,
    LocalProgram,
    MoveValue,
    Step,
    made,
    moves_of,
    taken,
)

SMALL = 2**16
"""The most bytes of an operand that is reduced earlier although other uses keep it alive."""

Run = tuple[MoveValue, ...]
"""The moves of one communication."""


def together(program: LocalProgram) -> LocalProgram:
    """Return a program in which all-reduces that can be one communication are neighbours."""
    functions = tuple(_together(program, each) for each in program.functions)
    return replace(program, body=_together(program, program.body), functions=functions)


def rows_of(program: LocalProgram) -> Iterator[tuple[Run, int]]:
    """Yield every communication in order, with its count, as `moves_of` does for layout changes."""
    runs: dict[int, Run] = {}
    for body in _every_body((program.body, *program.functions)):
        for run in runs_of(program, body.steps):
            moves = tuple(each for each in run if isinstance(each, MoveValue))
            runs.update((each.result, moves) for each in moves)
    seen: set[int] = set()
    for step, times in moves_of(program):
        if step.is_sent and step.result not in seen:
            found = runs.get(step.result, (step,))
            seen.update(each.result for each in found)
            yield found, times


def runs_of(program: LocalProgram, steps: Iterable[Step]) -> Iterator[tuple[Step, ...]]:
    """Yield the steps in order: the neighbours of one communication together, all others alone."""
    for key, run in itertools.groupby(steps, lambda step: _key(program, step)):
        if key is None:
            yield from ((step,) for step in run)
        else:
            yield tuple(run)


def _key(program: LocalProgram, step: Step) -> Hashable:
    """Return the key that all-reduces of one communication share, or None for another step."""
    if not isinstance(step, MoveValue) or step.change.op != "all_reduce" or not step.is_sent:
        return None
    is_sum = program.values[step.operand].layout.operator == "sum"
    if not is_sum or step.again or step.own or 0 in program.shape(step.result):
        return None
    left = program.values[step.result].layout.partial
    return step.change.axes, left, program.of(step.operand).dtype, step.line


def _together(program: LocalProgram, body: LocalBody) -> LocalBody:
    steps = [
        replace(step, bodies=tuple(_together(program, each) for each in step.bodies))
        if isinstance(step, Compute) and step.bodies
        else step
        for step in body.steps
    ]
    for key in dict.fromkeys(_key(program, step) for step in steps):
        if key is not None:
            steps = _gathered(program, body, steps, key)
    return replace(body, steps=tuple(steps))


@dataclass
class _Group:
    """All-reduces, and the positions among the steps before which all of them may run."""

    places: list[int]
    first: int
    last: int


def _gathered(
    program: LocalProgram, body: LocalBody, steps: Sequence[Step], key: Hashable
) -> list[Step]:
    groups = _groups(program, body, steps, key)
    moved = {place for group in groups for place in group.places}
    at = {max(group.first, group.places[0]): group.places for group in groups}
    out: list[Step] = []
    for place in range(len(steps) + 1):
        out += [steps[each] for each in at.get(place, ())]
        out += [steps[place]] if place < len(steps) and place not in moved else []
    return out


def _groups(
    program: LocalProgram, body: LocalBody, steps: Sequence[Step], key: Hashable
) -> list[_Group]:
    makers = {v: place for place, step in enumerate(steps) for v in made(step)}
    uses = Counter(v for step in steps for v in taken(step))
    uses.update(body.results)
    needed: dict[int, int] = {}
    for place, step in enumerate(steps):
        for value in taken(step):
            needed.setdefault(value, place)
    groups: list[_Group] = []
    for place, step in enumerate(steps):
        if not isinstance(step, MoveValue) or _key(program, step) != key:
            continue
        is_free = uses[step.operand] == 1 or size_of(program, step.operand) <= SMALL
        first = makers.get(step.operand, -1) + 1 if is_free else place
        last = needed.get(step.result, len(steps))
        if groups and max(groups[-1].first, first) <= min(groups[-1].last, last):
            own = groups[-1]
            own.places.append(place)
            own.first, own.last = max(own.first, first), min(own.last, last)
        else:
            groups.append(_Group([place], first, last))
    return groups


def _every_body(bodies: Iterable[LocalBody]) -> Iterator[LocalBody]:
    for body in bodies:
        yield body
        for step in body.steps:
            if isinstance(step, Compute):
                yield from _every_body(step.bodies)
