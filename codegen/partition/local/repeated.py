"""The work that devices repeat after a gather: steps on a whole dimension that the gather's axes
split before it, and of whose values they split nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from shardwright.codegen.ops.layout import Names
from shardwright.codegen.partition.local.flow import Asked, ValueFlow
from shardwright.codegen.partition.local.reasons import quoted
from shardwright.codegen.partition.local.steps import (
    CallFunction,
    Compute,
    MoveValue,
    Step,
    calls_of,
    taken,
)
from shardwright.codegen.partition.local.user_calls import bodies_of
from shardwright.codegen.partition.local.work import computes, work
from shardwright.codegen.propagate.rules import rule_of

LEAST = 0.1
"""The least part of a program's computation that a reason mentions."""

Dims = frozenset[int]


@dataclass(frozen=True)
class RepeatedWork:
    """The work that all devices along a gather's axes do. `part`: its part of the program's
    computation; `kept`: the first expression of the user after the gather that has the gathered
    dimension, in a layout in which the axes still split it, None if there is none; `alike`: the
    number of equal layers with this expression."""

    part: float
    axes: Names
    kept: Asked | None
    alike: int

    @property
    def reason(self) -> str:
        percent = round(100 * self.part)
        return f"the devices along {quoted(self.axes)} then repeat {percent} % of the computation"


class Repetition:
    """The repeated work of a program, by gather."""

    def __init__(self, flow: ValueFlow) -> None:
        self.flow, self.local = flow, flow.local

    @cached_property
    def users(self) -> dict[int, list[Step]]:
        """The steps that use each local value."""
        found: defaultdict[int, list[Step]] = defaultdict(list)
        for body in bodies_of(self.local):
            for step in body.steps:
                for value in dict.fromkeys(taken(step)):
                    found[value].append(step)
        return found

    @cached_property
    def work(self) -> list[tuple[Compute, float]]:
        """The cost of each step on a device, in all its runs, without steps that only add padding,
        mask it or take it off."""
        values = self.local.program.values
        return [
            (step, work(self.local, step) * times)
            for step, times in computes(self.local)
            if not any(values[result].version_of for result in step.op.results)
        ]

    @cached_property
    def returned(self) -> dict[int, list[int]]:
        """The results of calls that each result of a function becomes."""
        found: defaultdict[int, list[int]] = defaultdict(list)
        for step in self.local.body.steps:
            if isinstance(step, CallFunction):
                body = self.local.functions[step.function]
                for own, result in zip(body.results, step.results, strict=True):
                    found[own].append(result)
        return found

    def after(self, step: MoveValue) -> RepeatedWork | None:
        """Return the work that devices repeat after a gather, None if that is little."""
        if step.change.op != "all_gather" or step.inside:
            return None
        found, axes = self._followed(step), {*step.change.axes}
        repeated = sum(
            cost
            for each, cost in self.work
            if any(v in found and self._factors(each, v, found[v]) for v in each.operands)
            and axes.isdisjoint(n for v in (*each.operands, *each.results) for n in self._split(v))
        )
        total = sum(cost for _, cost in self.work)
        if repeated <= LEAST * total:
            return None
        kept = next(self._kept(step.change.axes, found), None)
        asked, alike = (None, 1) if kept is None else (kept[1], self._alike(kept[0]))
        return RepeatedWork(repeated / total, step.change.axes, asked, alike)

    def remedy(self, found: RepeatedWork) -> str:
        """Return the text of the remedy that lets the devices share the work, or ""."""
        kept = found.kept
        written = None if kept is None else self.local.program.values[kept.value].written
        if kept is None or written is None:
            return ""
        layers = f", for each of {found.alike} layers" if found.alike > 1 else ""
        asked = str(self.local.axes.sharding(kept.layout))
        return f"to share the repeated work, {written.constrained(asked, layers)}"

    def _alike(self, local: int) -> int:
        number = self.flow.functions.get(local)
        return 1 if number is None else len(calls_of(self.local, number))

    def _split(self, local: int) -> tuple[str, ...]:
        layout = self.local.values[local].layout
        return (*layout.used, *layout.partial)

    def _kept(self, axes: Names, found: Mapping[int, Dims]) -> Iterator[tuple[int, Asked]]:
        """Yield the expressions of the user that have the gathered dimension, each with a layout
        in which `axes` split it and nothing else."""
        for local, dims in found.items():
            value, own = self.local.of(local), self.local.values[local]
            if value.written is None or value.backward or len(dims) != 1:
                continue
            (at,), layout = dims, own.layout.whole
            for dim, names in enumerate(layout.dims):
                layout = layout.with_dim(dim, (name for name in names if name not in axes))
            layout = layout.with_dim(at, (*layout.dims[at], *axes))
            if value.shape[at] % self.local.axes.parts_of(layout.dims[at]) == 0:
                yield local, Asked(own.value, layout)

    def _followed(self, step: MoveValue) -> dict[int, Dims]:
        """Return the dimensions of later local values that come from the gathered ones."""
        found = {step.result: frozenset(step.change.dims)}
        left = [step.result]
        for local in left:
            for result, dims in self._passed(local, found[local]):
                known = found.get(result, frozenset())
                if not dims <= known:
                    found[result] = known | dims
                    left.append(result)
        return found

    def _passed(self, local: int, dims: Dims) -> Iterator[tuple[int, Dims]]:
        """Yield the values that dimensions of a value become, as results of steps, arguments of
        functions or results of calls."""
        for user in self.users.get(local, ()):
            if isinstance(user, MoveValue):
                yield user.result, dims
            elif isinstance(user, CallFunction):
                own = self.local.functions[user.function].arguments
                pairs = zip(user.operands, own, strict=True)
                yield from ((argument, dims) for operand, argument in pairs if operand == local)
            elif not user.bodies:
                yield from self._computed(user, local, dims)
        for result in self.returned.get(local, ()):
            yield result, dims

    def _computed(self, step: Compute, local: int, dims: Dims) -> Iterator[tuple[int, Dims]]:
        rule = rule_of(step.op, self.local.program.values)
        factors = self._factors(step, local, dims)
        for result, tensor in zip(step.results, rule.results if rule else (), strict=False):
            kept = frozenset(at for at, each in enumerate(tensor) if factors.intersection(each))
            if kept:
                yield result, kept

    def _factors(self, step: Compute, local: int, dims: Dims) -> set[int]:
        """Return the factors of a step to which dimensions of an operand belong, without those that
        each device needs whole, as for sorting."""
        rule = None if step.bodies else rule_of(step.op, self.local.program.values)
        if rule is None:
            return set()
        own = rule.operands[step.operands.index(local)]
        return {factor for dim in dims for factor in own[dim]} - {*rule.need_replication}
