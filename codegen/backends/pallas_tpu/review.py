"""The review page's table of candidate kernel forms for a TPU module."""

from __future__ import annotations

from collections.abc import Iterator

from shardwright.codegen.backends.pallas_tpu.phases import exchanges_of
from shardwright.codegen.backends.pallas_tpu.ring import RingForm
from shardwright.codegen.backends.pallas_tpu.strategy import (
    MARGIN,
    FormChoice,
    choices,
    fastest,
    preferred,
)
from shardwright.codegen.backends.pallas_tpu.timeline import rings_of
from shardwright.ir.plan import DirectPlan, Plan

TITLE = "Forms of the TPU kernel"
SLOWER = f"The chosen form has the fewest lines of those within {MARGIN:.0%} of the fastest."
"""The sentence under the table if a chosen form is not the fastest."""
Row = tuple[str, ...]


def review(plan: Plan) -> tuple[str, tuple[Row, tuple[Row, ...]], str]:
    """Return the table of forms that can move a plan's tiles, as its title, its headings with its
    rows, and a sentence if a chosen form is not the fastest.

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
    kernels = rest if ring is not None else (first, *rest)
    return TITLE, (headings, rows), SLOWER if any(map(_is_slower, kernels)) else ""


def _is_slower(plan: DirectPlan) -> bool:
    every = plan.once(choices)
    return preferred(every).seconds > fastest(every).seconds


def _ring_rows(ring: RingForm | None) -> Iterator[Row]:
    if ring is not None:
        exact = ring.plan.traffic.bound_received_max
        padded = f"{ring.wire_bytes / exact:.3f}" if exact else "-"
        yield f"ring along {', '.join(map(str, ring.refs))} (chosen)", "", padded, *[""] * 5


def _rows(plan: DirectPlan, ring: RingForm | None) -> Iterator[Row]:
    every = plan.once(choices)
    taken, least = preferred(every), fastest(every).seconds
    best = {taken.form.name: taken}
    for choice in sorted(every, key=lambda choice: choice.cost):
        best.setdefault(choice.form.name, choice)
    is_in_its_place = ring is not None and plan is ring.plan
    for choice in best.values():
        is_chosen = choice is taken and not is_in_its_place
        yield *_row(choice, is_chosen), f"{choice.seconds / least:.2f}" if least else "-"


def _row(choice: FormChoice, is_chosen: bool) -> Row:
    """Return the row of a form, except its time."""
    figures = choice.figures
    return (
        f"{choice.form.name} (chosen)" if is_chosen else choice.form.name,
        ", ".join(map(str, choice.form.view)),
        f"{figures.wire_padding:.3f}",
        f"{figures.hbm_factor:.2f}",
        f"{figures.relayout_bytes / figures.hbm_least:.2f}",
        f"{figures.staging_bytes:,}",
        f"{figures.vmem_bytes:,}",
    )
