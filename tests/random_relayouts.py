"""Relayouts at random, over the product of all that a side can say."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from layouts import dim_cuts

import shardwright as sw
from shardwright.ir.axes import AxisRef
from shardwright.ir.dim_cuts import DimCut
from shardwright.ir.errors import InputError
from shardwright.ir.factors import Factors
from shardwright.ir.mesh import Mesh
from shardwright.ir.parts import BufferLayout, Stack, TensorPart
from shardwright.ir.relayout import as_reshard
from shardwright.ir.stored import Stored

MESHES = ({"a": 2}, {"a": 3}, {"a": 4}, {"a": 2, "b": 2}, {"a": 2, "b": 3}, {"a": 6}, {"a": 1})
Shapes = dict[str, tuple[int, ...]]


@st.composite
def meshes(draw: st.DrawFn) -> Mesh:
    axes = draw(st.sampled_from(MESHES))
    count, start = math.prod(axes.values()), draw(st.sampled_from([0, 0, 2, 6]))
    return Mesh(axes, draw(st.permutations(range(start, start + count))))


@st.composite
def tensors(draw: st.DrawFn) -> tuple[Shapes, int]:
    """Tensors that differ along a dimension alone, and that dimension."""
    names = draw(st.sampled_from(["x", "xy", "xyz"]))
    rank = draw(st.sampled_from([1, 2, 2, 3]))
    dim = draw(st.integers(0, rank - 1))
    beside = [draw(st.integers(1, 4)) for _ in range(rank - 1)]
    unit = draw(st.integers(1, 3))
    extents = (unit * draw(st.integers(1, 4)) for _ in names)
    return {
        name: (*beside[:dim], extent, *beside[dim:])
        for name, extent in zip(names, extents, strict=True)
    }, dim


@st.composite
def lone_parts(draw: st.DrawFn, tensor: str, shape: tuple[int, ...], mesh: Mesh) -> TensorPart:
    """A buffer of one part, perhaps of factors in any order and grouping."""
    axes = draw(st.permutations(mesh.names))
    if draw(st.booleans()):
        dims = tuple(draw(dim_cuts(extent, axes, mesh, sub_axes=True)) for extent in shape)
        return TensorPart(tensor, dims)
    groups: list[list[tuple[str, int | None]]] = []
    for dim, extent in enumerate(shape):
        sizes: list[int] = []
        while draw(st.booleans()) and len(sizes) < 2:
            left = extent // math.prod(sizes)
            sizes.append(draw(st.sampled_from([n for n in range(1, left + 1) if left % n == 0])))
        groups.append([*((f"f{dim}{i}", size) for i, size in enumerate(sizes)), (f"r{dim}", None)])
    names = draw(st.permutations([name for group in groups for name, _ in group]))
    after: list[list[str]] = []
    for name in names:
        if after and draw(st.integers(0, 3)) == 0:
            after[-1].append(name)
        else:
            after.append([name])
    factors = Factors(tuple(map(tuple, groups)), tuple(map(tuple, after)))
    cuts = []
    for group in factors.axes(shape):
        extent = math.prod(axis.size for axis in group)
        whole = len(group) > 1
        cuts.append(DimCut() if whole else draw(dim_cuts(extent, axes, mesh, sub_axes=True)))
    return TensorPart(tensor, tuple(cuts), factors)


@st.composite
def stacks(draw: st.DrawFn, shapes: Shapes, dim: int, mesh: Mesh) -> Stack:
    """Parts of some of the tensors, one more than once at times, all in rows or all in groups of
    rows; perhaps a cut through all of them."""
    names = draw(st.lists(st.sampled_from(sorted(shapes)), min_size=1, max_size=4))
    rank, axes = len(shapes[names[0]]), draw(st.permutations(mesh.names))
    extents = list(shapes[names[0]])
    unit = math.gcd(*(shapes[name][dim] for name in names))
    factors, at = None, dim
    if draw(st.booleans()):
        count = draw(st.sampled_from([n for n in range(1, unit + 1) if unit % n == 0]))
        sides: list[list[tuple[str, int | None]]] = [[(f"d{each}", None)] for each in range(rank)]
        sides[dim] = [("g", count), ("r", None)]
        order = draw(st.permutations([name for side in sides for name, _ in side]))
        factors = Factors(tuple(map(tuple, sides)), tuple((name,) for name in order))
        sizes = {f"d{each}": extent for each, extent in enumerate(extents)} | {"g": count}
        at, extents = order.index("r"), [sizes.get(name, 0) for name in order]
    beside = [
        DimCut() if place == at else draw(dim_cuts(extent, axes, mesh, sub_axes=True))
        for place, extent in enumerate(extents)
    ]
    through, parts, total = draw(st.booleans()), [], 0
    for name in names:
        along = shapes[name][dim] // (count if factors else 1)
        total += along
        cut = DimCut() if through else draw(dim_cuts(along, list(axes), mesh, sub_axes=True))
        parts.append(TensorPart(name, (*beside[:at], cut, *beside[at + 1 :]), factors))
    if not through:
        return Stack(at, tuple(parts))
    allowed = dim_cuts(total, axes, mesh, sub_axes=True).filter(
        lambda each: each.rule != "cover" and each.window is None
    )
    return Stack(at, tuple(parts), draw(allowed))


@st.composite
def sides(draw: st.DrawFn, shapes: Shapes, dim: int, mesh: Mesh) -> Stored:
    """Buffers of tensors; those that have elements on no device have a buffer more."""
    buffers: dict[str, BufferLayout | str] = {}
    if draw(st.booleans()):
        buffers["stack"] = draw(stacks(shapes, dim, mesh))
    for name, shape in shapes.items():
        if not buffers or draw(st.booleans()):
            buffers[f"{name}/part"] = draw(lone_parts(name, shape, mesh))
    spare = draw(st.sampled_from(["", f"[{{{mesh.names[-1]}}} balanced]"]))
    while True:
        try:
            return Stored(mesh, shapes, buffers, "int16")
        except InputError as error:
            found = re.search(r" of (\w) on no device", str(error.got))
            if found is None:
                raise
            buffers[f"{found[1]}/rest"] = f"{found[1]}{spare}"


@st.composite
def sharded(draw: st.DrawFn, shapes: Shapes, mesh: Mesh) -> Stored:
    """A tensor cut by whole axes, as under a sharding."""
    ((name, shape),) = shapes.items()
    axes: list[list[AxisRef]] = [[] for _ in shape]
    for axis in draw(st.permutations(mesh.names)):
        at = draw(st.integers(0, len(shape)))
        if at < len(shape):
            axes[at].append(AxisRef(axis))
    part = TensorPart(name, tuple(DimCut(tuple(refs)) for refs in axes))
    return Stored(mesh, shapes, {name: part}, "int16")


@st.composite
def relayouts(draw: st.DrawFn) -> sw.Relayout:
    """Two sides of the same tensors, on one mesh or two; now and then a reshard."""
    mesh = draw(meshes())
    other = draw(st.sampled_from([mesh, draw(meshes())]))
    if draw(st.integers(0, 5)) == 0:
        shape = tuple(draw(st.lists(st.sampled_from([1, 5, 8, 12, 36]), min_size=1, max_size=3)))
        return sw.Relayout(*(draw(sharded({"x": shape}, each)) for each in (mesh, other)))
    shapes, dim = draw(tensors())
    return sw.Relayout(draw(sides(shapes, dim, mesh)), draw(sides(shapes, dim, other)))


def features(relayout: sw.Relayout) -> set[str]:
    """What a relayout has, of what `FEATURES` lists."""
    found = {"two meshes"} if relayout.source.mesh != relayout.target.mesh else {"one mesh"}
    found |= {"a reshard"} if as_reshard(relayout) else set()
    for side in (relayout.source, relayout.target):
        for layout in side.buffers.values():
            found |= {*_of_layout(layout)}
        tensors = [part.tensor for buffer in side.bound.values() for part in buffer.parts]
        found |= {"repeats"} if len(tensors) > len({*tensors}) else set()
    return found


def _of_layout(layout: BufferLayout) -> Iterator[str]:
    yield "stack" if isinstance(layout, Stack) else "part"
    parts = layout.parts if isinstance(layout, Stack) else (layout,)
    through = layout.cut if isinstance(layout, Stack) else None
    if through is not None:
        yield f"{through.rule} through a stack"
    for part in parts:
        if part.factors is not None:
            yield "factors in a stack" if isinstance(layout, Stack) else "factors"
        for cut in part.dims:
            yield from _of_cut(cut)


def _of_cut(cut: DimCut) -> Iterator[str]:
    yield cut.rule
    yield from (name for name in ("window", "table", "into") if getattr(cut, name) is not None)
    if cut.reversed:
        yield "reversed"
    if cut.table is not None and None in cut.table:
        yield "a table with none"
    if cut.rule == "sized":
        yield "padding" if len(cut.numbers) == 1 else "offset"
    if any(ref.size for ref in cut.axes):
        yield "sub-axes"


RULES = ("flat", "sized", "balanced", "nested", "listed")
FEATURES = {
    *RULES,
    *(f"{rule} through a stack" for rule in RULES),
    *("cover", "window", "table", "a table with none", "into", "reversed", "padding", "offset"),
    *("sub-axes", "factors", "factors in a stack", "stack", "part", "repeats"),
    *("one mesh", "two meshes", "a reshard"),
}


def drawn(number: int, count: int = 1) -> list[sw.Relayout]:
    """Relayouts of a seed. The first that Hypothesis gives is left out: at every seed it is the
    simplest of all."""
    found: list[sw.Relayout] = []

    @seed(number)
    @settings(
        max_examples=count + 1,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(relayouts())
    def collect(relayout: sw.Relayout) -> None:
        found.append(relayout)

    collect()
    return found[1 : count + 1]
