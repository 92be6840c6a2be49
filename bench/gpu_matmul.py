"""The speed of the GEMM of emitted matmuls on a GPU, as a fraction of `torch.matmul`'s.

`python -m bench gpu_matmul`. Modules are for a mesh of one device, so they exchange nothing. Our
times are those of the multiplying kernel and of two launches at the beginning of a call. Both sides
are replayed as CUDA graphs, from a cold cache, in one run. The goal is 0.8 of torch's rate.
`gpu_check.md` has the ratios on an H200.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

import shardwright as sw
from bench.gpu_copy import Timer, by_graph
from shardwright.codegen.checks.load import load

SHAPES = ((8192, 8192, 1024), (1024, 8192, 8192), (8192, 1024, 8192), (4096, 4096, 4096))
"""Extents (i, j, k): the products that one device computes in the corpus's matmuls, and a square
product."""

DTYPES = ("bfloat16", "float16")


@dataclass(frozen=True)
class Row:
    """A product: the seconds of our GEMM and of torch's. `by`: how our GEMM loads its operands."""

    dtype: str
    extents: tuple[int, int, int]
    ours: float
    torch: float
    by: str

    @property
    def teraflops(self) -> tuple[float, float]:
        """The rates of our GEMM and of torch's, in 1e12 operations per second."""
        i, j, k = self.extents
        return 2e-12 * i * j * k / self.ours, 2e-12 * i * j * k / self.torch


def measured(dtype: str, extents: tuple[int, int, int], device: str, timer: Timer) -> Row:
    """Return the seconds of a product on a device. Raises ValueError for a wrong product."""
    import torch

    i, j, k = extents
    given = sw.Matmul(dtype, ((i, j), "P()"), ((j, k), "P()"), "P()", mesh="x=1")
    with tempfile.TemporaryDirectory() as folder:
        bundle = sw.emit(given, backends=("triton_gpu",), single_file=True)
        path = Path(folder) / "triton_gpu.py"
        path.write_text(bundle.modules("as is measured")[path.name])
        module = load(path)
        a, b = (
            torch.randn(shape, dtype=torch.float32, device=device).to(getattr(torch, dtype))
            for shape in ((i, j), (j, k))
        )
        (found,), wanted = module.matmul_local([a], [b]), torch.matmul(a, b)
        if not torch.allclose(found.float(), wanted.float(), rtol=0.05, atol=0.5):
            raise ValueError(f"{dtype} {extents}: a wrong product")
        (member,) = module._HOST._local((a.device,))
        return Row(
            dtype,
            extents,
            timer(lambda: module.matmul_local([a], [b])),
            timer(lambda: torch.matmul(a, b)),
            "TMA" if member.described else "pointers",
        )


def table(rows: list[Row], where: str) -> Table:
    made = Table(title=f"The GEMM alone on {where} against torch.matmul")
    for column in ("dtype", "i x j x k", "loads by"):
        made.add_column(column)
    for column in ("TFLOP/s", "torch's", "of torch's"):
        made.add_column(column, justify="right")
    for row in rows:
        ours, its = row.teraflops
        shape = " x ".join(map(str, row.extents))
        made.add_row(row.dtype, shape, row.by, f"{ours:.0f}", f"{its:.0f}", f"{ours / its:.2f}")
    return made


def main() -> None:
    """Print the table, or what is missing to measure it."""
    import torch

    if not torch.cuda.is_available():
        print("gpu_matmul: not measured: no GPU")
        return
    rows = [measured(dtype, extents, "cuda", by_graph) for dtype in DTYPES for extents in SHAPES]
    Console().print(table(rows, torch.cuda.get_device_name()))
