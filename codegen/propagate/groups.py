"""Prepare groups of values that must have the same sharding for propagation.

Groups that share a value are merged. If one sharding is given in a group, all its members get it.
If different shardings are given, none of them can apply to all members. Each member is then
followed by an open constraint, which replaces it in the group and for its users; the first
constraint to change decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from shardwright.codegen.propagate.graph import ShardingCopy
from shardwright.ir.program import Body, Op, Program, Value
from shardwright.ir.sharding import DimSharding, Sharding

Group = tuple[int, ...]


def with_agreed_groups(program: Program) -> tuple[Program, tuple[ShardingCopy, ...]]:
    """Return the program with at most one given sharding in each group, and the shardings that were
    copied.

    Applying this twice changes nothing more.
    """
    agreed = _Agreed(program)
    return agreed.run(), tuple(agreed.copies)


def joined(groups: Iterable[Group]) -> tuple[Group, ...]:
    found: list[Group] = []
    for group in groups:
        touching = [other for other in found if not set(other).isdisjoint(group)]
        found = [other for other in found if other not in touching]
        members = (member for other in (*touching, group) for member in other)
        found.append(tuple(dict.fromkeys(members)))
    return tuple(found)


def says_nothing(sharding: Sharding) -> bool:
    """Return whether a sharding states nothing: every dimension is open and without axes, and no
    axes are unreduced."""
    return not sharding.unreduced and all(dim.open and not dim.axes for dim in sharding.dims)


class _Agreed:
    """Make groups consistent, then rewrite the bodies. `open`: for each member, the result of its
    open constraint."""

    def __init__(self, program: Program) -> None:
        self.program, self.values = program, list(program.values)
        self.open: dict[int, int] = {}
        self.copies: list[ShardingCopy] = []
        self.names = {value.name for value in program.values}

    def run(self) -> Program:
        groups = tuple(map(self._group, joined(self.program.groups)))
        body = self._body(self.program.body) if self.open else self.program.body
        return replace(self.program, values=tuple(self.values), body=body, groups=groups)

    def _group(self, group: Group) -> Group:
        given = (self.values[member].sharding for member in group)
        said = list(dict.fromkeys(s for s in given if s is not None and not says_nothing(s)))
        if len(said) > 1:
            return tuple(self._opened(member, said[0]) for member in group)
        source = next((m for m in group if self.values[m].sharding == said[0]), 0) if said else 0
        for member in group if said else ():
            if self.values[member].sharding != said[0]:
                self.values[member] = replace(self.values[member], sharding=said[0])
                self.copies.append(ShardingCopy(source, member, "alike", self.values[member].line))
        return group

    def _opened(self, member: int, said: Sharding) -> int:
        old = self.values[member]
        sharding = Sharding(said.mesh, (DimSharding(open=True),) * len(old.shape))
        self.values.append(Value(self._name(), old.shape, old.dtype, sharding, old.line))
        self.open[member] = len(self.values) - 1
        return self.open[member]

    def _name(self) -> str:
        number = len(self.open)
        while f"alike_{number}" in self.names:
            number += 1
        self.names.add(f"alike_{number}")
        return f"alike_{number}"

    def _body(self, body: Body) -> Body:
        """Return the body with a constraint after each member. Constraints on arguments come first,
        in reverse order of the arguments."""
        ops = list(self._constraints(reversed(body.arguments)))
        for op in body.ops:
            bodies = tuple(map(self._body, op.bodies))
            ops.append(replace(op, operands=self._renamed(op.operands), bodies=bodies))
            ops += self._constraints(op.results)
        return Body(body.arguments, tuple(ops), self._renamed(body.results))

    def _constraints(self, values: Iterable[int]) -> Iterator[Op]:
        for value in values:
            if value in self.open:
                new = self.open[value]
                params = (("sharding", self.values[new].sharding),)
                yield Op("constrain", (value,), (new,), params, line=self.values[value].line)

    def _renamed(self, values: Group) -> Group:
        return tuple(self.open.get(value, value) for value in values)


def by_member(groups: Iterable[Group]) -> dict[int, Group]:
    """Return, for every member, the other members of its group in reverse order."""
    return {
        member: tuple(other for other in reversed(group) if other != member)
        for group in groups
        for member in group
    }
