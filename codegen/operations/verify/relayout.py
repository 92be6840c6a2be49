"""Verify the module of a relayout: run it or, if it is too large, run its twin's module."""

from __future__ import annotations

import math
import tempfile
from dataclasses import replace
from pathlib import Path

from shardwright.codegen.checks.case import MAX_DEVICES
from shardwright.codegen.checks.relayout_case import RelayoutCase
from shardwright.codegen.checks.report import Report
from shardwright.codegen.operations.emit.relayout import emit_described_relayout, emit_relayout
from shardwright.codegen.operations.emit.relayout_reshard import plan_as_reshard
from shardwright.codegen.operations.emit.reshard import emit_described
from shardwright.codegen.operations.verify import single
from shardwright.codegen.operations.verify.pool import Runner
from shardwright.codegen.operations.verify.relayout_twin import twin
from shardwright.codegen.spec.description import Description
from shardwright.codegen.spec.relayout import RelayoutDescription
from shardwright.ir.relayout import Relayout
from shardwright.ir.reshard import Reshard

MOST_ELEMENTS = 1 << 22
"""The most elements of a relayout to move here."""


def report_relayout(
    description: RelayoutDescription, backend: str, module: Path, runner: Runner
) -> Report:
    """Return the verdict on a module.

    A module that is too large to run must equal a new emission, and its twin is run in its place.
    If there are also too many devices, only the tables of the twin's module are checked, or the
    module of an equivalent reshard is verified.
    """
    given, name = (description.name, backend, description.devices), description.name
    relayout, few = description.relayout(), description.devices <= MAX_DEVICES
    if few and _elements(relayout) <= MOST_ELEMENTS:
        return runner.run(RelayoutCase.of(relayout, name, backend, module))
    moved = None if few else plan_as_reshard(relayout, backend)
    smaller = twin(relayout) or relayout
    too_large = _elements(smaller) > MOST_ELEMENTS or _stored(smaller) > 4 * MOST_ELEMENTS
    if too_large and moved is None:
        why = f"{_elements(relayout):,} elements, at most {MOST_ELEMENTS:,} are moved here"
        return Report(*given, "skipped", f"not run: {why}, and there is no twin")
    if _text(description, backend) != module.read_text(encoding="utf-8"):
        return Report(*given, "failed", "too large to run, and differs from a new emission")
    with tempfile.TemporaryDirectory() as folder:
        if moved is not None:
            return _of_reshard(moved.reshard, description, backend, runner, Path(folder))
        bundle = Path(folder) / "twins" / name
        emit_relayout(smaller, (backend,), gradient=description.gradient).write(bundle)
        path = bundle / f"{backend}.py"
        report = runner.run(RelayoutCase.of(smaller, name, backend, path, few))
    shapes = ", ".join(
        f"{n} {'x'.join(map(str, each))}" for n, each in smaller.source.tensors.items()
    )
    said = "on a twin" if few else f"its tables, of {description.devices} devices, on a twin"
    return replace(report, detail=report.detail or f"{said}: {shapes}")


def _of_reshard(
    reshard: Reshard, relayout: RelayoutDescription, backend: str, runner: Runner, folder: Path
) -> Report:
    given = reshard, relayout.name, (backend,), "direct"
    description = Description.of(*given, gradient=relayout.gradient, single_file=True)
    bundle = folder / "reshards" / relayout.name
    emit_described(description).write(bundle)
    return single.report(description, bundle / f"{backend}.py", runner, folder / "twins")


def _stored(relayout: Relayout) -> int:
    return sum(
        math.prod(buffer.shape(position))
        for side in (relayout.source, relayout.target)
        for buffer in side.bound.values()
        for position in range(side.mesh.size)
    )


def _elements(relayout: Relayout) -> int:
    return sum(math.prod(shape) for shape in relayout.source.tensors.values())


def _text(description: RelayoutDescription, backend: str) -> str:
    bundle = emit_described_relayout(replace(description, backends=(backend,)))
    return bundle.files(description.name)[f"{backend}.py"]
