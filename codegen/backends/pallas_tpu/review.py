"""The review page's table of candidate kernel forms for a TPU module."""

from __future__ import annotations

from collections.abc import Iterator

from shardwright.codegen.backends.pallas_tpu.phases import exchanges_of
from shardwright.codegen.backends.pallas_tpu.ring import RingForm
from shardwright.codegen.backends.pallas_tpu.strategy import FormChoice, cheapest, choices
from shardwright.codegen.backends.pallas_tpu.timeline import rings_of
from shardwright.ir.plan import DirectPlan, Plan

TITLE = "Forms of the TPU kernel"
Row = tuple[str, ...]


def review(plan: Plan) -> tuple[str, tuple[Row, tuple[Row, ...]]]:
    """Return the table of forms that can move a plan's tiles, as its title, its headings and its
    rows.

    Each form has one row, for its best dimension order; the chosen form comes first. If the plan
    has two kernels, the rows of the first kernel come first.
    """
    first, *rest = exchanges_of(plan)
    ring = rings_of(plan) if plan.reshard.adds else None
    rows = (*_ring_rows(ring), *(row for each in (first, *rest) for row in _rows(each, ring)))
    headings = (
        "form",
        "dimensions",
        "wire / exact",
        "HBM / least",
        "relayout",
        "staging B",
        "VMEM B",
        "time",
    )
    return TITLE, (headings, rows)


def _ring_rows(ring: RingForm | None) -> Iterator[Row]:
    if ring is not None:
        exact = ring.plan.traffic.bound_received_max
        padded = f"{ring.wire_bytes / exact:.3f}" if exact else "-"
        yield f"ring along {', '.join(map(str, ring.refs))} (chosen)", "", padded, *[""] * 5


def _rows(plan: DirectPlan, ring: RingForm | None) -> Iterator[Row]:
    every = plan.once(choices)
    taken = cheapest(every)
    best = {taken.form.name: taken}
    for choice in sorted(every, key=lambda choice: choice.rank):
        best.setdefault(choice.form.name, choice)
    is_in_its_place = ring is not None and plan is ring.plan
    yield from (_row(each, taken, is_in_its_place) for each in best.values())


def _row(choice: FormChoice, taken: FormChoice, is_in_its_place: bool) -> Row:
    figures, is_chosen = choice.figures, choice is taken and not is_in_its_place
    return (
        f"{choice.form.name} (chosen)" if is_chosen else choice.form.name,
        ", ".join(map(str, choice.form.view)),
        f"{figures.wire_padding:.3f}",
        f"{figures.hbm_factor:.2f}",
        f"{figures.relayout_bytes / figures.hbm_least:.2f}",
        f"{figures.staging_bytes:,}",
        f"{figures.vmem_bytes:,}",
        f"{choice.seconds / taken.seconds:.2f}" if taken.seconds else "-",
    )
