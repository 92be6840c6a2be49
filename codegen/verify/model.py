"""The data of a model's bundle: proved against its layouts, and moved as it says if it is small."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from shardwright.codegen.emit.model import DATA_FILE
from shardwright.codegen.emit.model_bundle import plan_described
from shardwright.codegen.spec.model import ModelDescription
from shardwright.codegen.verify.report import Report
from shardwright.ir.errors import InputError
from shardwright.ir.model_moves import moved
from shardwright.ir.model_plan import ModelPlan
from shardwright.ir.model_proof import ProofError, prove

MOST_ELEMENTS = 1 << 22
"""Of more elements nothing is moved here."""


def report_model(description: ModelDescription, backend: str, folder: Path) -> Report:
    """Return the verdict on the data that a module reads. The module itself runs where its ranks
    do; its support has tests of its own."""
    plan = plan_described(description)
    given = description.name, backend, len(plan.devices)
    try:
        data = json.loads((folder / DATA_FILE).read_text(encoding="utf-8"))
        proof = prove(plan, data)
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        return Report(*given, "failed", f"{DATA_FILE}: {error!r}")
    except ProofError as error:
        return Report(*given, "failed", f"{DATA_FILE}: {error}")
    checks: tuple[str, ...] = ("proof",)
    if sum(map(_elements, plan.model.tensors.values())) <= MOST_ELEMENTS:
        if fault := _wrong(plan, data):
            return Report(*given, "failed", fault)
        checks = (*checks, "values")
    said = f"{DATA_FILE} proved, {proof.elements:,} elements; the module was not run"
    return Report(*given, "ok", said, checks=checks)


def _elements(tensor: Any) -> int:
    return int(np.prod(tensor.shape, dtype=np.int64))


def _wrong(plan: ModelPlan, data: Mapping[str, Any]) -> str:
    """Return what is wrong where elements are moved that are their own numbers."""
    whole, first = {}, 1
    for name, tensor in plan.model.tensors.items():
        count = _elements(tensor)
        whole[name] = np.arange(first, first + count, dtype=np.int64).reshape(tensor.shape)
        first += count
    before, after = (_stored(plan, whole, end) for end in (0, 1))
    try:
        got = moved(data, before)
    except (InputError, IndexError) as error:
        return str(error)
    for device, buffers in after.items():
        for name, wanted in buffers.items():
            if not np.array_equal(got[device][name], wanted):
                return f"device {device}, buffer {name}: other elements than its layout says"
    return ""


def _stored(
    plan: ModelPlan, whole: Mapping[str, np.ndarray], end: int
) -> dict[int, dict[str, np.ndarray]]:
    """Return what devices store of whole tensors at an end."""
    found: dict[int, dict[str, np.ndarray]] = {}
    for placed in (plan.source, plan.target)[end].place(plan.model):
        stored = placed.stored(plan.model)
        tensors = {str(number): whole[name] for number, name in enumerate(placed.tensors)}
        for position, buffers in stored.shards(tensors).items():
            device = placed.place.devices[position]
            found.setdefault(device, {})[placed.name] = next(iter(buffers.values()))
    return found
