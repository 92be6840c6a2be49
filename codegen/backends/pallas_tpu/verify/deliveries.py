"""Whether what a kernel sends comes to where its module looks for it, on devices' events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from shardwright.codegen.backends.pallas_tpu.verify.contract import form_of
from shardwright.codegen.backends.pallas_tpu.verify.order import Counts, Traces, carry_out, count
from shardwright.codegen.backends.pallas_tpu.verify.trace import Copy, Event
from shardwright.codegen.verify.compare import MismatchError


def check_received(kernels: Iterable[Traces], lacking: Mapping[int, int]) -> None:
    """Raise MismatchError where a device gets fewer elements, in all kernels of a module, than it
    lacks of its target shard. `lacking`: how many, by device, ascending."""
    received: Counter[int] = Counter()
    for rank, own in (each for traces in kernels for each in enumerate(traces)):
        for event in own:
            if isinstance(event, Copy) and event.to != rank:
                received[event.to] += event.write.elements
    for rank, (device, needed) in enumerate(lacking.items()):
        if received[rank] < needed:
            raise MismatchError(
                f"the kernel's events bring device {device} {received[rank]} elements, "
                f"expected: the {needed} that it lacks, or more"
            )


def check_deliveries(program: Any, traces: Traces) -> None:
    """Raise MismatchError where, in the end, a slot does not hold what another device had for
    this one. Programs that forward nothing have no such slots."""
    form = form_of(program)
    if form not in ("routed", "spread"):
        return
    schedule = program.schedule
    held, spreads = _held(traces, schedule.slots), form == "spread"
    for sender in range(len(traces)):
        for number, (offset, slot) in enumerate(
            zip(schedule.offsets, schedule.arrives, strict=True)
        ):
            receiver = _farther(sender, offset, schedule.digits)
            wanted = sender, 0 if spreads else number
            if held[receiver, slot] != wanted:
                raise MismatchError(
                    f"slot {slot} of rank {receiver} holds what rank {held[receiver, slot][0]} had "
                    f"in slot {held[receiver, slot][1]}, expected: rank {sender}, slot {wanted[1]}"
                )


def _held(traces: Traces, slots: int) -> dict[tuple[int, int], tuple[int, int]]:
    """Return, for every (rank, slot), the rank and slot in which what it holds in the end was at
    first."""
    places = [(rank, slot) for rank in range(len(traces)) for slot in range(slots)]
    held, counts = dict(zip(places, places, strict=True)), Counts()

    def step(rank: int, event: Event) -> bool:
        if isinstance(event, Copy):
            read, write = (window.ranges[0][0] for window in (event.read, event.write))
            held[event.to, write] = held[rank, read]
        return count(counts, rank, event)

    carry_out(traces, step)
    return held


def _farther(device: int, offset: int, digits: tuple[tuple[int, int], ...]) -> int:
    """Return the device that is so much farther on, digit by digit modulo the digit's extent."""
    return sum((device // stride + offset // stride) % extent * stride for stride, extent in digits)
