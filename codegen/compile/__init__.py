"""Compile emitted modules with the real compilers, here, without an accelerator.

Worker processes import this package too and must not depend on bundles, so functions import those
on demand.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from shardwright.codegen.checks.compiled.report import (
    CompileReport,
    GpuCode,
    Outcome,
    Progress,
    TpuCode,
    Verdict,
)

__all__ = [
    "TIME_LIMIT",
    "CompileReport",
    "GpuCode",
    "Outcome",
    "Progress",
    "TpuCode",
    "Verdict",
    "compile_bundles",
]

TIME_LIMIT = 600.0
"""Default time limit, in seconds, for compiling one program."""


def compile_bundles(
    paths: str | Path | Sequence[str | Path],
    targets: Iterable[str],
    *,
    save: str | Path | None = None,
    xla: bool = True,
    progress: Progress | None = None,
    time_limit: float = TIME_LIMIT,
) -> tuple[CompileReport, ...]:
    """Compile the modules of bundles for TPU topologies and GPU architectures.

    `paths`: roots, which are folders with a manifest, or bundles in a root. There is one report for
    each bundle and target, in this order. For a TPU topology the Pallas module is compiled, with
    its meshes on the first devices, and unless `xla` is false XLA's own reshard as well; for a GPU
    architecture, the Triton module. A tensor too large for a device fails before compiling. `save`:
    a folder for the results, `save/bundle/target.*`. Raises InputError for a path without bundles,
    an unknown target or a missing compiler (argument "targets"), and a folder that cannot be
    written or would get two bundles of one name (argument "save").
    """
    from shardwright.codegen.compile.run import compiled

    listed = [paths] if isinstance(paths, str | Path) else paths
    return compiled(
        listed, targets, None if save is None else Path(save), xla, progress, time_limit
    )
