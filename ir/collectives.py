"""Make the reshard that each named collective performs, given a sharding and mesh axes.

    all_gather       A[I_X, J]          -> A[I, J]      minor-most axes no longer split a dimension
    reduce_scatter   A[I, J] {U_X}      -> A[I_X, J]    partial sums are reduced, then split
    all_reduce       A[I, J] {U_X}      -> A[I, J]      partial sums are reduced
    all_to_all       A[I_X, J]          -> A[I, J_X]    axes move from one dimension to another
    slice            A[I, J]            -> A[I_X, J]    axes split a dimension further
    permute          A[I_X, J] on X     -> A[I_X, J]    shards move along an axis

On shards, the reshard has the same effect as the tiled collective of `jax.lax`. An untiled
collective has an extra dimension with one element per device along the axes. The tensor of its
reshard has this dimension too; on each shard its size is 1, and the caller inserts or drops it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from shardwright.ir import axes as algebra
from shardwright.ir.axes import AxisRef
from shardwright.ir.errors import InputError, one_of
from shardwright.ir.mesh import Mesh
from shardwright.ir.reshard import Reshard
from shardwright.ir.sharding import DimSharding, Sharding

Shape = Iterable[int]
Axes = str | AxisRef | Sequence[str | AxisRef]
Refs = tuple[AxisRef, ...]
Pairs = Iterable[tuple[int, int]]


def all_gather(
    shape: Shape, dtype: str, source: Sharding, axes: Axes, *, dim: int = 0, tiled: bool = True
) -> Reshard:
    """Return the reshard that gathers, on each device, the shards of all devices along `axes`.

    `tiled`: concatenate the shards along the dimension that `axes` split. Untiled shards are
    stacked along a new dimension `dim`; then `axes` must be the only axes that split their
    dimension, and into equal shards. Raises InputError for axes that are not the minor-most of a
    dimension, and for shards that cannot be stacked.
    """
    shape, refs = tuple(shape), _refs(source, axes)
    here = _split_by(source, refs)
    if tiled:
        return _to(shape, dtype, source, {here: _without(source, here, refs)})
    extent, count = shape[here], _count(source, refs)
    if _without(source, here, refs) or extent % count:
        raise InputError(
            "without `tiled`, the given axes alone must split their dimension, into equal shards",
            argument="source",
            got=f"{source}, {extent} elements over {count} devices",
            expected=f"a multiple of {count} elements, split by these axes alone; or tiled",
        )
    cut = (*shape[:here], extent // count, *shape[here + 1 :])
    dims = [replace(d, axes=()) if k == here else d for k, d in enumerate(source.dims)]
    dims.insert(_dim(dim, len(dims) + 1), DimSharding(refs))
    stacked = replace(source, dims=tuple(dims))
    return all_gather((*cut[:dim], count, *cut[dim:]), dtype, stacked, refs)


def reduce_scatter(
    shape: Shape, dtype: str, source: Sharding, axes: Axes, *, dim: int = 0, tiled: bool = True
) -> Reshard:
    """Return the reshard that reduces partial sums along `axes` and splits dimension `dim` further
    along these axes. Untiled, dimension `dim` must have one element per partial sum.

    Raises InputError for axes that are not unreduced, or if an untiled dimension has a different
    extent.
    """
    shape, refs = tuple(shape), _refs(source, axes)
    here = _dim(dim, len(shape))
    _one_each(shape[here], _count(source, refs), tiled)
    left = _less(source, refs)
    return _to(shape, dtype, source, {here: (*source.dims[here].axes, *refs)}, left)


def all_reduce(shape: Shape, dtype: str, source: Sharding, axes: Axes) -> Reshard:
    """Return the reshard that reduces partial sums along `axes`; every device gets the result.

    Raises InputError for axes that are not unreduced.
    """
    return _to(tuple(shape), dtype, source, {}, _less(source, _refs(source, axes)))


def all_to_all(
    shape: Shape, dtype: str, source: Sharding, axes: Axes, *, dim: int, tiled: bool = True
) -> Reshard:
    """Return the reshard after which `axes` split dimension `dim`, as its minor-most axes, and no
    longer the dimension that they split before. Untiled, dimension `dim` must have one element per
    device along `axes`.

    Raises InputError for axes that are not the minor-most of another dimension.
    """
    shape, refs = tuple(shape), _refs(source, axes)
    here, there = _split_by(source, refs), _dim(dim, len(shape))
    if here == there:
        raise InputError(
            "an all-to-all must move axes between two different dimensions",
            argument="dim",
            got=f"{dim}, the dimension that the axes already split",
            expected="a different dimension",
        )
    _one_each(shape[there], _count(source, refs), tiled)
    dims = {here: _without(source, here, refs), there: (*source.dims[there].axes, *refs)}
    return _to(shape, dtype, source, dims)


def slice(shape: Shape, dtype: str, source: Sharding, axes: Axes, *, dim: int = 0) -> Reshard:
    """Return the reshard that splits dimension `dim` further along `axes`. Raise InputError unless
    devices along `axes` are replicas before."""
    shape, refs = tuple(shape), _refs(source, axes)
    here = _dim(dim, len(shape))
    return _to(shape, dtype, source, {here: (*source.dims[here].axes, *refs)})


def permute(shape: Shape, dtype: str, source: Sharding, axes: Axes, *, pairs: Pairs) -> Reshard:
    """Return the reshard that moves shards along one axis: from coordinate i to coordinate j for
    each pair (i, j).

    Raises InputError for several axes, and unless every coordinate occurs once as i and once as j.
    """
    mesh, (ref, *more) = source.mesh, _refs(source, axes)
    size, moves = mesh.full_size(ref), sorted((int(i), int(j)) for i, j in pairs)
    everywhere = list(range(size))
    ends = [i for i, _ in moves], sorted(j for _, j in moves)
    if more or ends != (everywhere, everywhere):
        raise InputError(
            "a permute must be along one axis"
            if more
            else "each coordinate must send once and receive once",
            argument="axes" if more else "pairs",
            got=", ".join(map(str, (ref, *more))) if more else str(moves),
            expected="one axis"
            if more
            else f"each of 0 to {size - 1} once as sender (i) and once as receiver (j)",
        )
    digit = mesh.digit(ref)
    positions = np.arange(mesh.size, dtype=np.int64)
    own = positions // digit.stride % digit.size
    goes = positions + (np.array([j for _, j in moves])[own] - own) * digit.stride
    ids = tuple(int(mesh.device_ids[position]) for position in goes)
    moved = replace(source, mesh=Mesh(dict(mesh.axes), ids))
    return Reshard(tuple(shape), dtype, source, moved)


def _to(
    shape: tuple[int, ...],
    dtype: str,
    source: Sharding,
    dims: dict[int, Refs],
    unreduced: Refs | None = None,
) -> Reshard:
    after = tuple(
        replace(dim, axes=dims[k], priority=dim.priority if dims[k] or dim.open else None)
        if k in dims
        else dim
        for k, dim in enumerate(source.dims)
    )
    left = source.unreduced if unreduced is None else unreduced
    kept = source.operator if left else "sum"
    try:
        target = Sharding(source.mesh, after, (), left, kept)
    except InputError as error:
        raise error.named("axes") from None
    return Reshard(shape, dtype, source, target)


def _refs(source: Sharding, axes: Axes) -> Refs:
    """Return the given axes as canonical references to axes of the sharding's mesh."""
    given = (axes,) if isinstance(axes, str | AxisRef) else tuple(axes)
    if not given:
        raise InputError(
            "at least one axis is needed", argument="axes", got="none", expected='["x"]'
        )
    refs = (AxisRef(axis) if isinstance(axis, str) else axis for axis in given)
    try:
        return tuple(map(source.mesh.canonical, refs))
    except InputError as error:
        raise error.named("axes") from None


def _dim(dim: int, rank: int) -> int:
    if dim in range(rank):
        return dim
    raise InputError(
        "no such dimension",
        argument="dim",
        got=str(dim),
        expected=one_of(tuple(map(str, range(rank)))) if rank else "a tensor of rank 1 or more",
    )


def _count(source: Sharding, refs: Refs) -> int:
    return math.prod(map(source.mesh.full_size, refs))


def _one_each(extent: int, count: int, tiled: bool) -> None:
    if tiled or extent == count:
        return
    raise InputError(
        "without `tiled` the dimension must have one element for each device along the axes",
        argument="shape",
        got=f"{extent} elements for {count} devices",
        expected=f"{count} elements, or tiled",
    )


def _split_by(source: Sharding, refs: Refs) -> int:
    """Return the dimension whose minor-most axes are `refs`, in this order. Raise InputError if
    there is none."""
    for here in range(source.rank):
        if _left(source, here, refs) is not None:
            return here
    raise InputError(
        "the axes must be the last axes of a dimension",
        argument="axes",
        got=f"{', '.join(map(str, refs))}, for {source}",
        expected='"y", or "x" and "y", if a dimension has {"x", "y"}',
    )


def _without(source: Sharding, here: int, refs: Refs) -> Refs:
    left = _left(source, here, refs)
    assert left is not None  # `_split_by` found the dimension
    return left


def _left(source: Sharding, here: int, refs: Refs) -> Refs | None:
    """Return the axes of dimension `here` without `refs`, its minor-most axes, or None if its
    minor-most axes are not `refs`."""
    left = list(source.dims[here].axes)
    for ref in reversed(refs):
        if not left or left[-1].name != ref.name:
            return None
        size = source.mesh.axis_size(ref.name)
        low, high = algebra.borders(left.pop(), size)
        start, end = algebra.borders(ref, size)
        if end != high or start < low or start % low:
            return None
        if start > low:
            left.append(algebra.between(ref.name, low, start, size))
    return tuple(left)


def _less(source: Sharding, refs: Refs) -> Refs:
    """Return the unreduced axes without `refs`. Raise InputError for an axis that is not
    unreduced."""
    for ref in refs:
        if ref not in source.unreduced:
            raise InputError(
                "the axes to reduce must be unreduced in the source",
                argument="axes",
                got=f"{ref}, for {source}",
                expected="axes that the source lists in unreduced={…}",
            )
    return tuple(ref for ref in source.unreduced if ref not in refs)
