"""The module of a relayout, run as it is, or that of its twin if it is too large."""

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
"""Most elements of a relayout that is moved here."""


def report_relayout(
    description: RelayoutDescription, backend: str, module: Path, runner: Runner
) -> Report:
    """Return the verdict on a module; of too large a relayout that on its twin's module, and of too
    many devices that on its tables, where the module is what would be emitted now."""
    given, name = (description.name, backend, description.devices), description.name
    relayout, few = description.relayout(), description.devices <= MAX_DEVICES
    if few and _elements(relayout) <= MOST_ELEMENTS:
        return runner.run(RelayoutCase.of(relayout, name, backend, module))
    smaller = twin(relayout) or relayout
    if _elements(smaller) > MOST_ELEMENTS or _stored(smaller) > 4 * MOST_ELEMENTS:
        why = f"{_elements(relayout):,} elements, at most {MOST_ELEMENTS:,} are moved here"
        return Report(*given, "skipped", f"not run: {why}, and there is no twin")
    if _text(relayout, backend, name) != module.read_text(encoding="utf-8"):
        return Report(*given, "failed", "too large to run, and not what would be emitted now")
    with tempfile.TemporaryDirectory() as folder:
        bundle = Path(folder) / "twins" / name
        emit_relayout(smaller, (backend,)).write(bundle)
        path = bundle / f"{backend}.py"
        report = runner.run(RelayoutCase.of(smaller, name, backend, path, few))
    shapes = ", ".join(
        f"{n} {'x'.join(map(str, each))}" for n, each in smaller.source.tensors.items()
    )
    said = "on a twin" if few else f"its tables, of {description.devices} devices, on a twin"
    return replace(report, detail=report.detail or f"{said}: {shapes}")


def _stored(relayout: Relayout) -> int:
    """Return how many elements devices store before and after."""
    return sum(
        math.prod(buffer.shape(position))
        for side in (relayout.source, relayout.target)
        for buffer in side.bound.values()
        for position in range(side.mesh.size)
    )


def _elements(relayout: Relayout) -> int:
    return sum(math.prod(shape) for shape in relayout.source.tensors.values())


def _text(relayout: Relayout, backend: str, name: str) -> str:
    return emit_relayout(relayout, (backend,)).files(name)[f"{backend}.py"]
