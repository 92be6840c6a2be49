"""The process that runs compilers: jobs as JSON on stdin, one line of JSON on stdout for each.

Started by `process` with the arguments LOG SECONDS and the environment that the compiler needs.
What modules and compilers print goes to the file LOG. A job that takes longer
than SECONDS ends the process.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import re
import sys
from dataclasses import asdict
from functools import cache
from pathlib import Path
from types import ModuleType

from shardwright.codegen.backends import registry
from shardwright.codegen.backends.contract import NAMES
from shardwright.codegen.compile.job import Job, from_json
from shardwright.codegen.verify import worker as verifier
from shardwright.codegen.workers.process import only_sources, own_stdout
from shardwright.ir.errors import InputError

LONGEST = 200  # characters of a compiler's message that are shown
# What compilers say before they say what is wrong.
_PREAMBLE = re.compile(
    "(INTERNAL: |INVALID_ARGUMENT: |Mosaic failed to compile TPU kernel: |Pallas encountered an "
    r"internal verification error.*Error details: |RET_CHECK failure \([^)]*\) )*"
)


def main(log: Path, limit: float) -> None:
    """Answer all jobs, in order."""
    answers = own_stdout(log)
    for job in from_json(sys.stdin.read()):
        # A compiler that hangs does not return to Python: a thread of C's ends the process.
        faulthandler.dump_traceback_later(limit, exit=True)
        answer = _answer(job)
        faulthandler.cancel_dump_traceback_later()
        answers.write(json.dumps(answer) + "\n")


def _answer(job: Job) -> dict[str, object]:
    compiler = importlib.import_module(f"shardwright.codegen.backends.{job.backend}.compile.run")
    only_sources()
    compiled = compiler.compile_xla if job.what == "xla" else compiler.compile_module
    try:
        module = _module(job.module)
        _check_names(module, job)
        return {"code": asdict(compiled(module, job))}
    except InputError as error:
        return {"error": "; ".join(str(error).splitlines())}
    except Exception as error:
        return {"error": brief(error)}


def _check_names(module: ModuleType, job: Job) -> None:
    """Raise InputError for a module without what its contract asks for."""
    contract = registry.contract(job.emitted)
    names = contract.grouped if job.what == "group" else (*NAMES, *contract.compiled)
    lacking = [name for name in names if name not in vars(module)]
    if lacking:
        raise InputError(f"the module has no {', '.join(lacking)}")


@cache
def _module(path: str) -> ModuleType:
    return verifier.load(Path(path))


def brief(error: Exception) -> str:
    """What a compiler says is wrong, in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    if re.fullmatch(r"at \d+:\d+:", lines[0]):  # Triton: the place, the code, and at last why
        return f"{lines[-1].removesuffix('.')}, {lines[0].removesuffix(':')} of the kernel"
    said = _PREAMBLE.sub("", lines[0], count=1)
    return said if len(said) <= LONGEST else said[: LONGEST - 1] + "…"


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
