"""The docstring of a module for a plan of several steps."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from shardwright.codegen.text.docstring import (
    new_terms,
    range_table,
    read_terms,
    side_lines,
    traffic_lines,
)
from shardwright.codegen.text.python_text import INDENT, WIDTH
from shardwright.ir.exchange import Exchange
from shardwright.ir.plan import Plan
from shardwright.ir.reshard import Reshard

TERMS = "Dimension 0 of the {} stands for its unreduced axes, in the order of the mesh"


def step_facts(
    plan: Plan, ends: Exchange, said: Sequence[str], received: Sequence[int]
) -> tuple[str, ...]:
    """Return docstring lines about layouts, terms, steps, traffic, memory, and the index ranges of
    devices.

    `ends`: the arrays of both sides. `said`, `received`: each step's description, and the bytes
    that its busiest device receives.
    """
    return (
        *side_lines("Source", "d1", str(plan.reshard.source), ends.source, "padded"),
        *side_lines("Target", "d2", str(plan.reshard.target), ends.target, "padded"),
        *_term_lines(plan.reshard),
        "",
        *_step_lines(said, received),
        "",
        *traffic_lines(plan),
        *_memory_lines(plan),
        *range_table(ends),
    )


def _term_lines(reshard: Reshard) -> list[str]:
    source, target = reshard.source, reshard.target
    if reshard.transposed:
        return _transposed_lines(reshard)
    lines = [""] if source.unreduced or target.unreduced else []
    if source.unreduced:
        lines += [f"{TERMS.format('source')}: its", *_source_lines(reshard)]
    if reshard.places:
        lines += textwrap.wrap(f"{TERMS.format('target')}. {new_terms(reshard)}", WIDTH)
    return lines


def _source_lines(reshard: Reshard) -> list[str]:
    if not reshard.adds:
        return ["elements are the terms, and those of the target."]
    operator = reshard.source.operator
    kept = " but along those of the target" if reshard.fate.kept else ""
    if operator == "sum":
        how = f"added up{kept}. Integers wrap; floats are added in an order that XLA chooses."
    else:
        most = {"max": "maximum", "min": "minimum"}[operator]
        how = (
            f"reduced to their {most}{kept}. Of a NaN and a number, and of -0.0 and +0.0, XLA "
            "chooses: on CPU an all-reduce passes over NaN, which a maximum or minimum of two "
            "arrays does not."
        )
    return textwrap.wrap(f"elements are the terms, which are {how}", WIDTH)


def _transposed_lines(reshard: Reshard) -> list[str]:
    lines = [""] if reshard.source.unreduced or reshard.target.unreduced else []
    if reshard.source.unreduced:
        lines += [
            "Dimension 0 of the source stands for its unreduced axes, in the order of the mesh."
        ]
    if reshard.reads_one:
        lines += textwrap.wrap(read_terms(reshard), WIDTH)
    if reshard.fate.new:
        lines += [
            "Dimension 0 of the target stands for its unreduced axes: every term of it is the",
            "tensor, as the cotangent of every term of a sum is that of the sum.",
        ]
    return lines


def _step_lines(said: Sequence[str], received: Sequence[int]) -> list[str]:
    if not said:
        return ["Steps: none, every shard stays as it is."]
    lines = ["Steps, with the bytes that each brings to the busiest device:"]
    for number, (step, nbytes) in enumerate(zip(said, received, strict=True), 1):
        text = f"{number}. {step}; {nbytes} bytes"
        lines += textwrap.wrap(
            text, WIDTH, initial_indent=INDENT, subsequent_indent=2 * INDENT, break_long_words=False
        )
    return lines


def _memory_lines(plan: Plan) -> list[str]:
    expected = plan.prediction
    if expected is None:
        return []
    limit = "" if expected.memory_bytes is None else f" (the limit is {expected.memory_bytes})"
    lines = [
        f"Memory: {expected.peak_bytes} bytes of the tensor on a device at most{limit}, the shards",
        "before and after one step together; what XLA takes within a step is beside that.",
    ]
    return [*lines, *([f"{expected.why}."] if expected.why else [])]
