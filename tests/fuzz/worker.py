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

import shardwright as sw
from shardwright.codegen.verify.load import load
from shardwright.codegen.verify.worker import brief
from shardwright.codegen.workers.serve import Answer, serve
from shardwright.ir import InputError

from .case import Case
from .job import Job
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
            runner.run(load(_emitted(job, Path(folder))), job.case)
    except (WrongError, InputError) as error:
        kind = "wrong" if isinstance(error, WrongError) else "failed"
        detail = " | ".join(str(error).splitlines())
        return {"verdict": verdict(job.case, kind, detail), "detail": detail, "fresh": False}
    except Exception as error:
        found = verdict(job.case, "failed", f"{type(error).__name__}: {error}")
        return {"verdict": found, "detail": brief(error), "fresh": found == "failed"}
    return {"verdict": "ok", "detail": "", "fresh": False}


def _emitted(job: Job, folder: Path) -> Path:
    """The file of the case's module, its backward beside it, with the job's fault planted."""
    case = job.case
    gradient = getattr(case.use, "gradient", True)
    asked = {"gradient": gradient, "single_file": True}
    bundle = sw.emit(_reshard(case), (case.backend,), case.strategy, case.topology, **asked)
    description = bundle.description(f"case{case.id}")
    planted = False
    for part in bundle.modules(description):
        text = part.text
        if job.fault is not None and part.file == f"{case.backend}.py":
            old, new = job.fault
            planted = text.count(old) >= 1
            text = text.replace(old, new)
        (folder / part.file).write_text(text)
    if job.fault is not None and not planted:
        raise ValueError(f"nowhere to plant a fault: {job.fault[0]!r}")
    return folder / f"{case.backend}.py"


def _reshard(case: Case) -> sw.Reshard:
    """What is asked for, by its texts."""
    source, target = (sw.Mesh.parse(side.mesh) for side in (case.source, case.target))
    return sw.Reshard(
        shape=case.shape,
        dtype=case.dtype,
        source=source.sharding(case.source.sharding),
        target=target.sharding(case.target.sharding),
        source_split=case.source.split,
        target_split=case.target.split,
    )


if __name__ == "__main__":
    main(sys.argv[1])
