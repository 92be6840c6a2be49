"""The part `gemm`: emitted matmuls and `torch.matmul`, on one device, and as several ranks on one
GPU."""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator
from functools import partial
from types import ModuleType

from bench.gpu_check import products
from bench.gpu_check.cases import descriptions
from bench.gpu_check.clocks import host_time, kernel_times, timed
from bench.gpu_check.home import DRY, HOME, torch
from bench.parts.attempt import Job, Row

SHAPES = ((8192, 8192, 1024), (1024, 8192, 8192), (8192, 1024, 8192), (4096, 4096, 4096))
"""Extents (i, j, k): the products that one device computes in the corpus's matmuls, and a square
product."""

KERNELS = ("offer", "announce", "pull", "multiply", "add")
"""The kernels of a matmul."""


def rate(i: int, j: int, k: int, seconds: float) -> float:
    """Return the rate of a matmul, in 1e12 floating-point operations per second."""
    return round(2e-12 * i * j * k / seconds, 1)


def alone(extents: tuple[int, int, int]) -> Row:
    """Check and time a matmul on one device, which receives nothing."""
    module = products.emitted_matmul("_".join(map(str, ("alone", *extents))), extents, 1, "alone")
    whole, ((a,), (b,)) = products.operands(module)

    def run() -> list[object]:
        return module.matmul_local([a], [b])

    error = products.check_product(module, whole, run())
    ours, its = timed(run), timed(lambda: torch.matmul(a, b))
    return error | {
        "ours_TFLOPs": rate(*extents, ours),
        "torch_TFLOPs": rate(*extents, its),
        "of_torch": round(its / ours, 2),
        "host_us": round(host_time(run) * 1e6),
    }


def several(name: str) -> Row:
    """Check and time a bundle with all ranks on one GPU, which runs their kernels one after
    another."""
    module = importlib.import_module(f"generated.{name}.triton_gpu")
    whole, shards = products.operands(module)
    for _ in range(3):
        error = products.check_product(module, whole, module.matmul_local(*shards))
    took = kernel_times(lambda: module.matmul_local(*shards))
    row = {f"{kernel}_us": round(took[kernel] * 1e6, 1) for kernel in KERNELS if kernel in took}
    return error | row | _rates(module, took)


def _rates(module: ModuleType, took: dict[str, float]) -> Row:
    box, dtype = module.product_box(0), getattr(torch, module.DTYPE)
    i, j, k = (high - low for low, high in zip(box[::2], box[1::2], strict=True))
    a, b = (torch.randn(shape, device=HOME).to(dtype) for shape in ((i, j), (j, k)))
    its = timed(lambda: a @ b)
    row: Row = {"torch_TFLOPs": rate(i, j, k, its)}
    if "multiply" in took:
        row["ours_TFLOPs"] = rate(i, j, k, took["multiply"])
        row["of_torch"] = round(its / took["multiply"], 2)
    if took.get("pull") and _size(module.lhs_box(0)) < i * j:
        # A device reads and writes the whole lhs that it multiplies, including its own part.
        row["pull_GBs"] = round(2e-9 * i * j * dtype.itemsize / took["pull"])
    return row


def _size(box: tuple[int, ...]) -> int:
    return math.prod(high - low for low, high in zip(box[::2], box[1::2], strict=True))


def jobs() -> Iterator[Job]:
    for extents in [(64, 48, 32)] if DRY else SHAPES:
        yield f"alone, {' x '.join(map(str, extents))}", partial(alone, extents)
    for name in () if DRY else descriptions("lhs"):
        yield name, partial(several, name)
