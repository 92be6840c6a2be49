"""The lines about routes in the docstrings of modules whose devices forward data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shardwright.codegen.backends.pallas_tpu.routed.schedule import Push
from shardwright.codegen.backends.pallas_tpu.routed.strategy import ForwardingForm
from shardwright.codegen.backends.pallas_tpu.routed.turns import WHOLE
from shardwright.codegen.backends.pallas_tpu.routed.ways import Hop


def route_facts(form: ForwardingForm, seconds: float, straight: float | None) -> Iterator[str]:
    """Yield the lines about the routes of a form. `seconds`: its predicted seconds; `straight`:
    those of the best form that does not forward, if devices can send directly."""
    schedule = form.schedule
    why = "Not all receivers are in reach of a sender"
    if straight is not None:
        yield "All receivers are in reach, but direct routes leave links idle, or make links carry"
        yield (
            f"tiles more than once: by the model {1e6 * seconds:.4g} microseconds this way, "
            f"{1e6 * straight:.4g} directly."
        )
        why = "So devices forward them"
    what = ("parts" if form.spreads else "tiles") if form.in_place else "slots"
    rounds = len(schedule.rounds)
    yield f"{why}: in {rounds} rounds a device sends on {len(schedule.moves)} {what},"
    apart = form.spreads and schedule.halves
    ways = f", by halves: {form.share:.2f} of the load" if apart else ""
    yield (
        f"of at most {form.itemsize * form.slot.elements:,} bytes, and receives its tiles from "
        f"{len(schedule.offsets)} devices{ways}."
    )
    if form.lines:
        yield from _about_lines(form)
    if not form.spreads:
        yield from _example(form)


def _about_lines(form: ForwardingForm) -> Iterator[str]:
    for stride, extent in (each for each in form.digits if each[0] in form.lines):
        last = extent // 2 - 1
        yield (
            f"Digit of stride {stride}: a line of {last + 1} devices; 1 to {last} go up it, "
            f"{extent - 1} to {extent - last} down."
        )


def _example(form: ForwardingForm) -> Iterator[str]:
    schedule = form.schedule
    far = max(range(len(schedule.starts)), key=lambda number: len(schedule.path(number)))
    first, second = (schedule.path(far, half) for half in WHOLE)
    apart = [hop for hop, _ in first] != [hop for hop, _ in second]
    half = "The first half of what" if apart else "What"
    yield f"{half} goes to the device {schedule.offsets[far]} farther on, digit by digit:"
    yield from _steps(first)
    if apart:
        yield "The second half:"
        yield from _steps(second)


def _steps(path: Sequence[tuple[Hop, Push]]) -> Iterator[str]:
    for hop, move in path:
        yield (
            f"    from slot {move.here} to slot {move.there} of the device whose digit of stride "
            f"{hop.stride} is {hop.by} higher"
        )
