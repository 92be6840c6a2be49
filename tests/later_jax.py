"""Emit, run, verify and partition with the Python and jax of another environment: `make later`.

A script without pytest: it needs only what a user of jax has. Exit code 1 at the first failure.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import jax

ROOT = Path(__file__).resolve().parents[1]
BUNDLES = {
    "jax_xla": (
        "transpose_2x3",
        "uneven_both_sides",
        "steps_2x4",
        "gradient_2x4",
        "matmul_book_4x2",
    ),
    "pallas_tpu": (
        *("transpose_2x3", "all_to_all_v5e", "reduce_scatter_ring", "transpose_5x2_uneven"),
        "matmul_gather_kernel",
    ),
}
"""Five bundles of each backend: direct and forwarded tiles, sums, rings, matmuls."""

NOT_RUN = 3
"""The exit status of a self-check of a tensor that is too large to move here."""


def main() -> None:
    """Make every check and say what passed."""
    print(f"Python {sys.version.split()[0]}, jax {jax.__version__}", flush=True)
    _run("-m", "shardwright", "check", cwd=ROOT)
    for backend, names in BUNDLES.items():
        for name in names:
            _run("-m", f"generated.{name}.{backend}", cwd=ROOT, ends=(0, NOT_RUN))
        folders = [str(ROOT / "generated" / name) for name in names]
        _run("-m", "shardwright", "verify", *folders, "--backends", backend, cwd=ROOT)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "program.py").write_text(_program(), encoding="utf-8")
        _run("program.py", cwd=Path(folder))
    print("ok: the files of generated/, their self-checks, verify, and README's program")


def _run(*words: str, cwd: Path, ends: tuple[int, ...] = (0,)) -> None:
    """Run this Python; end with what it printed unless its exit status is one of `ends`."""
    env = {**os.environ, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, *words], cwd=cwd, env=env, text=True, capture_output=True
    )
    if done.returncode not in ends:
        sys.exit(f"{' '.join(words)}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")


def _program() -> str:
    """Return README's program that `sw.partition` makes."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    (found,) = (block for block in blocks if "sw.partition(" in block)
    return str(found)


if __name__ == "__main__":
    main()
