"""Shard a model's parameters by one rule for all leaves of their tree.

An axis that divides no dimension of a leaf does not split that leaf.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from shardwright.ir.axes import AxisRef
from shardwright.ir.errors import InputError, one_of
from shardwright.ir.mesh import Mesh
from shardwright.ir.sharding import DimSharding, Sharding

Shape = tuple[int, ...]
Split = list[list[str]]  # the axes that split each dimension
Dims = Mapping[str, int | None]


def data_parallel(parameters: Any, mesh: Mesh) -> Any:
    """Return shardings that replicate every parameter."""
    return _mapped(parameters, mesh, lambda path, shape: [[] for _ in shape])


def fsdp(parameters: Any, mesh: Mesh, axis: str) -> Any:
    """Return shardings that split every parameter over `axis`, in the first dimension that the axis
    divides.

    Raises InputError if the mesh lacks `axis`.
    """
    _check(mesh, axis)

    def rule(path: str, shape: Shape) -> Split:
        return _fully_split([[] for _ in shape], shape, mesh, axis)

    return _mapped(parameters, mesh, rule)


def tensor_parallel(parameters: Any, mesh: Mesh, axis: str, dims: Dims | None = None) -> Any:
    """Return shardings that split features over `axis`.

    `dims` maps patterns for the end of a leaf's path to dimensions: `{"w1": 1, "w2": 0}`. A leaf
    whose pattern maps to None, or that no pattern matches, is not split. Without `dims` the first
    dimension of every leaf is split. A dimension that the size of `axis` does not divide is left
    unsplit.

    Raise InputError if the mesh lacks `axis`, or if a leaf lacks the dimension in `dims`.
    """
    _check(mesh, axis)

    def rule(path: str, shape: Shape) -> Split:
        return _by_feature(path, shape, mesh, axis, dims)

    return _mapped(parameters, mesh, rule)


def fsdp_tensor_parallel(
    parameters: Any, mesh: Mesh, data_axis: str, model_axis: str, dims: Dims | None = None
) -> Any:
    """Return the shardings of `tensor_parallel` over `model_axis`, split over `data_axis` in
    addition: in the first unsplit dimension that it divides, otherwise in the split dimension.

    Raises InputError if the mesh lacks an axis, or if a leaf lacks the dimension in `dims`.
    """
    _check(mesh, data_axis, model_axis)

    def rule(path: str, shape: Shape) -> Split:
        split = _by_feature(path, shape, mesh, model_axis, dims)
        return _fully_split(split, shape, mesh, data_axis)

    return _mapped(parameters, mesh, rule)


def _by_feature(path: str, shape: Shape, mesh: Mesh, axis: str, dims: Dims | None) -> Split:
    split: Split = [[] for _ in shape]
    found = 0 if dims is None else _dim_of(path, shape, dims)
    if found is not None and shape and shape[found] % mesh.axis_size(axis) == 0:
        split[found] = [axis]
    return split


def _dim_of(path: str, shape: Shape, dims: Dims) -> int | None:
    """Return the dimension of the last pattern that matches a path, or None if no pattern matches
    or the pattern maps to None.

    Raises InputError if the leaf has no such dimension.
    """
    found = None
    for pattern, dim in dims.items():
        if re.search(rf"(?:^|\W)(?:{pattern})\W*$", path):
            found = dim
    if found is not None and found >= len(shape):
        raise InputError(
            "this leaf has no such dimension",
            argument="dims",
            got=f"dimension {found} of {path}, which has {len(shape)}",
            expected=one_of(map(str, range(len(shape)))) if shape else "None",
        )
    return found


def _fully_split(split: Split, shape: Shape, mesh: Mesh, axis: str) -> Split:
    """Split a leaf over one more axis, in an unsplit dimension if possible. Return the same split
    if the axis can split no dimension."""
    sizes = mesh.sizes
    for whole in (True, False):
        for dim, extent in enumerate(shape):
            parts = sizes[axis]
            for name in split[dim]:
                parts *= sizes[name]
            if whole is not bool(split[dim]) and extent % parts == 0:
                return [*split[:dim], [*split[dim], axis], *split[dim + 1 :]]
    return split


def _mapped(parameters: Any, mesh: Mesh, rule: Callable[[str, Shape], Split]) -> Any:
    from jax.tree_util import keystr, tree_map_with_path

    def leaf(path: Any, array: Any) -> Sharding:
        dims = rule(keystr(path), tuple(array.shape))
        return Sharding(mesh, tuple(DimSharding(_refs(names)) for names in dims))

    return tree_map_with_path(leaf, parameters)


def _refs(names: Sequence[str]) -> tuple[AxisRef, ...]:
    return tuple(map(AxisRef, names))


def _check(mesh: Mesh, *axes: str) -> None:
    for axis in axes:
        if axis not in mesh.names:
            raise InputError(
                "a strategy must split along axes of the mesh",
                argument="axis",
                got=axis,
                expected=one_of(mesh.names),
            )
