"""The module of a relayout, run as it is, or that of its twin where it is too large."""

from __future__ import annotations

import math
import tempfile
from dataclasses import replace
from pathlib import Path

from shardwright.codegen.emit.relayout import emit_relayout
from shardwright.codegen.spec.relayout import RelayoutDescription
from shardwright.codegen.verify.case import MAX_DEVICES
from shardwright.codegen.verify.pool import Runner
from shardwright.codegen.verify.relayout_case import RelayoutCase
from shardwright.codegen.verify.relayout_twin import twin
from shardwright.codegen.verify.report import Report
from shardwright.ir.relayout import Relayout

MOST_ELEMENTS = 1 << 22
"""Of more elements nothing is moved here."""


def report_relayout(
    description: RelayoutDescription, backend: str, module: Path, runner: Runner
) -> Report:
    """Return the verdict on a module; of too large a relayout that on its twin's module, where the
    module is what would be emitted now."""
    given = description.name, backend, description.devices
    if description.devices > MAX_DEVICES:
        why = f"{description.devices} devices, at most {MAX_DEVICES} are run here"
        return Report(*given, "skipped", f"not run: {why}")
    relayout = description.relayout()
    if _elements(relayout) <= MOST_ELEMENTS:
        return runner.run(RelayoutCase.of(relayout, description.name, backend, module))
    smaller = twin(relayout)
    if smaller is None or _elements(smaller) > MOST_ELEMENTS:
        why = f"{_elements(relayout):,} elements, at most {MOST_ELEMENTS:,} are moved here"
        return Report(*given, "skipped", f"not run: {why}, and there is no twin")
    if _text(relayout, backend, description.name) != module.read_text(encoding="utf-8"):
        return Report(*given, "failed", "too large to run, and not what would be emitted now")
    with tempfile.TemporaryDirectory() as folder:
        bundle = Path(folder) / "twins" / description.name
        emit_relayout(smaller, (backend,)).write(bundle)
        path = bundle / f"{backend}.py"
        report = runner.run(RelayoutCase.of(smaller, description.name, backend, path))
    shapes = ", ".join(
        f"{name} {'x'.join(map(str, shape))}" for name, shape in smaller.source.tensors.items()
    )
    return replace(report, detail=report.detail or f"on a twin: {shapes}")


def _elements(relayout: Relayout) -> int:
    return sum(math.prod(shape) for shape in relayout.source.tensors.values())


def _text(relayout: Relayout, backend: str, name: str) -> str:
    return emit_relayout(relayout, (backend,)).files(name)[f"{backend}.py"]
