"""One module of one bundle: run as it is, or, if its tensor is too large, on a smaller twin."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

from shardwright.codegen.backends import BACKENDS
from shardwright.codegen.bundle import Bundle, emit_described
from shardwright.codegen.describe import Description
from shardwright.codegen.verify.agreement import disagreement
from shardwright.codegen.verify.case import Case
from shardwright.codegen.verify.pool import Runner
from shardwright.codegen.verify.report import Report
from shardwright.codegen.verify.twin import is_too_large, twin
from shardwright.ir.reshard import Reshard


def report(description: Description, module: Path, runner: Runner, folder: Path) -> Report:
    """The verdict on a module; `folder` is where the module of a twin may be written."""
    case = Case.of(description.reshard(), description.name, module.stem, module)
    if not is_too_large(case.shape):
        return runner.run(case)
    start = time.perf_counter()
    result = _large(description, case, runner, folder)
    return dataclasses.replace(result, seconds=time.perf_counter() - start)


def _large(description: Description, case: Case, runner: Runner, folder: Path) -> Report:
    """The module at full size without moving anything, then its twin's module in full."""
    full = runner.run(dataclasses.replace(case, execute=False))
    if full.verdict != "ok":
        return full
    fault = _static_fault(description, case)
    if fault:
        return dataclasses.replace(full, verdict="failed", detail=fault, checks=())
    checks = (*full.checks, "plan", "check")
    small = twin(description.reshard(), case.source, case.target)
    name = "x".join(map(str, small.shape))
    if is_too_large(small.shape):
        detail = f"not run: its smallest twin, {name}, is too large too; {_FULL_SIZE}"
        return dataclasses.replace(full, verdict="skipped", detail=detail, checks=checks)
    result = runner.run(_twin_case(description, case, small, folder))
    if result.verdict != "ok":
        return dataclasses.replace(result, detail=f"twin {name}: {result.detail}")
    checks = tuple(dict.fromkeys((*checks, *result.checks)))
    return dataclasses.replace(result, detail=f"twin {name}; {_FULL_SIZE}", checks=checks)


_FULL_SIZE = "constants, index functions, plan and text checked at full size"


def _static_fault(description: Description, case: Case) -> str:
    """What is wrong with the plan, or with the module's text, at full size."""
    bundle = emit_described(description)
    fault = disagreement(bundle.plan.transfers(), case.source, case.target, case.shape)
    if fault:
        return f"plan: {fault}"
    if case.module.read_text(encoding="utf-8") != _text(bundle, description, case.backend):
        return "not what would be emitted now: `shardwright check` shows the difference"
    return ""


def _twin_case(description: Description, case: Case, small: Reshard, folder: Path) -> Case:
    """Emit the twin's module and say what it must be."""
    home = folder / case.backend / case.name
    home.mkdir(parents=True, exist_ok=True)
    module = home / case.module.name
    shrunk = dataclasses.replace(description, shape=small.shape)
    module.write_text(_text(emit_described(shrunk), shrunk, case.backend), encoding="utf-8")
    return Case.of(small, case.name, case.backend, module)


def _text(bundle: Bundle, description: Description, backend: str) -> str:
    """The text of a module as it would be emitted now."""
    text: str = BACKENDS[backend].render(bundle.plan, description.command())
    return text
