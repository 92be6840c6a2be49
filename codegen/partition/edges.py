"""Remove sub-axes from the shardings of arguments and results, because a `NamedSharding` cannot
express them."""

from __future__ import annotations

from dataclasses import replace

from shardwright.ir.program import Program
from shardwright.ir.sharding import DimSharding, Sharding


def gather_sub_axes(program: Program) -> Program:
    """Return the propagated program without sub-axes in the open dimensions of its arguments and
    results.

    Such a dimension loses its first sub-axis and all later axes: the value is gathered over them. A
    closed dimension was stated by the user and stays as it is.
    """
    values = list(program.values)
    for argument in program.body.arguments:
        sharding = without_sub_axes(values[argument].sharding)
        values[argument] = replace(values[argument], sharding=sharding)
    results = tuple(map(without_sub_axes, program.results))
    return replace(program, values=tuple(values), results=results)


def without_sub_axes(sharding: Sharding | None) -> Sharding | None:
    """End every open dimension of a sharding before its first sub-axis. Return None for None."""
    if sharding is None:
        return None
    dims = tuple(map(_whole, sharding.dims))
    return replace(sharding, dims=dims)


def _whole(dim: DimSharding) -> DimSharding:
    whole = next((i for i, ref in enumerate(dim.axes) if ref.size is not None), len(dim.axes))
    return replace(dim, axes=dim.axes[:whole]) if dim.open else dim
