"""The forms of a TPU kernel on the review page."""

from __future__ import annotations

from collections.abc import Iterator

from shardwright.codegen.backends.pallas_tpu.phases import exchanges_of
from shardwright.codegen.backends.pallas_tpu.strategy import FormChoice, cheapest, choices
from shardwright.ir.plan import DirectPlan, Plan

TITLE = "Forms of the TPU kernel"
Row = tuple[str, ...]


def review(plan: Plan) -> tuple[str, tuple[Row, tuple[Row, ...]]]:
    """Return the forms that can move the tiles of a plan, the best order of dimensions of each:
    a title, a heading and rows; the chosen one first. Of two kernels
    those of the first come first."""
    rows = tuple(row for each in exchanges_of(plan) for row in _rows(each))
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
    return TITLE, (headings, rows)


def _rows(plan: DirectPlan) -> Iterator[Row]:
    """Yield the rows of a kernel."""
    every = plan.once(choices)
    taken = cheapest(every)
    best = {taken.form.name: taken}
    for choice in sorted(every, key=lambda choice: choice.cost):
        best.setdefault(choice.form.name, choice)
    yield from (_row(choice, taken) for choice in best.values())


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
