"""What readers are told of the form of a TPU kernel, in the docstring and on the review page."""

from __future__ import annotations

from collections.abc import Iterator

from shardwright.codegen.backends.pallas_tpu.routed.strategy import Routed
from shardwright.codegen.backends.pallas_tpu.strategy import FormChoice, cheapest, choices
from shardwright.ir.plan import Plan, direct_of

WHAT = {
    "direct": "tiles go by DMA from shard to shard",
    "windows": "chunks of tiles are shifted in VMEM, and put together from a staging area",
    "slots": "XLA packs thin tiles densely into slots, and unpacks them",
    "routed": "tiles go from device to device, in slots that XLA packs and unpacks",
    "spread": "source shards go from device to device, and XLA takes tiles out of them",
}


def form_facts(choice: FormChoice) -> tuple[str, ...]:
    """Return the lines of a module's docstring."""
    figures = choice.figures
    hops = ", every hop counted" if isinstance(choice.form, Routed) else ""
    lines = [
        f"Form: {choice.form.name}; {WHAT[choice.form.name]}.",
        f"On the wire {figures.wire_padding:.3f} times the exact bytes{hops}, "
        f"{figures.wire_max:,} into the busiest device.",
        f"HBM reads and writes {figures.hbm_factor:.2f} times the least possible.",
    ]
    if isinstance(choice.form, Routed):
        lines += _route_facts(choice.form)
    if figures.relayout_bytes:
        more = figures.relayout_bytes / figures.hbm_least
        lines.append(
            f"Where shards lie in memory as XLA lays them out by default: {more:.2f} times more."
        )
    if choice.form.name == "direct" and figures.wire_bytes:
        lines.append("Where the result leaves the program XLA copies it once more.")
    if figures.staging_bytes or figures.vmem_bytes:
        lines.append(
            f"Staging {figures.staging_bytes:,} bytes of HBM, {figures.vmem_bytes:,} of VMEM."
        )
    return tuple(lines)


def _route_facts(form: Routed) -> list[str]:
    schedule = form.schedule
    lines = [
        f"Not all receivers are in reach of a sender: in {len(schedule.rounds)} rounds a device "
        f"sends on {len(schedule.carried)} slots,",
        f"of at most {form.itemsize * form.slot.elements:,} bytes, and gets of "
        f"{len(schedule.offsets)} devices what it wants.",
    ]
    return lines if form.spreads else [*lines, *_example(form)]


def _example(form: Routed) -> Iterator[str]:
    """Yield the way of a piece that makes most hops."""
    schedule = form.schedule
    far = max(range(schedule.starts), key=lambda number: len(schedule.path(number)))
    yield f"What goes to the device {schedule.offsets[far]} farther on, digit by digit:"
    for hop, (here, there) in schedule.path(far):
        yield (
            f"    from slot {here} to slot {there} of the device whose digit of stride "
            f"{hop.stride} is {hop.by} higher"
        )


TITLE = "Forms of the TPU kernel"
Row = tuple[str, ...]


def review(plan: Plan) -> tuple[str, tuple[Row, tuple[Row, ...]]]:
    """Return the forms that can move the tiles of a plan, the best order of dimensions of each:
    a title, a heading and rows; the chosen one first."""
    every = direct_of(plan).once(choices)
    taken = cheapest(every)
    best = {taken.form.name: taken}
    for choice in sorted(every, key=lambda choice: choice.cost):
        best.setdefault(choice.form.name, choice)
    headings = (
        "form",
        "dimensions",
        "wire / exact",
        "HBM / least",
        "relayout",
        "staging B",
        "VMEM B",
        "cost",
    )
    return TITLE, (headings, tuple(_row(choice, taken) for choice in best.values()))


def _row(choice: FormChoice, taken: FormChoice) -> Row:
    figures = choice.figures
    return (
        f"{choice.form.name} (chosen)" if choice is taken else choice.form.name,
        ", ".join(map(str, choice.form.view)),
        f"{figures.wire_padding:.3f}",
        f"{figures.hbm_factor:.2f}",
        f"{figures.relayout_bytes / figures.hbm_least:.2f}",
        f"{figures.staging_bytes:,}",
        f"{figures.vmem_bytes:,}",
        f"{choice.cost / taken.cost:.2f}" if taken.cost else "-",
    )
