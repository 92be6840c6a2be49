"""Casts of a kernel in Triton's interpreter beside torch's own; run with TRITON_INTERPRET=1."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from shardwright.codegen.backends.triton_gpu.verify.rounding import rounded_to_nearest

COUNT = 4096
KINDS = {"float8_e4m3fn": tl.float8e4nv, "float8_e5m2": tl.float8e5, "bfloat16": tl.bfloat16}


@triton.jit
def cast(out, x, kind: tl.constexpr, length: tl.constexpr):
    at = tl.arange(0, length)
    tl.store(out + at, tl.load(x + at).to(kind))


def main(name: str) -> None:
    """Print how many values of float32 the kernel casts otherwise than torch, and 7.9 cast."""
    kind = getattr(torch, name)
    magnitudes = torch.logspace(-12, 12, COUNT, base=2)
    x = magnitudes * torch.where(torch.arange(COUNT) % 2 == 0, 1.0, -1.0)
    x[:6] = torch.tensor([7.9, 0.0, float("nan"), 1e30, -1e30, 1e-30])
    out = torch.zeros(COUNT, dtype=kind)
    with rounded_to_nearest():
        cast[(1,)](out, x, KINDS[name], COUNT)
    most = torch.finfo(kind).max
    expected = x.clamp(-most, most).to(kind)
    unequal = ~torch.isclose(out.float(), expected.float(), rtol=0, atol=0, equal_nan=True)
    print(int(unequal.sum()), float(out[0]))
