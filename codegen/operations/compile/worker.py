"""The process that runs a backend's compiler on emitted modules: it reads one job per line and
prints its outcome.

Started with the argument BACKEND and the environment that the compiler needs.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from types import ModuleType

from shardwright.codegen import registry
from shardwright.codegen.checks.compiled.job import Job
from shardwright.codegen.checks.compiled.report import Code, TpuCode
from shardwright.codegen.checks.load import load
from shardwright.codegen.checks.workers.serve import Answer, serve
from shardwright.codegen.registry.contracts import NAMES
from shardwright.ir.errors import InputError

LONGEST = 200  # characters of a compiler's message to show
# Text that compilers print before the error.
_PREAMBLE = re.compile(
    "(INTERNAL: |INVALID_ARGUMENT: |Mosaic failed to compile TPU kernel: |Pallas encountered an "
    r"internal verification error.*Error details: |RET_CHECK failure \([^)]*\) )*"
)

REFUSED = "total_device_count % num_participants_per_group == 0"
"""XLA's error for a collective over a rectangle of the torus, such as 6 of 8 devices."""

Compiled = Callable[[ModuleType, Job], Code]

_COMPILES = {
    "xla": ("run", "compile_xla"),
    "matmul": ("matmul", "compile_matmul"),
    "x64_matmul": ("matmul", "compile_matmul"),
    "xla_matmul": ("matmul", "compile_xla_matmul"),
}
"""The function that compiles each kind of job other than those of `run.compile_module`: a module in
the backend's `compile` folder, and the name of a function in it."""


def main(backend: str) -> None:
    """Compile the jobs on standard input, one per line, with a backend. Print one line of JSON for
    each."""
    serve(lambda: _compiling(backend))


def _compiling(backend: str) -> Answer:
    home = f"shardwright.codegen.backends.{backend}.compile"

    def answer(line: str) -> dict[str, object]:
        job = Job.from_json(line)
        part, compiles = _COMPILES.get(job.what, ("run", "compile_module"))
        compiled = getattr(importlib.import_module(f"{home}.{part}"), compiles)
        try:
            module = _module(job.module)
            _check_names(module, job)
            code = _code(compiled, module, job)
        except InputError as error:
            return {"error": "; ".join(str(error).splitlines())}
        except Exception as error:
            return {"error": brief(error)}
        return {"kind": type(code).__name__, "code": asdict(code)}

    return answer


def _code(compiled: Compiled, module: ModuleType, job: Job) -> Code:
    """Return the compiler's result for a job. If XLA refuses a module's collectives on the first
    devices of a topology, compile again with the topology's last device in place of the mesh's last
    device.

    Raises InputError if XLA refuses its own program.
    """
    try:
        return compiled(module, job)
    except Exception as error:
        if REFUSED not in str(error):
            raise
    said = (
        f"XLA cannot compile a collective among this mesh's devices, the first of {job.target}, "
        "because their number does not divide the topology's"
    )
    if job.what in ("xla", "xla_matmul"):
        raise InputError(said)
    code = compiled(module, replace(job, aside=True))
    if not isinstance(code, TpuCode):
        return code
    said += "; it was compiled with the topology's last device in place of the mesh's last"
    return replace(code, warning="; ".join(filter(None, (said, code.warning))))


def _check_names(module: ModuleType, job: Job) -> None:
    contract = registry.contract(job.emitted)
    names = (*NAMES, *contract.compiled)
    if job.what in ("group", "matmul", "x64_matmul", "xla_matmul"):
        names = contract.grouped if job.what == "group" else contract.matmul
    lacking = [name for name in names if name not in vars(module)]
    if lacking:
        raise InputError(
            f"the module has no {', '.join(lacking)}",
            expected="the module as `shardwright emit` wrote it",
        )


@cache
def _module(path: str) -> ModuleType:
    return load(Path(path))


def brief(error: Exception) -> str:
    """Return a compiler's error in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    # Triton prints the location, the code, and finally the reason.
    if re.fullmatch(r"at \d+:\d+:", lines[0]):
        return f"{lines[-1].removesuffix('.')}, {lines[0].removesuffix(':')} of the kernel"
    said = _PREAMBLE.sub("", lines[0], count=1)
    return said if len(said) <= LONGEST else said[: LONGEST - 1] + "…"


if __name__ == "__main__":
    main(sys.argv[1])
