"""The steps of a basis plan as a table, and lines about their predicted time and memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from shardwright.codegen.hardware.presets import idle_text, topology_of
from shardwright.codegen.moves.basis.traffic import moved
from shardwright.codegen.show.tables import Row
from shardwright.ir.plan import SteppedPlan
from shardwright.ir.steps import Step

STEP_HEADINGS: Row = ("", "step", "over", "before", "after", "bytes received", "seconds")


def step_rows(plan: SteppedPlan) -> Iterator[Row]:
    """Yield a row for each step: operation, axes, the shardings before and after, the bytes
    received by the busiest device, and the predicted seconds."""
    assert plan.prediction is not None
    for number, step in enumerate(plan.steps):
        over = ", ".join(f"`{ref}`" for ref in step.ends.axes)
        ends = f"`{step.ends.before}`", f"`{step.ends.after}`"
        received = received_max(step) * plan.reshard.itemsize
        seconds = plan.prediction.step_seconds[number : number + 1]
        cost = f"{sum(seconds):.3g}"
        yield str(number + 1), step.op, over, *ends, f"{received:,}", cost


def received_max(step: Step) -> int:
    """Return the number of elements that the busiest device receives in a step."""
    (devices, elements), _ = moved(step)
    return int(np.bincount(devices, weights=elements).max(initial=0))


def choice_lines(plan: SteppedPlan) -> tuple[str, ...]:
    """Return lines that state the topology used for the prediction, and the memory of the steps."""
    chosen = plan.prediction
    limit = "" if chosen.memory_bytes is None else f", of {chosen.memory_bytes:,} allowed"
    return (
        f"Seconds are predicted for `{chosen.topology}`"
        f"{idle_text(topology_of(chosen.topology), plan.devices)},",
        f"where a device holds at most {chosen.peak_bytes:,} bytes of the tensor{limit}:",
        "before and after a step.",
        *((f"That is more than the larger shard: {chosen.why}.",) if chosen.why else ()),
    )
