"""Sharded matmuls for benchmarks: shardings to draw from, and modules written to disk."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path

import shardwright as sw
from shardwright.codegen.text.support import support_files
from shardwright.ir.matmul_plan import MatmulPlan


def shardings(axes: Sequence[str], rank: int = 2) -> list[str]:
    """Return all shardings of a tensor. Each axis splits one dimension or none, and the axes of a
    dimension may be in any order."""
    found = set()
    for count in range(len(axes) + 1):
        for chosen in itertools.permutations(axes, count):
            for cuts in itertools.combinations_with_replacement(range(count + 1), rank - 1):
                ends = (0, *cuts, count)
                parts = (chosen[low:high] for low, high in itertools.pairwise(ends))
                dims = ("{" + ", ".join(f'"{axis}"' for axis in part) + "}" for part in parts)
                found.add(f"[{', '.join(dims)}]")
    return sorted(found)


def write_modules(plans: Iterable[MatmulPlan], root: Path, backend: str = "jax_xla") -> list[Path]:
    """Write a backend's modules of plans below a folder, with the support modules that they import.
    Return their paths."""
    (root / "_support").mkdir(parents=True)
    for file, text in support_files([backend], multiplied=True).items():
        (root / "_support" / file).write_text(text)
    paths = []
    for number, plan in enumerate(plans):
        path = root / f"m{number}" / f"{backend}.py"
        path.parent.mkdir()
        emitted = sw.emit(plan, backends=(backend,)).modules("as measured")
        path.write_text(emitted[path.name])
        paths.append(path)
    return paths
