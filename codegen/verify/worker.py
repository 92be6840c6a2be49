"""The process that runs emitted modules: JSON lines in, JSON lines out, one for each case.

Started by `pool` with the arguments BACKEND LOG and the environment that the backend needs. What
modules and runtimes print goes to the file LOG.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
import threading
import time
from importlib.metadata import version
from itertools import count
from pathlib import Path
from types import ModuleType

from shardwright.codegen.backends import registry
from shardwright.codegen.backends.contract import NAMES
from shardwright.codegen.verify import compare
from shardwright.codegen.verify.case import Case, GroupCase, case_of
from shardwright.codegen.verify.compare import MismatchError
from shardwright.codegen.verify.report import BY_DEFINITION
from shardwright.codegen.verify.routes import routes
from shardwright.codegen.workers.process import only_sources, own_stdout

_numbers = count()


def main(backend: str, log: Path) -> None:
    """Serve cases until stdin ends."""
    answers = own_stdout(log)
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    unfit = _unfit(backend)
    only_sources()
    answers.write(json.dumps({"ready": backend}) + "\n")
    for line in sys.stdin:
        start = time.perf_counter()
        case = case_of(line)
        answer = _failed(unfit) if unfit else _verdict(_runner(backend), case)
        answer["seconds"] = time.perf_counter() - start
        answers.write(json.dumps(answer) + "\n")


def _runner(backend: str) -> ModuleType:
    return importlib.import_module(f"shardwright.codegen.backends.{backend}.verify.run")


def _unfit(backend: str) -> str:
    """Why nothing can be checked with what is installed, or the empty string: what a backend's
    checks stand on is gone, or a fault that is planted in every process is not found."""
    try:
        missed = "; ".join(_runner(backend).missed())
    except Exception as error:
        missed = brief(error)
    if not missed:
        return ""
    versions = " and ".join(
        f"{name} {version(name)}" for name in registry.runtime(backend).packages
    )
    return f"nothing can be verified with {versions}: {missed}"


def _failed(detail: str, fresh: bool = False) -> dict[str, object]:
    return {"verdict": "failed", "detail": detail, "checks": [], "fresh": fresh}


def _verdict(runner: ModuleType, case: Case | GroupCase) -> dict[str, object]:
    """Run one case. `fresh` asks for a new process: after an exception state is unknown."""
    try:
        module = load(case.module)
        if isinstance(case, GroupCase):
            compare.names(module, registry.contract(case.backend).grouped)
            checks: tuple[str, ...] = runner.run_group(module, case)
        else:
            checks = _checks(runner, module, case)
    except MismatchError as error:
        return _failed(str(error), error.fresh)
    except Exception as error:
        return _failed(brief(error), fresh=True)
    detail = BY_DEFINITION if BY_DEFINITION in checks else ""
    return {"verdict": "ok", "detail": detail, "checks": checks, "fresh": False}


def _checks(runner: ModuleType, module: ModuleType, case: Case) -> tuple[str, ...]:
    """What a bundle's module passes; a MismatchError for what it does not."""
    contract = registry.contract(case.backend)
    compare.names(module, (*NAMES, *contract.verified))
    compare.constants(module, case)
    compare.index_functions(module, case, contract.jitted)
    checks: tuple[str, ...] = ("constants", "index functions")
    if case.transfers:
        routes(module, case, contract.jitted)
        checks += ("transfers",)
    moved: tuple[str, ...] = (runner.run if case.execute else runner.inspect)(module, case)
    return checks + moved


def load(path: Path) -> ModuleType:
    """Import a module by its path, under a name of its own."""
    if not path.is_file():
        raise MismatchError(f"the module is missing: {path}")
    name = f"emitted_{next(_numbers)}_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise MismatchError(f"{path} is not a Python module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def brief(error: Exception) -> str:
    """An exception in one line.

    The runtimes put the traceback of a callback into the message of the error they raise; what
    happened is its last line, or the code above that if the last line is but a name.
    """
    lines = [line.strip(" ^~") for line in str(error).splitlines()]
    lines = [line for line in lines if line]
    if not lines:
        return type(error).__name__
    if "Traceback" not in str(error):
        return f"{type(error).__name__}: {lines[0]}"
    return lines[-1] if " " in lines[-1] else f"{lines[-1]}: {lines[-2]}"


def _end_with(parent: int) -> None:
    """End this process when its parent has ended, even while a kernel hangs."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
