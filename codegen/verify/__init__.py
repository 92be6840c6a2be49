"""Run emitted modules against the oracle, here, without an accelerator.

Worker processes import this package too and must not depend on planning or rendering, so functions
import those on demand.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from shardwright.codegen.checks.case import Case
from shardwright.codegen.checks.report import Progress, Report, Verdict
from shardwright.codegen.verify.pool import TIME_LIMIT, run_batch

__all__ = ["Case", "Progress", "Report", "Verdict", "run_batch", "verify"]


def verify(
    paths: str | Path | Sequence[str | Path],
    *,
    backends: Sequence[str] | None = None,
    progress: Progress | None = None,
    time_limit: float = TIME_LIMIT,
) -> tuple[Report, ...]:
    """Run the modules of bundles against the oracle; return one report for each bundle and backend.

    `paths`: roots, which are folders with a manifest, or bundles in a root; `backends`: the
    backends of the modules to run, by default all. Each backend has its own process, which is
    replaced when a case takes longer than `time_limit` seconds. Raises InputError for a path
    without bundles and for an unknown backend.
    """
    from shardwright.codegen.verify.run import verify_bundles

    return verify_bundles(paths, backends, progress, time_limit)
