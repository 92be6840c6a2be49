"""The module of a relayout, run as it is."""

from __future__ import annotations

import math
from pathlib import Path

from shardwright.codegen.spec.relayout import RelayoutDescription
from shardwright.codegen.verify.case import MAX_DEVICES
from shardwright.codegen.verify.pool import Runner
from shardwright.codegen.verify.relayout_case import RelayoutCase
from shardwright.codegen.verify.report import Report

MOST_ELEMENTS = 1 << 22
"""Of more elements nothing is moved here."""


def report_relayout(
    description: RelayoutDescription, backend: str, module: Path, runner: Runner
) -> Report:
    """Return the verdict on a module; too large a relayout is not run."""
    elements = sum(math.prod(shape) for _, shape in description.tensors)
    why = ""
    if elements > MOST_ELEMENTS:
        why = f"{elements:,} elements, at most {MOST_ELEMENTS:,} are moved here"
    elif description.devices > MAX_DEVICES:
        why = f"{description.devices} devices, at most {MAX_DEVICES} are run here"
    if why:
        given = description.name, backend, description.devices
        return Report(*given, "skipped", f"not run: {why}")
    case = RelayoutCase.of(description.relayout(), description.name, backend, module)
    return runner.run(case)
