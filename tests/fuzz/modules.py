"""The module of a case, as it is emitted, and perhaps with a fault planted in it."""

from __future__ import annotations

from pathlib import Path

import shardwright as sw

from .case import Case
from .job import Job


def emitted(job: Job, folder: Path) -> Path:
    """The file of the case's module, its backward beside it, with the job's fault planted."""
    case = job.case
    gradient = getattr(case.use, "gradient", True)
    asked = {"gradient": gradient, "single_file": True, "features": _features(case)}
    bundle = sw.emit(reshard_of(case), (case.backend,), case.strategy, case.topology, **asked)
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


def _features(case: Case) -> tuple[str, ...]:
    """What the module needs beside what every one has."""
    use = case.use
    wanted = {
        "dtensor": getattr(use, "door", "") == "dtensor",
        "async": getattr(use, "later", False),
        "vmap": getattr(use, "batch", 0) > 0,
    }
    return tuple(name for name, needed in wanted.items() if needed)


def reshard_of(case: Case) -> sw.Reshard:
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
