"""Check, from a ring kernel's events, which terms its results reduce, and compute the sums in the
same order.

In a ring, a part's terms are reduced from device to device, from the one after the part's owner, in
the direction of travel, around to the owner. Later rings reduce the results of earlier ones. The
module states how many elements of a part travel upwards. Imported only by workers.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from shardwright.codegen.backends.pallas_tpu.verify.events import Combine, Copy, Window
from shardwright.codegen.backends.pallas_tpu.verify.order import Counts, Traces, count
from shardwright.codegen.backends.pallas_tpu.verify.trace import Event
from shardwright.codegen.checks.case import Case
from shardwright.codegen.checks.clocks import carry_out
from shardwright.codegen.checks.compare import MismatchError
from shardwright.codegen.checks.oracle import sums as oracle_terms
from shardwright.codegen.checks.oracle.sums import Numbers


def check_rings(program: Any, traces: Traces) -> None:
    """Raise MismatchError unless every chunk of each device's own part is, at the end, the
    reduction of exactly one term from every device of its rings."""
    held = _contents(traces)
    chunks, kept = program.chunks, sum(program.held)
    for rank in range(len(traces)):
        number = 0
        for turn in program.rounds:
            number = number * turn.size + int(turn.place(rank))
        for way, chunk in np.ndindex(2, chunks):
            found = held.get((rank, "y", way, kept - chunks + chunk), Counter())
            wanted = "x", way, number * chunks + chunk
            terms = sorted(found.elements())
            ranks = {term[0] for term in terms}
            if len(terms) != program.parts or len(ranks) != len(terms):
                raise MismatchError(f"rank {rank}: chunk {chunk} has the terms of ranks {terms}")
            if {term[1:] for term in terms} != {wanted}:
                raise MismatchError(f"rank {rank}: chunk {chunk} has terms of a different part")


def _contents(traces: Traces) -> dict[Any, Counter[Any]]:
    """Return the final contents of every place (rank, buffer, direction, number): the reduced
    chunks of source shards, by their places, each with its count."""
    held: dict[Any, Counter[Any]] = {}

    def at(rank: int, window: Window) -> Any:
        return rank, window.buffer, window.ranges[0][0], window.ranges[1][0]

    def of(rank: int, window: Window) -> Counter[Any]:
        place = at(rank, window)
        return Counter([place]) if window.buffer == "x" else held.get(place, Counter())

    counts = Counts()

    def step(rank: int, event: Event) -> bool:
        if not count(counts, rank, event):
            return False
        if isinstance(event, Copy):
            held[at(event.to, event.write)] = of(rank, event.read)
        if isinstance(event, Combine):
            total: Counter[Any] = Counter()
            for each in event.of:
                total += of(rank, each)
            held[at(rank, event.into)] = total
        return True

    carry_out(traces, step)
    return held


def added_round_rings(case: Case, program: Any, terms: Numbers) -> Numbers:
    """Return the array of sums, added in the order of the rings of `program`, in the dtype of
    `terms`, the array of terms. Raises MismatchError if the parts do not cover the whole tensor."""
    rank, stacked = len(case.shape), terms.reshape(-1, *case.shape)
    made = np.zeros((oracle_terms.terms_of(case.target), *case.shape), terms.dtype)
    filled = np.zeros(made.shape, np.bool_)
    held, of = oracle_terms.terms_held(case.source), oracle_terms.terms_held(case.target)
    own = [stacked[held[device]] for device in case.source.device_ids]
    for position, device in enumerate(case.target.device_ids):
        box = program.host.target.box(position)[-2 * rank :]
        at = tuple(slice(low, high) for low, high in zip(box[::2], box[1::2], strict=True))
        mine = [each[at] for each in own]
        up, down = (_kept(tuple(program.rounds), position, mine, by) for by in (1, -1))
        part = np.concatenate([up.reshape(-1)[: program.half], down.reshape(-1)[program.half :]])
        made[of[device]][at] = part.reshape(up.shape)
        filled[of[device]][at] = True
    if not filled.all():
        raise MismatchError("the parts that rings bring together do not make up the tensor")
    array: Numbers = made.reshape(oracle_terms.array_shape(case.target, case.shape))
    return array


def _kept(rounds: tuple[Any, ...], position: int, own: list[Numbers], by: int) -> Numbers:
    """Return a position's sum after all rings; `own`: the term of its part on each device, by
    position; `by`: the direction of travel, 1 or -1."""
    if not rounds:
        return own[position]
    *before, last = rounds
    members = _members(last.stride, last.size, last.folded, position)
    place = members.index(position)
    order = [members[(place + by * step) % last.size] for step in range(1, last.size + 1)]
    total, *others = (_kept(tuple(before), member, own, by) for member in order)
    for term in others:
        total = total + term
    return total


def _members(stride: int, size: int, folded: bool, position: int) -> list[int]:
    order = list(range(size))
    if folded:
        order = [*order[::2], *order[1::2][::-1]]
    first = position - position // stride % size * stride
    return [first + coordinate * stride for coordinate in order]
