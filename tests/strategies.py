"""Random meshes and shardings, and how a test states an exact message."""

from __future__ import annotations

import textwrap
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import strategies as st

from shardwright.ir import AxisRef, DimSharding, InputError, Mesh, Sharding

AXIS_SIZES = (1, 2, 3, 4, 6, 8, 12)


def message(call: Callable[[], object]) -> str:
    """The text of the InputError that a call raises."""
    with pytest.raises(InputError) as caught:
        call()
    return str(caught.value)


def exactly(text: str) -> str:
    """A message written indented in a test."""
    return textwrap.dedent(text).strip("\n")


def divisors(number: int) -> list[int]:
    return [d for d in range(1, number + 1) if number % d == 0]


@st.composite
def meshes(draw: st.DrawFn, most_devices: int = 48) -> Mesh:
    """A mesh of up to three axes; ids in order, from an offset, or permuted with gaps."""
    axes: dict[str, int] = {}
    for name in draw(st.permutations(["x", "y", "long name"])):
        size = draw(st.sampled_from(AXIS_SIZES))
        if len(axes) < 3 and np.prod([size, *axes.values()]) <= most_devices:
            axes[name] = size
    count = int(np.prod([*axes.values(), 1]))
    kind = draw(st.sampled_from(["iota", "offset", "permuted"]))
    if kind == "iota":
        return Mesh(axes)
    start, step = draw(st.integers(0, 5)), draw(st.integers(1, 3))
    ids = [start + step * i for i in range(count)]
    return Mesh(axes, ids if kind == "offset" else draw(st.permutations(ids)))


@st.composite
def cut_axes(draw: st.DrawFn, mesh: Mesh) -> list[AxisRef]:
    """Every axis of a mesh, cut at random into sub-axes (or left whole)."""
    refs: list[AxisRef] = []
    for name, size in mesh.axes:
        pre = 1
        if size == 1 or draw(st.booleans()):
            refs.append(AxisRef(name))
            continue
        while pre < size:
            factor = draw(st.sampled_from([d for d in divisors(size // pre) if d > 1]))
            refs.append(AxisRef(name, pre, factor))
            pre *= factor
    return refs


@st.composite
def fields(
    draw: st.DrawFn, mesh: Mesh, rank: int | None = None
) -> tuple[tuple[DimSharding, ...], tuple[AxisRef, ...], tuple[AxisRef, ...]]:
    """Dims, replicated and unreduced axes of a sharding, not in normal form."""
    rank = draw(st.integers(0, 4)) if rank is None else rank
    places: list[list[AxisRef]] = [[] for _ in range(rank + 3)]
    for ref in draw(st.permutations(draw(cut_axes(mesh)))):
        places[draw(st.integers(0, rank + 2))].append(ref)
    *axes, replicated, unreduced, _unused = places
    dims = []
    for refs in axes:
        is_open = draw(st.booleans())
        allowed = st.none() | st.integers(0, 3) if refs or is_open else st.none()
        dims.append(DimSharding(tuple(refs), is_open, draw(allowed)))
    return tuple(dims), tuple(replicated), tuple(unreduced)


@st.composite
def shardings(draw: st.DrawFn, mesh: Mesh | None = None, rank: int | None = None) -> Sharding:
    mesh = draw(meshes()) if mesh is None else mesh
    return Sharding(mesh, *draw(fields(mesh, rank)))


def values_of(mesh: Mesh, ref: AxisRef) -> np.ndarray:
    """The value of an axis reference at every position, by reshaping the mesh as it is defined."""
    before, after, found = [], [], 0
    for name, size in mesh.axes:
        if name == ref.name:
            pre, k = (1, size) if ref.pre is None or ref.size is None else (ref.pre, ref.size)
            before, found, after = [*before, pre], k, [size // (pre * k)]
        elif found:
            after.append(size)
        else:
            before.append(size)
    shape = (int(np.prod(before)), found, int(np.prod(after)))
    return np.broadcast_to(np.arange(found)[None, :, None], shape).reshape(-1)


def held_by(sharding: Sharding, shape: tuple[int, ...]) -> dict[int, list[tuple[int, int]]]:
    """Device id to its interval of every dimension, by loops over the definition."""
    mesh = sharding.mesh
    held: dict[int, list[tuple[int, int]]] = {device: [] for device in mesh.device_ids}
    for extent, dim in zip(shape, sharding.dims, strict=True):
        parts = int(np.prod([mesh.full_size(ref) for ref in dim.axes] or [1]))
        local = -(-extent // parts)
        for position, device in enumerate(mesh.device_ids):
            index = 0
            for ref in dim.axes:
                index = index * mesh.full_size(ref) + int(values_of(mesh, ref)[position])
            start, stop = min(index * local, extent), min(index * local + local, extent)
            held[device].append((start, stop) if start < stop else (0, 0))
    return held
