"""Verify the module of a model: prove its data and, if the model is small, move it."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

from shardwright.codegen.checks.case import MAX_DEVICES
from shardwright.codegen.checks.model_case import ModelCase
from shardwright.codegen.checks.report import Report
from shardwright.codegen.operations.emit.model import DATA_FILE
from shardwright.codegen.operations.emit.model_bundle import plan_described
from shardwright.codegen.operations.verify.pool import Runner
from shardwright.codegen.spec.model import ModelDescription
from shardwright.ir.model_proof import prove
from shardwright.ir.part_digits import ProofError

MOST_ELEMENTS = 1 << 22
"""The most elements of a model to move here."""


def report_model(
    description: ModelDescription, backend: str, folder: Path, runner: Runner
) -> Report:
    """Return the verdict on a module: its data must be proved correct and, unless the model is too
    large or on too many devices, the module must move every element as the oracle does."""
    plan = plan_described(description)
    given = description.name, backend, len(plan.devices)
    try:
        data = json.loads((folder / DATA_FILE).read_text(encoding="utf-8"))
        proof = prove(plan, data)
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        return Report(*given, "failed", f"{DATA_FILE}: {error!r}")
    except ProofError as error:
        return Report(*given, "failed", f"{DATA_FILE}: {error}")
    said = f"{DATA_FILE} proved, {proof.elements:,} elements"
    elements = sum(math.prod(tensor.shape) for tensor in plan.model.tensors.values())
    if elements > MOST_ELEMENTS or len(plan.devices) > MAX_DEVICES:
        most = f"at most {MOST_ELEMENTS:,} on {MAX_DEVICES} devices are moved here"
        return Report(*given, "ok", f"{said}; the module was not run, {most}", checks=("proof",))
    module = folder / f"{backend}.py"
    report = runner.run(ModelCase.of(plan, description.name, backend, module))
    detail = f"{said}; {report.detail}" if report.detail else said
    return replace(report, detail=detail, checks=("proof", *report.checks))
