"""Check, from the devices' events, that a kernel's sends arrive where its module expects them."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from shardwright.codegen.backends.pallas_tpu.verify.contract import form_of
from shardwright.codegen.backends.pallas_tpu.verify.events import Copy
from shardwright.codegen.backends.pallas_tpu.verify.order import Counts, Traces, count
from shardwright.codegen.backends.pallas_tpu.verify.trace import Event
from shardwright.codegen.checks.clocks import carry_out
from shardwright.codegen.checks.compare import MismatchError

_Place = tuple[int, int]
"""A rank, and the number of one of its slots."""
Digits = tuple[tuple[int, int], ...]
"""(stride, extent) of each digit of a place."""
_Part = tuple[int, int, _Place]
"""A range (low, high) of a slot along its first dimension, and the place in which its contents
started."""


def check_received(kernels: Iterable[Traces], lacking: Mapping[int, int]) -> None:
    """Raise MismatchError if a device receives fewer elements, over all kernels of a module, than
    its target shard lacks. `lacking`: the elements lacking on each device, in rank order."""
    received: Counter[int] = Counter()
    for rank, own in (each for traces in kernels for each in enumerate(traces)):
        for event in own:
            if isinstance(event, Copy) and event.to != rank:
                received[event.to] += event.write.elements
    for rank, (device, needed) in enumerate(lacking.items()):
        if received[rank] < needed:
            raise MismatchError(
                f"the kernel's events bring device {device} {received[rank]} elements, "
                f"expected: at least the {needed} that it lacks"
            )


def check_deliveries(program: Any, traces: Traces) -> None:
    """Raise MismatchError if a slot does not contain, at the end, the data of another device that
    is expected in it. Only forms whose devices forward packed data have such slots."""
    form = form_of(program)
    if not form.forwards or form.in_place:
        return
    schedule = program.schedule
    spreads = form.spreads
    held, sizes = _held(traces, schedule.slots, program.slot.shape[0])
    places = [_place(rank, schedule.digits, schedule.lines) for rank in range(len(traces))]
    _check_offsets(program, places)
    for sender, place in enumerate(places):
        for number, (offset, slot) in enumerate(
            zip(schedule.offsets, schedule.arrives, strict=True)
        ):
            goal = _farther(place, offset, schedule.digits)
            if program.shares and not program.has(place, offset, program.order):
                continue
            receiver = places.index(goal)
            wanted = sender, 0 if spreads else schedule.starts[number] if program.shares else number
            end, sent = sizes.get(wanted, (1, ()))
            if not spreads:  # a tile may be smaller than its slot
                end, *needed = _needed(program, sender, receiver)
                if any(size < least for size, least in zip(sent, needed, strict=False)):
                    raise MismatchError(
                        f"slot {slot} of rank {receiver} gets {[*sent]} of every row, expected: "
                        f"{needed}, the size of the tile from rank {sender}"
                    )
            for begin, _, found in held[receiver, slot]:
                if begin < end and found != wanted:
                    raise MismatchError(
                        f"slot {slot} of rank {receiver} holds slot {found[1]} of rank "
                        f"{found[0]}, expected: slot {wanted[1]} of rank {sender}"
                    )


def _check_offsets(program: Any, places: list[int]) -> None:
    schedule, every = program.schedule, list(enumerate(places))
    known = {0, *schedule.offsets}
    for (sender, place), (receiver, goal) in itertools.product(every, every):
        offset = _farther(goal, place, schedule.digits, -1)
        if offset not in known and program.has(place, offset, program.order):
            raise MismatchError(
                f"nothing is sent over offset {offset}, expected: a tile from rank {sender} to "
                f"rank {receiver}"
            )


def _held(
    traces: Traces, slots: int, extent: int
) -> tuple[dict[_Place, list[_Part]], dict[_Place, tuple[int, tuple[int, ...]]]]:
    """Return two dicts. The first has the final contents of every (rank, slot), as ranges along its
    first dimension, each with the place in which the data started. The second has, for every such
    starting place, the end of the range sent along the first dimension and the smallest extents
    sent along the others."""
    places = [(rank, slot) for rank in range(len(traces)) for slot in range(slots)]
    held: dict[_Place, list[_Part]] = {place: [(0, extent, place)] for place in places}
    sizes: dict[_Place, tuple[int, tuple[int, ...]]] = {}
    counts = Counts()

    def step(rank: int, event: Event) -> bool:
        if isinstance(event, Copy):
            (read, _), (begin, size), *others = event.read.ranges
            (write, _), *_ = event.write.ranges
            taken, left = _cut(held[rank, read], begin, begin + size), held[event.to, write]
            around = _cut(left, 0, begin), _cut(left, begin + size, extent)
            held[event.to, write] = [*around[0], *taken, *around[1]]
            for _, end, place in taken:
                rest = tuple(extent for _, extent in others)
                last, least = sizes.get(place, (0, rest))
                sizes[place] = max(last, end), tuple(map(min, least, rest))
        return count(counts, rank, event)

    carry_out(traces, step)
    return held, sizes


def _cut(parts: list[_Part], low: int, high: int) -> list[_Part]:
    cut = ((max(begin, low), min(end, high), place) for begin, end, place in parts)
    return [part for part in cut if part[0] < part[1]]


def _needed(program: Any, sender: int, receiver: int) -> tuple[int, ...]:
    peers, slot = program.peers, program.slot
    me, wanted = peers.here(program.order, sender)[0], peers.here(program.order, receiver)[1]
    own, other = peers.forms.source_shard(me), peers.forms.target_shard(wanted)
    boxes = (
        peers.tile(own, other, piece)
        for piece in range(peers.count)
        if peers.holder(own, wanted, piece) == me
    )
    extents = max(tuple(map(int, np.subtract(box[1::2], box[::2]))) for box in boxes)
    if type(slot).__name__ == "Dense":
        granule = math.prod(slot.shape[1:])
        return (-(-extents[0] * math.prod(slot.held[1:]) // granule), *slot.shape[1:])
    return tuple(extents[axis] for axis in slot.order or range(len(extents)))


def _place(device: int, digits: Digits, lines: tuple[int, ...]) -> int:
    """Return the place of a device. On a line, devices use only the lower half of a digit's
    values."""
    place = 0
    for stride, extent in digits:
        device, digit = divmod(device, extent // 2 if stride in lines else extent)
        place += digit * stride
    return place


def _farther(place: int, offset: int, digits: Digits, sign: int = 1) -> int:
    """Return the place at an offset from a place, digit by digit modulo each digit's extent. With
    `sign` -1, subtract the offset."""
    return sum(
        (place // stride + sign * (offset // stride)) % extent * stride for stride, extent in digits
    )
