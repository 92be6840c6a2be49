"""JAX collectives as Python expressions."""

from __future__ import annotations

from collections.abc import Sequence

from shardwright.codegen.ops.text import Call
from shardwright.ir.axes import axes_text

PLACES = {
    "all_gather": ("axis",),
    "psum_scatter": ("scatter_dimension",),
    "all_to_all": ("split_axis", "concat_axis"),
}
"""The parameters of collectives that name the dimensions along which shards are cut or joined."""


def collective_call(op: str, given: str, axes: str, *dims: int, tiled: bool = True) -> Call:
    """Return the call of `lax.op`, along dimensions of shards if it cuts or joins them. `axes`: the
    expression for its axes; `tiled`: whether shards have these dimensions before and after.

    >>> collective_call("all_to_all", "x", '"d"', 1, 0)
    ('lax.all_to_all', ['x', '"d"', 'split_axis=1', 'concat_axis=0', 'tiled=True'])
    """
    places = zip(PLACES.get(op, ()), dims, strict=True)
    ends = [f"{name}={dim}" for name, dim in places]
    return f"lax.{op}", [given, axes, *ends, *["tiled=True"] * (tiled and bool(ends))]


def gather_call(given: str, axes: Sequence[str], dim: int, checked: bool) -> Call:
    """Return an all-gather of shards, joined along a dimension.

    Under `check_vma` (`checked`) the result is declared equal on all devices, and JAX takes each
    device's gradient as the whole gradient. Otherwise each device has one term of the gradient, and
    JAX must add the terms.
    """
    function, arguments = collective_call("all_gather", given, axes_text(axes), dim)
    return function, [*arguments, *['to="invarying"'] * checked]
