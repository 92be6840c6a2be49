"""The process that emits and runs cases: one a line of standard input, a verdict a line of output.

Started by `pool` with the argument KIND and the environment that the kind of backend needs. What
modules and runtimes print goes to standard error.
"""

from __future__ import annotations

import importlib
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

from shardwright.codegen.checks.load import load
from shardwright.codegen.checks.workers.serve import Answer, serve
from shardwright.codegen.operations.verify.worker import brief
from shardwright.ir import InputError

from .job import Job
from .modules import emitted
from .refusals import verdict
from .values import WrongError


def main(kind: str) -> None:
    """Serve cases until standard input ends."""
    serve(lambda: _running(kind))


def _running(kind: str) -> Answer:
    runner = importlib.import_module(f".{'torch' if kind == 'torch' else 'jax'}_run", __package__)

    return lambda line: _answer(runner, Job.from_line(line))


def _answer(runner: ModuleType, job: Job) -> dict[str, Any]:
    """The verdict on a case. `fresh`: this process's state is unknown afterwards."""
    try:
        with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
            runner.run(load(emitted(job, Path(folder))), job.case)
    except (WrongError, InputError) as error:
        kind = "wrong" if isinstance(error, WrongError) else "failed"
        detail = " | ".join(str(error).splitlines())
        return {"verdict": verdict(job.case, kind, detail), "detail": detail, "fresh": False}
    except Exception as error:
        found = verdict(job.case, "failed", f"{type(error).__name__}: {error}")
        return {"verdict": found, "detail": brief(error), "fresh": found == "failed"}
    return {"verdict": "ok", "detail": "", "fresh": False}


if __name__ == "__main__":
    main(sys.argv[1])
