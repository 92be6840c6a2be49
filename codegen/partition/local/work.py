"""The cost of a planned program: its computation, rated as in the search, and its received
bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from shardwright.codegen.partition.local.assign import splits_of
from shardwright.codegen.partition.local.steps import (
    CallFunction,
    Compute,
    LocalProgram,
    Step,
    moves_of,
)


def cost(program: LocalProgram) -> float:
    """Return the cost that the mode `cheapest` minimizes: received bytes plus computation."""
    return received(program) + computed(program)


def received(program: LocalProgram) -> int:
    """Return the number of bytes that the busiest device receives."""
    return sum(step.change.received * times for step, times in moves_of(program) if step.is_sent)


def computed(program: LocalProgram) -> float:
    """Return the cost of a device's computation, as the bytes that it could receive in that time.
    An op in a scan counts once per iteration, in a loop of unknown length once."""
    return sum(work(program, step) * times for step, times in computes(program))


def work(program: LocalProgram, step: Compute) -> float:
    """Return the cost of one run of a step on a device."""
    layouts = (program.values[v].layout for v in (*step.operands, *step.results))
    splits = splits_of(step.op, program.program.values, program.axes)
    return splits.whole_work / program.axes.parts_of({n for each in layouts for n in each.used})


def computes(program: LocalProgram) -> Iterator[tuple[Compute, int]]:
    """Yield the ops of a program that have no bodies, each with the number of times that it
    runs."""
    calls = Counter(s.function for s in program.body.steps if isinstance(s, CallFunction))
    yield from _inside(program.body.steps, 1)
    for number, body in enumerate(program.functions):
        yield from _inside(body.steps, calls[number])


def _inside(steps: Iterable[Step], times: int) -> Iterator[tuple[Compute, int]]:
    for step in steps:
        if isinstance(step, Compute) and step.bodies:
            length = step.op.integers("length")[0] if step.op.kind == "scan" else 1
            for body in step.bodies:
                yield from _inside(body.steps, times * length)
        elif isinstance(step, Compute):
            yield step, times
