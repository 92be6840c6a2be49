"""The page of results: the columns and the summary of each part."""

from __future__ import annotations

from collections.abc import Sequence

from bench.parts.attempt import Row
from bench.parts.table import Page, Section

TIMES = """\
Microseconds of a call until its result is ready, host time included; medians of several calls.
`jit`: XLA's own reshard, an identity or a sum of terms with `out_shardings`; `device_put`: JAX's
reshard outside a program. JAX cannot express shardings that do not divide an extent. `over`: their
time over ours, above 1 if ours is faster. GB/s count the bytes into the busiest device."""


def times_summary(rows: Sequence[Row]) -> str:
    """Summarize the ratios of XLA's seconds to ours."""
    ratios = [row["of_jit"] for row in rows if "of_jit" in row]
    said = "XLA's own reshard takes {:.2f} to {:.2f} times as long."
    return said.format(min(ratios), max(ratios)) if ratios else ""


PAGE = Page(
    "JAX modules on TPUs",
    "What `make tpu-check` found; `bench/tpu_check/` says how.",
    (
        Section(
            "values",
            summary=lambda rows: (
                "Every device's part of a reshard is compared bit by bit, padding included."
            ),
        ),
        Section(
            "times",
            TIMES,
            {
                "devices": "devices",
                "ours_us": "us",
                "wire_GBs": "GB/s",
                "jit_us": "jit us",
                "of_jit": "jit over",
                "put_us": "device_put us",
                "of_put": "device_put over",
            },
            times_summary,
        ),
    ),
)
