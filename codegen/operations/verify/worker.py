"""The process that runs emitted modules: it reads one case per line and prints the verdict on its
module.

Started with the argument BACKEND and the environment that the backend needs.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from importlib.metadata import version
from types import ModuleType

from shardwright.codegen import registry
from shardwright.codegen.checks import compare
from shardwright.codegen.checks.case import Case, GroupCase, case_of
from shardwright.codegen.checks.compare import MismatchError
from shardwright.codegen.checks.load import load
from shardwright.codegen.checks.matmul_case import MatmulCase
from shardwright.codegen.checks.model_case import ModelCase
from shardwright.codegen.checks.relayout_case import RelayoutCase
from shardwright.codegen.checks.report import BY_DEFINITION
from shardwright.codegen.checks.workers.serve import Answer, serve
from shardwright.codegen.operations.verify.cover import covered, covered_group
from shardwright.codegen.operations.verify.exported import Exported
from shardwright.codegen.operations.verify.relayout_tables import followed
from shardwright.codegen.operations.verify.routes import (
    exchanged,
    phases_agree,
    routes,
    says_what_moves,
)
from shardwright.codegen.registry.contracts import NAMES

AnyCase = Case | GroupCase | MatmulCase | RelayoutCase | ModelCase
"""The cases that a line of input can describe."""


def main(backend: str) -> None:
    """Verify the cases on standard input, one per line, with a backend. Print one line of JSON for
    each."""
    serve(lambda: _verifying(backend))


def _verifying(backend: str) -> Answer:
    unfit = _unfit(backend)

    def answer(line: str) -> dict[str, object]:
        start = time.perf_counter()
        found = _failed(unfit) if unfit else _verdict(_runner(backend), plain_case(line))
        return {**found, "seconds": time.perf_counter() - start}

    return answer


def _runner(backend: str) -> ModuleType:
    return importlib.import_module(f"shardwright.codegen.backends.{backend}.verify.run")


def _unfit(backend: str) -> str:
    """Return why nothing can be checked with the installed packages, or "". Either an interface is
    missing on which a backend's checks depend, or the fault planted in every process is not
    found."""
    try:
        missed = "; ".join(_runner(backend).missed())
    except Exception as error:
        missed = brief(error)
    if not missed:
        return ""
    packages = registry.runtime(backend).packages
    versions = " and ".join(f"{name} {version(name)}" for name in packages)
    return f"nothing can be verified with {versions}: {missed}"


def plain_case(line: str) -> AnyCase:
    """Parse a line that the `to_json` of any case wrote."""
    data = json.loads(line)
    if "before" in data:
        return ModelCase.from_data(data)
    if "tensors" in data:
        return RelayoutCase.from_data(data)
    return MatmulCase.from_data(data) if "placements" in data else case_of(line)


def _failed(detail: str, fresh: bool = False) -> dict[str, object]:
    return {"verdict": "failed", "detail": detail, "checks": [], "fresh": fresh}


def _verdict(runner: ModuleType, case: AnyCase) -> dict[str, object]:
    """Run one case. `fresh` in the answer requests a new process, because after an exception the
    state of this one is unknown."""
    try:
        checks = _passed(runner, case)
    except MismatchError as error:
        return _failed(str(error), error.fresh)
    except Exception as error:
        return _failed(brief(error), fresh=True)
    detail = BY_DEFINITION if BY_DEFINITION in checks else ""
    return {"verdict": "ok", "detail": detail, "checks": checks, "fresh": False}


def _passed(runner: ModuleType, case: AnyCase) -> tuple[str, ...]:
    """Return the names of the checks that a module passes. Together they call every function that
    the module exports, unless the module is not executed. Raises MismatchError."""
    module, contract = load(case.module), registry.contract(case.backend)
    compare.names(module, ("__all__",))
    if isinstance(case, ModelCase):
        compare.expect("__all__", module.__all__, ["DATA", "sync"])
        models: tuple[str, ...] = runner.run_model(module, case)
        return models
    if isinstance(case, RelayoutCase):
        compare.expect("RECEIVED", module.RECEIVED, case.received())
        if not case.execute:
            return ("bytes", *followed(module, case))
        exported = Exported(module, contract.exported_by_relayouts)
        checks: tuple[str, ...] = ("bytes", *runner.run_relayout(module, case))
        exported.exercised(module, checks)
        return checks
    if isinstance(case, GroupCase):
        compare.names(module, contract.grouped)
        exported = Exported(module, contract.exported_by_groups)
        moves = runner.run_group if case.execute else covered_group
        checks = moves(module, case)
    elif isinstance(case, MatmulCase):
        compare.names(module, contract.matmul)
        exported = Exported(module, contract.exported_by_matmuls)
        checks = runner.run_matmul(module, case)
    else:
        exported = Exported(module, contract.exported)
        checks = _checks(runner, module, case)
    if case.execute:
        exported.exercised(module, checks)
    return checks


def _checks(runner: ModuleType, module: ModuleType, case: Case) -> tuple[str, ...]:
    contract = registry.contract(case.backend)
    compare.names(module, (*NAMES, *contract.verified))
    compare.constants(module, case)
    compare.index_functions(module, case)
    checks: tuple[str, ...] = ("constants", "index functions")
    if contract.has_phases and len(module._HOST.phases) > 1:
        phases_agree(module._HOST.phases)
        checks += ("transfers",)
    elif says_what_moves(module) and (case.transfers or case.execute):
        (routes if case.transfers else exchanged)(module, case)
        checks += ("transfers",)
    if case.execute:
        moved: tuple[str, ...] = runner.run(module, case)
        return checks + moved
    hosts = module._HOST.phases if contract.has_phases else (module._HOST,)
    inspected: tuple[str, ...] = runner.inspect(module, case)
    return checks + covered(hosts) + inspected


def brief(error: Exception) -> str:
    """Return an exception in one line.

    Runtimes put the traceback of a callback into their error's message. The last line of the
    traceback is the cause; if it is only a name, add the line of code above it.
    """
    lines = [line.strip(" ^~") for line in str(error).splitlines()]
    lines = [line for line in lines if line]
    if not lines:
        return type(error).__name__
    if "Traceback" not in str(error):
        return f"{type(error).__name__}: {lines[0]}"
    return lines[-1] if " " in lines[-1] else f"{lines[-1]}: {lines[-2]}"


if __name__ == "__main__":
    main(sys.argv[1])
