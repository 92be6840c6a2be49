"""Matmuls to check: modules, random operands, and the check of a product."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import shardwright as sw
from bench.gpu_check.cases import emitted
from bench.gpu_check.home import HOME, torch
from bench.gpu_check.reference import Tensor
from bench.parts.attempt import Row

WITHIN = 0.05
"""The largest allowed error of an element, relative to the sum of its magnitude and that of a mean
element."""

SHARDINGS = {
    "gather": ('P("x", None)', 'P(None, "x")', 'P(None, "x")'),
    "scatter": ('P(None, "x")', 'P("x", None)', 'P("x", None)'),
    "alone": ("P()", "P()", "P()"),
}
"""The shardings of lhs, rhs and the result for three kinds of moves: lhs is gathered, partial sums
are scattered, or a single device needs no moves."""


def emitted_matmul(
    name: str, extents: tuple[int, int, int], devices: int, moves: str, dtype: str = "bfloat16"
) -> ModuleType:
    """Emit a matmul of extents i, j and k, import its module and return it."""
    i, j, k = extents
    lhs, rhs, out = SHARDINGS[moves]
    matmul = sw.Matmul(dtype, ((i, j), lhs), ((j, k), rhs), out, mesh=f"x={devices}")
    return emitted(matmul, name)


def order(module: ModuleType) -> list[int]:
    """Return the mesh positions, ordered by device id."""
    return sorted(range(len(module.IDS)), key=lambda position: module.IDS[position])


def operands(module: ModuleType, seed: int = 0) -> tuple[list[Tensor], list[list[Tensor]]]:
    """Return two random operands, and the shards of each in the order of device ids."""
    rng, dtype = torch.Generator(device=HOME).manual_seed(seed), getattr(torch, module.DTYPE)
    whole = [
        torch.randn(shape, generator=rng, device=HOME).mul_(0.5).to(dtype)
        for shape in (module.LHS_SHAPE, module.RHS_SHAPE)
    ]
    boxes = module.lhs_box, module.rhs_box
    shards = [
        [part(each, box(position)).contiguous() for position in order(module)]
        for each, box in zip(whole, boxes, strict=True)
    ]
    return whole, shards


def part(tensor: Tensor, box: Sequence[int]) -> Tensor:
    """Return the part of a tensor in a box, given as a flat sequence of low and high for each
    dimension."""
    return tensor[tuple(slice(*ends) for ends in zip(box[::2], box[1::2], strict=True))]


def check_product(
    module: ModuleType,
    whole: Sequence[Tensor],
    results: Sequence[Any],
    positions: Sequence[int] | None = None,
) -> Row:
    """Return the largest relative error of all `results`, as a table row. `results`: one for each
    mesh position in `positions`, by default all positions in the order of device ids. Raises
    ValueError for an error that rounding does not explain."""
    exact, worst = whole[0].float() @ whole[1].float(), 0.0
    for position, got in zip(positions or order(module), results, strict=True):
        right = part(exact, module.out_box(position))
        if got.shape != right.shape:
            raise ValueError(
                f"position {position}: got shape {tuple(got.shape)}, expected {tuple(right.shape)}"
            )
        error = (got.float() - right).abs() / (right.abs() + right.abs().mean())
        if not error.max().item() < WITHIN:  # true for NaN too
            raise ValueError(
                f"position {position}: relative error {error.max().item()}, expected below {WITHIN}"
            )
        worst = max(worst, error.max().item())
    return {"worst_error": round(worst, 5)}
