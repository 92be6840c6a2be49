"""The bytes that the busiest device receives in whole models: our two modes and other partitioners.

The models are a GPT-2-like step (Adam, clipping, a scan over layers that are recomputed in the
backward pass, dropout), a convolution net, a mixture of experts, and decoding with a cache
(`tests/model_cases.py`). The columns are those of `bench/program_bytes.py`.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from bench.program_bytes import rows

LINE = "from bench.models import measured; measured(%r)"


def measured(column: str, family: str = "") -> None:
    """Print a line of JSON for each model of a family: its name, and the KiB in one column, or
    null."""
    import model_cases

    for case in model_cases.cases():
        if family not in case.name:
            continue
        try:
            found = _bytes(column, case)
        except Exception as error:  # a compiler may raise anything
            print(f"{case.name}: {type(error).__name__}: {error}"[:300], file=sys.stderr)
            found = None
        print(json.dumps([case.name, None if found is None else found / 2**10]), flush=True)


def _bytes(column: str, case: Any) -> int | None:
    import shardwright as sw
    from shardwright.codegen.operations.compile.jit_bytes import (
        devices_of,
        jit_received,
        named_sides,
    )
    from shardwright.codegen.operations.compile.shardy_bytes import shardy_received

    mode = column if column in ("as_shardy", "cheapest") else "as_shardy"
    program = sw.partition(
        case.fn,
        *case.avals,
        mesh=sw.Mesh(case.mesh),
        in_shardings=case.inputs,
        out_shardings=case.outputs,
        mode=mode,
    )
    if mode == column:
        return program.bytes_received
    if column == "shardy":
        sides = named_sides(program, devices_of("cpu", 8))
        return shardy_received(case.fn, case.avals, case.mesh, **sides)
    return jit_received(case.fn, case.avals, program, devices_of(column, 8))


def main() -> None:
    print("| model | as_shardy | cheapest | XLA, CPU | XLA, v5e | Shardy's passes |")
    print("|---|--:|--:|--:|--:|--:|")
    for name, *figures in rows(LINE):
        shown = ("–" if figure is None else f"{figure:,.1f}" for figure in figures)
        print(f"| {name} | {' | '.join(shown)} |", flush=True)
