"""The part `sanitize`: small modules under compute-sanitizer, and a planted fault that it must
find."""

from __future__ import annotations

import triton
import triton.language as tl

from bench.gpu_check import cases, products
from bench.gpu_check.home import DRY, HOME, synchronize, torch
from bench.gpu_check.reference import case_of
from bench.gpu_check.values import check_values

ENV = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
"""The setting that disables torch's memory cache. The cache allocates memory between tensors too,
so the sanitizer would accept accesses to it."""

FOUND = 9
"""The exit status of a program in which the sanitizer found errors."""

NAMES = ("transpose_2x3", "uneven_both_sides", "transpose_5x2_uneven", "reduce_scatter_2x4")


def reshards() -> None:
    for bundle in cases.bundles():
        if bundle.name in NAMES:
            found = check_values(bundle.module(), case_of(bundle.reshard), 1, few=True)
            print(bundle.name, found, flush=True)


def matmuls() -> None:
    for side in ("gather", "scatter"):
        extents = (32, 24, 16) if DRY else (256, 128, 256)
        module = products.emitted_matmul(side, extents, 2, side)
        whole, shards = products.operands(module)
        print(products.check_product(module, whole, module.matmul_local(*shards)), flush=True)


@triton.jit
def _write_beyond(out, size: tl.constexpr):
    tl.store(out + tl.arange(0, size), 1)


def planted() -> None:
    """Write twice as many bytes as a tensor has. The sanitizer must find this fault."""
    out = torch.zeros(512, dtype=torch.uint8, device=HOME)
    _write_beyond[(1,)](out, 2 * out.numel())
    synchronize()


WHAT = {"reshards": reshards, "matmuls": matmuls, "planted": planted}
CHECKS = (
    ("memcheck", "reshards", 0),
    ("memcheck", "matmuls", 0),
    ("racecheck", "matmuls", 0),
    *(() if DRY else (("memcheck", "planted", FOUND),)),
)
"""The checks: the tool, the function to run, and the expected exit status."""
