"""Compile emitted modules with the real compilers, here, without an accelerator.

A worker process imports this package too, and is to know nothing of bundles: what needs them is
imported when it is called.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from shardwright.codegen.compile.report import (
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
"""Seconds that compiling one program may take, by default."""


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

    `paths` are roots, folders with a manifest, or bundles in one. One report for each bundle and
    target, in this order. A TPU topology takes the Pallas module, whose meshes are laid over its
    first devices, and unless `xla` is false XLA's own reshard beside it; a GPU architecture takes
    the Triton module. What no device of a topology can hold fails before its compiler is asked.
    `save` names a folder for what was compiled: `save/bundle/target.*`. Raises InputError for a
    path without bundles, an unknown target (argument "targets"), a compiler that is not installed
    (the same), and a folder that cannot be written or has to take two bundles of one name (argument
    "save").
    """
    from shardwright.codegen.compile.run import compiled

    listed = [paths] if isinstance(paths, str | Path) else paths
    return compiled(
        listed, targets, None if save is None else Path(save), xla, progress, time_limit
    )
