"""JAX collectives as Python expressions: the arguments after the axis names."""

from __future__ import annotations

from collections.abc import Sequence

from shardwright.ir.axes import axes_text

PLACES = {
    "all_gather": ("axis",),
    "psum_scatter": ("scatter_dimension",),
    "all_to_all": ("split_axis", "concat_axis"),
}
"""The parameters of collectives that name the dimensions along which shards are cut or joined."""


def tiled(op: str, *dims: int) -> list[str]:
    """Return the last arguments of a collective along existing dimensions of shards.

    >>> tiled("all_to_all", 1, 0)
    ['split_axis=1', 'concat_axis=0', 'tiled=True']
    """
    places = zip(PLACES[op], dims, strict=True)
    return [*(f"{name}={dim}" for name, dim in places), "tiled=True"]


def gather_call(given: str, axes: Sequence[str], dim: int, checked: bool) -> tuple[str, list[str]]:
    """Return an all-gather of shards, joined along a dimension.

    Under `check_vma` (`checked`) the result is declared equal on all devices, and JAX takes each
    device's gradient as the whole gradient. Otherwise each device has one term of the gradient, and
    JAX must add the terms.
    """
    ends = ['to="invarying"'] if checked else []
    return "lax.all_gather", [given, axes_text(axes), *tiled("all_gather", dim), *ends]
