"""The updates of leaves: the steps with which an optimizer updates one array of a tree.

An update is a connected set of elementwise steps whose results are results of the program. Updates
of different leaves differ only in their values and shapes, so that a backend can write them as one
function that is called for each leaf.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace

from shardwright.codegen.ops.table import ELEMENTWISE
from shardwright.codegen.partition.local.steps import (
    CallFunction,
    Compute,
    LocalBody,
    LocalProgram,
    MoveValue,
    Step,
    made,
    taken,
)

SHORTEST = 8
"""The fewest statements of an update."""
LEAST = 24
"""The fewest statements that a function for updates must save."""


Results = tuple[int, ...]
"""The results of a step, which identify it."""


@dataclass(frozen=True)
class LeafUpdate:
    """The update of one leaf. `key`: equal for updates that differ only in values and shapes;
    `operands`: the values from outside, in order of first use; `results`: the values that other
    steps use."""

    key: Hashable
    steps: tuple[Compute, ...]
    operands: tuple[int, ...]
    results: tuple[int, ...]


def leaves(program: LocalProgram) -> tuple[tuple[LeafUpdate, ...], ...]:
    """Return the updates of leaves in the program's body, then in each of its functions. Return
    only updates that share their key with others, and only if one function for them saves at least
    LEAST statements."""
    found = [list(_Updates(program, *each).leaves()) for each in _with_ends(program)]
    counts: dict[Hashable, list[LeafUpdate]] = defaultdict(list)
    for leaf in (leaf for each in found for leaf in each):
        counts[leaf.key].append(leaf)
    kept = {
        key
        for key, (first, *others) in counts.items()
        if (size := sum(not _is_silent(program, step) for step in first.steps)) >= SHORTEST
        and size * len(others) >= LEAST
    }
    return tuple(tuple(leaf for leaf in each if leaf.key in kept) for each in found)


def gathered(program: LocalProgram) -> LocalProgram:
    """Return a program in which the steps of each update are consecutive. Moves that the steps need
    come before them, and moves of their results after them."""
    found, *_ = leaves(program)
    steps = _contracted(program.body.steps, found)
    return replace(program, body=replace(program.body, steps=steps))


def is_update(steps: Sequence[Step], found: Sequence[LeafUpdate]) -> bool:
    """Return whether `steps` are exactly the steps of one of the updates `found`."""
    return any(set(map(made, steps)) == set(map(made, leaf.steps)) for leaf in found)


def consecutive(body: LocalBody, found: Sequence[LeafUpdate]) -> Iterator[LeafUpdate]:
    """Yield the updates whose steps are consecutive in a body."""
    places = {made(step): at for at, step in enumerate(body.steps)}
    for leaf in found:
        own = sorted(places[made(step)] for step in leaf.steps)
        if own[-1] - own[0] + 1 == len(own):
            yield leaf


def _contracted(steps: Sequence[Step], found: Sequence[LeafUpdate]) -> tuple[Step, ...]:
    """Return the steps in an order in which the steps of each update are consecutive, or in the
    given order if that is impossible."""
    groups = {made(step): number for number, leaf in enumerate(found) for step in leaf.steps}
    last = {groups[made(step)]: at for at, step in enumerate(steps) if made(step) in groups}
    units = [last[groups[made(s)]] if made(s) in groups else at for at, s in enumerate(steps)]
    makers = {value: unit for unit, step in zip(units, steps, strict=True) for value in made(step)}
    members: dict[int, list[Step]] = defaultdict(list)
    users: dict[int, set[int]] = defaultdict(set)
    for unit, step in zip(units, steps, strict=True):
        members[unit].append(step)
        for value in taken(step):
            if makers.get(value, unit) != unit:
                users[makers[value]].add(unit)
    needs = dict.fromkeys(members, 0)
    for user in (user for every in users.values() for user in every):
        needs[user] += 1
    ready = [unit for unit, count in needs.items() if not count]
    heapq.heapify(ready)
    out: list[Step] = []
    while ready:
        unit = heapq.heappop(ready)
        out += members[unit]
        for user in users[unit]:
            needs[user] -= 1
            if not needs[user]:
                heapq.heappush(ready, user)
    return tuple(out) if len(out) == len(steps) else tuple(steps)


def _with_ends(program: LocalProgram) -> Iterator[tuple[LocalBody, frozenset[int]]]:
    """Yield the program's body and each function, with the values in it that are results of the
    program, possibly after moves."""
    ends = _moved_to(program.body, program.body.results)
    yield program.body, ends
    calls: dict[int, list[CallFunction]] = defaultdict(list)
    for step in program.body.steps:
        if isinstance(step, CallFunction):
            calls[step.function].append(step)
    for number, body in enumerate(program.functions):
        columns = zip(*(call.results for call in calls[number]), strict=True)
        own = [ends.issuperset(column) for column in columns]
        results = [v for v, is_end in zip(body.results, own, strict=True) if is_end]
        yield body, _moved_to(body, results)


def _moved_to(body: LocalBody, results: Sequence[int]) -> frozenset[int]:
    found = set(results)
    for step in reversed(body.steps):
        if isinstance(step, MoveValue) and step.result in found:
            found.add(step.operand)
    return frozenset(found)


def _is_silent(program: LocalProgram, step: Compute) -> bool:
    """Return whether a step is a scalar constant or a broadcast of a scalar, which its users can
    state themselves."""
    if step.op.kind == "constant":
        return "value" in dict(step.op.params)
    return step.op.kind == "broadcast_in_dim" and not program.of(step.operands[0]).shape


class _Updates:
    """The updates of leaves in one body. `ends`: the values that are results of the program."""

    def __init__(self, program: LocalProgram, body: LocalBody, ends: frozenset[int]) -> None:
        self.program, self.body, self.ends = program, body, ends
        self.users: dict[int, list[Step]] = defaultdict(list)
        for step in body.steps:
            for value in taken(step):
                self.users[value].append(step)
        self.groups: dict[Results, list[Compute]] = {}  # the steps of a group, by each step

    def leaves(self) -> Iterator[LeafUpdate]:
        computes = [step for step in self.body.steps if isinstance(step, Compute)]
        for step in computes:
            if self._is_of_arrays(step):
                self._join(step)
        for step in reversed(computes):
            if made(step) not in self.groups and self._is_of_numbers(step):
                self._join_users(step)
        order = {made(step): at for at, step in enumerate(computes)}
        groups = {id(group): group for group in map(self.groups.get, order) if group}
        for group in groups.values():
            if leaf := self._leaf(sorted(group, key=lambda step: order[made(step)])):
                yield leaf

    def _is_of_arrays(self, step: Compute) -> bool:
        if step.op.kind not in ELEMENTWISE or step.formed:
            return False
        value = self.program.of(step.results[0])
        return bool(value.shape) and not value.backward

    def _is_of_numbers(self, step: Compute) -> bool:
        is_silent = _is_silent(self.program, step)
        if step.op.kind not in ELEMENTWISE:
            return is_silent
        return not self.program.of(step.results[0]).shape

    def _join(self, step: Compute) -> None:
        joined = [step]
        found = [self.groups[own] for v in step.operands for own in self._makers(v)]
        for group in {id(group): group for group in found}.values():
            joined += group
        self.groups.update((made(each), joined) for each in joined)

    def _makers(self, value: int) -> list[Results]:
        """Return the grouped step that produces a value, as a list of its results, or an empty list
        if there is none."""
        return [(value,)] if (value,) in self.groups else []

    def _join_users(self, step: Compute) -> None:
        (result,) = step.results
        found = [self.groups.get(made(user)) for user in self.users[result]]
        first = found[0] if found else None
        is_alone = all(group is first for group in found) and result not in self.body.results
        if first is not None and is_alone:
            first.append(step)
            self.groups[made(step)] = first

    def _leaf(self, steps: Sequence[Compute]) -> LeafUpdate | None:
        """Return the update that consists of the given steps, or None if a result that is used
        elsewhere is not a result of the program."""
        own = {made(step) for step in steps}
        values = [v for step in steps for v in step.results]
        used = {v for v in values if any(made(user) not in own for user in self.users[v])}
        results = tuple(v for v in values if v in used or v in self.body.results)
        if not self.ends.issuperset(results):
            return None
        places = {v: number for number, v in enumerate(values)}
        operands: dict[int, int] = {}
        rows = []
        for step in steps:
            for value in step.operands:
                if value not in places:
                    operands.setdefault(value, ~len(operands))
            is_broadcast = step.op.kind == "broadcast_in_dim"
            params = () if is_broadcast else step.op.params
            wires = tuple(places.get(v, operands.get(v)) for v in step.operands)
            types = tuple(self.program.of(v).dtype for v in (*step.operands, *step.results))
            rows.append((step.op.kind, params, step.op.line, types, wires))
        key = tuple(rows), tuple(places[v] for v in results)
        return LeafUpdate(key, tuple(steps), tuple(operands), results)
