"""Cached compiler answers: a file for each program, reused while nothing that determines it has
changed."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import sys
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from shardwright.codegen.checks.compiled.job import Job
from shardwright.codegen.checks.compiled.saving import save

VARIABLE = "SHARDWRIGHT_COMPILED"
"""The environment variable that names the cache folder. If it is not set, nothing is cached."""

_COMPILERS = ("jax", "jaxlib", "libtpu", "torch", "triton")
ASKING = (
    *("operations/compile/*.py", "checks/compiled/*.py", "spec/hlo/*.py", "hardware/*.py"),
    *("moves/xla.py", "registry/contracts.py", "backends/*/compile/*.py", "backends/*/contract.py"),
)
"""Shardwright's source files that run compilers and read their output."""
_FLAGS = ("XLA_FLAGS", "LIBTPU_INIT_ARGS", "JAX_ENABLE_X64", "SHARDWRIGHT_FAR_SENDS")


def recall(job: Job) -> dict[str, Any] | None:
    """Return the cached answer to a successful job, or None."""
    path = _path(job)
    try:
        return None if path is None else dict(json.loads(path.read_text("utf-8")))
    except (OSError, ValueError):
        return None


def keep(job: Job, answer: dict[str, Any]) -> None:
    """Cache the answer to a successful job, if the folder can be written. Failed jobs are not
    cached."""
    path = _path(job)
    if path is None or "error" in answer:
        return
    try:
        save(str(path.with_suffix("")), {"json": json.dumps(answer).encode()})
    except OSError:
        return


def _path(job: Job) -> Path | None:
    """Return the path of a job's answer, or None for a job that also saves files."""
    folder = os.environ.get(VARIABLE)
    if not folder or job.files is not None:
        return None
    # The contents of the module's folder determine the answer; its path does not.
    asked = job.to_json().replace(json.dumps(job.module), json.dumps(Path(job.module).name))
    digest = hashlib.sha256(f"{_surroundings()}\n{asked}\n".encode())
    for path in _texts(Path(job.module)):
        digest.update(path.read_bytes())
    return Path(folder) / f"{digest.hexdigest()[:32]}.json"


def _texts(module: Path) -> list[Path]:
    """Return the files of which a module consists: itself, its siblings, and the support
    modules."""
    support = module.parent.parent / "_support"
    found = [*module.parent.glob("*.py"), *support.glob("*.py")]
    return sorted({module, *found} if module.exists() else found)


@cache
def _surroundings() -> str:
    """Return everything else that determines an answer: versions, environment variables, and the
    source files that run compilers."""
    found = [sys.version, *(f"{name}={os.environ.get(name)}" for name in _FLAGS)]
    found += (f"{name} {_version(name)}" for name in _COMPILERS)
    top = Path(str(files("shardwright.codegen")))
    asking = [path for pattern in ASKING for path in sorted(top.glob(pattern))]
    return "\n".join([*found, *(path.read_text("utf-8") for path in asking)])


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "none"
