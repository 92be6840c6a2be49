"""The memory of a device: arguments count throughout, results from their definition to the end, and
other values from their definition to their last use."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass

from shardwright.codegen.partition.local.steps import (
    Compute,
    LocalBody,
    LocalProgram,
    Step,
    item_bytes,
    made,
    taken,
)
from shardwright.ir.program import Line


@dataclass(frozen=True)
class Held:
    """The peak memory in bytes. `largest`: the largest local value at the peak; `line`: the line of
    the user's code at which it occurs."""

    bytes: int
    largest: int | None
    line: Line | None


def most_held(program: LocalProgram) -> Held:
    """Return the peak memory of a device for a program without functions. Savings by fusion and
    temporary memory of ops are ignored."""
    return _most(program, program.body, tuple(program.body.arguments))


def _most(program: LocalProgram, body: LocalBody, alive: tuple[int, ...]) -> Held:
    """Return the peak memory in a body. `alive`: the values that are alive throughout."""
    ends: dict[int, list[int]] = defaultdict(list)
    last = {v: place for place, step in enumerate(body.steps) for v in taken(step)}
    last.update(dict.fromkeys((*body.results, *alive), len(body.steps)))
    for value, place in last.items():
        ends[place].append(value)
    sizes = {v: size_of(program, v) for v in alive}
    held = sum(sizes.values())
    most = _at(held, sizes, None)
    for place, step in enumerate(body.steps):
        sizes |= {v: size_of(program, v) for v in made(step)}
        held += sum(sizes[v] for v in made(step))
        inner = max((_most(program, each, ()).bytes for each in _bodies(step)), default=0)
        if held + inner > most.bytes:
            most = _at(held + inner, sizes, step)
        for value in (*ends[place], *(v for v in made(step) if v not in last)):
            held -= sizes.pop(value, 0)
    return most


def _bodies(step: Step) -> tuple[LocalBody, ...]:
    return step.bodies if isinstance(step, Compute) else ()


def _at(held: int, sizes: dict[int, int], step: Step | None) -> Held:
    line = step.op.line if isinstance(step, Compute) else getattr(step, "line", None)
    return Held(held, max(sizes, key=lambda v: sizes[v], default=None), line)


def size_of(program: LocalProgram, local: int) -> int:
    return math.prod(program.shape(local)) * item_bytes(program.of(local).dtype)
