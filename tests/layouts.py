"""Stored layouts at random, and what the oracle says of them."""

from __future__ import annotations

import math

from hypothesis import strategies as st

from shardwright.codegen.checks.oracle.layouts import Numbers
from shardwright.codegen.checks.relayout_case import StoredSaid
from shardwright.ir.axes import AxisRef
from shardwright.ir.dim_cuts import DimCut
from shardwright.ir.factors import Factors
from shardwright.ir.mesh import Mesh
from shardwright.ir.parts import BufferLayout, Stack, TensorPart
from shardwright.ir.stored import Stored
from shardwright.ir.text.layout_text import parse_layout

MESHES = ({"a": 2, "b": 3}, {"a": 4}, {"a": 2, "b": 2, "c": 2}, {"a": 1}, {"a": 6, "b": 2})


def numbers_of(stored: Stored, buffer: str) -> dict[int, Numbers]:
    """Of each device, the numbers of the elements that it stores in a buffer."""
    return StoredSaid.of(stored).numbers(stored.tensors)[buffer]


@st.composite
def meshes(draw: st.DrawFn) -> Mesh:
    axes = draw(st.sampled_from(MESHES))
    count = math.prod(axes.values())
    start = draw(st.integers(0, 4))
    return Mesh(axes, draw(st.permutations(range(start, start + count))))


@st.composite
def dim_cuts(
    draw: st.DrawFn, extent: int, axes: list[str], mesh: Mesh, *, sub_axes: bool = False
) -> DimCut:
    """How a dimension is cut, along some of the axes, which it takes out of the list."""
    taken = [axes.pop() for _ in range(draw(st.integers(0, min(2, len(axes)))))]
    refs = tuple(AxisRef(name) for name in taken)
    if sub_axes:
        refs = tuple(draw(st.sampled_from(_parts_of(name, mesh.sizes[name]))) for name in taken)
    positions = math.prod(ref.size or mesh.sizes[ref.name] for ref in refs)
    low, high = draw(st.sampled_from([(0, extent), (0, extent), (extent // 3, extent)]))
    window = None if (low, high) == (0, extent) else (low, high)
    inside = high - low
    rule = draw(st.sampled_from(["flat", "sized", "balanced", "nested", "listed", "cover"]))
    into = (
        draw(st.sampled_from([None, positions + 2])) if rule not in ("nested", "listed") else None
    )
    shards = into or positions
    numbers: tuple[int, ...] = ()
    if rule == "sized":
        numbers = (-(-inside // positions) + draw(st.integers(0, 2)),)
        numbers += (draw(st.integers(1, 3)),) * draw(st.integers(0, 1))
    elif rule == "listed":
        inner = st.lists(st.integers(0, inside), min_size=positions - 1, max_size=positions - 1)
        numbers = (0, *sorted(draw(inner)), inside)
    elif rule == "cover":
        block = draw(st.integers(1, 4))
        numbers = (block, inside * block - draw(st.integers(0, block - 1)))
    owner = draw(st.sampled_from(["straight", "straight", "reversed", "table"]))
    entries = st.sampled_from([None, *range(shards)])
    table = tuple(draw(entries) for _ in range(positions)) if owner == "table" else None
    return DimCut(refs, rule, numbers, into, owner == "reversed", table, window)  # type: ignore[arg-type]


def _parts_of(name: str, size: int) -> list[AxisRef]:
    """An axis, and all of its parts of more than one position."""
    counts = [count for count in range(2, size) if size % count == 0]
    befores = ((n, each) for each in counts for n in range(1, size // each + 1))
    parts = (AxisRef(name, n, each) for n, each in befores if size // each % n == 0)
    return [AxisRef(name), AxisRef(name), *parts]


FACTORS = (
    ("(g=2 r) c -> r g c", (8, 5)),
    ("(g=2 h e=2) c -> c (g e) h", (12, 4)),
    ("r c -> c r", (7, 6)),
    ("(g=3 h) (c=2 d) -> g (h c) d", (6, 8)),
)


@st.composite
def buffers(draw: st.DrawFn, mesh: Mesh) -> tuple[dict[str, tuple[int, ...]], BufferLayout]:
    """Tensors, and a buffer of them."""
    axes = draw(st.permutations(mesh.names))
    if draw(st.booleans()):
        text, shape = draw(st.sampled_from(FACTORS))
        part = parse_layout(f"x '{text}'")
        assert isinstance(part, TensorPart)
        factors = part.factors
        assert factors is not None
        dims = []
        for group in factors.after:
            extent = math.prod(sizes(factors, shape)[name] for name in group)
            dims.append(draw(dim_cuts(extent, axes, mesh)) if len(group) == 1 else DimCut())
        return {"x": shape}, TensorPart("x", tuple(dims), factors)
    columns, dim = draw(st.integers(1, 6)), draw(st.sampled_from([0, 1]))
    beside = draw(dim_cuts(columns, axes, mesh))
    shapes: dict[str, tuple[int, ...]] = {}
    parts = []
    through = draw(st.booleans())
    for name in draw(st.lists(st.sampled_from("xyz"), min_size=1, max_size=4)):
        extent = shapes[name][dim] if name in shapes else draw(st.integers(1, 12))
        shapes[name] = (extent, columns) if dim == 0 else (columns, extent)
        along = DimCut() if through else draw(dim_cuts(extent, list(axes), mesh))
        parts.append(TensorPart(name, (along, beside) if dim == 0 else (beside, along)))
    cut = None
    if through:
        total = sum(shapes[part.tensor][dim] for part in parts)
        allowed = dim_cuts(total, axes, mesh).filter(
            lambda each: each.rule != "cover" and each.window is None
        )
        cut = draw(allowed)
    return shapes, Stack(dim, tuple(parts), cut)


def sizes(factors: Factors, shape: tuple[int, ...]) -> dict[str, int]:
    """Of each factor its size."""
    return {
        name: size or extent // math.prod(other for _, other in group if other)
        for group, extent in zip(factors.before, shape, strict=True)
        for name, size in group
    }
