"""State facts derived from a plan, as lines of an emitted module's docstring."""

from __future__ import annotations

from typing import Literal, assert_never

import numpy as np

from shardwright.ir.algebra.identities import simplify
from shardwright.ir.algebra.index import Index, Value
from shardwright.ir.algebra.printers import PYTHON
from shardwright.ir.dtypes import is_floating
from shardwright.ir.exchange import Exchange
from shardwright.ir.layout import DimLayout, Layout
from shardwright.ir.mesh import AxisRef, Mesh
from shardwright.ir.plan import Plan, SteppedPlan
from shardwright.ir.reshard import Reshard
from shardwright.ir.tiles import DimTiles

# The maximum number of devices whose ranges the docstring lists.
TABLE_DEVICES = 16

Stored = Literal["dense", "padded"]
"""The memory layout of shards that are smaller than the largest."""


def title(plan: Plan) -> str:
    """Return one line: the tensor, the number of devices, and both shardings."""
    return f"{what_moves(plan)}: {plan.reshard.source} -> {plan.reshard.target}."


def what_moves(plan: Plan) -> str:
    """Return the first part of the title: the tensor and the number of devices."""
    shape = ", ".join(map(str, plan.reshard.shape))
    return f"Reshards {plan.reshard.dtype}[{shape}] over {plan.devices} devices"


def tile_lines(exchange: Exchange) -> list[str]:
    """Return lines that state where tiles start and end along each split dimension of the
    tensor."""
    visible = exchange.dims[exchange.source.hidden :]
    lines = [
        f"    {axis}: {_cuts(tiles)}"
        for axis, tiles in enumerate(visible)
        if max(tiles.source.parts, tiles.target.parts) > 1
    ]
    said = "Tiles are the intersections of source and target shards. Along dimension"
    return [said, *lines] if lines else []


def mesh_text(mesh: Mesh) -> str:
    """Return the text of a mesh, omitting its device ids."""
    text = ", ".join(f'"{name}"={size}' for name, size in mesh.axes)
    return f"<[{text}]>" + ("" if mesh.is_iota else " (device ids below)")


def coordinates(mesh: Mesh) -> Value:
    """Return the position in a mesh as an expression in one index per axis."""
    position: Value = 0
    for name, size in mesh.axes:
        stride = mesh.digit(AxisRef(name)).stride
        if size > 1:
            position = position + Index(name, size) * stride
    return position


def side_lines(
    side: str, device: str, sharding: str, layout: Layout, stored: Stored | None = None
) -> list[str]:
    """Return lines about one side: its sharding, its shards, and the tensor element at each local
    index. `stored`: the memory layout of short shards, None if the reader decides it.
    """
    shape = " x ".join(map(str, layout.local_shape)) or "one element"
    position = coordinates(layout.mesh)
    names = ", ".join(name for name, _ in layout.mesh.axes)
    dims = layout.dims[layout.hidden :]
    local = ", ".join(f"k{axis}" for axis in range(len(dims)))
    ranges = [_start(dim, position, axis) for axis, dim in enumerate(dims)]
    return [
        f"{side}: {sharding} on {mesh_text(layout.mesh)}, shards of {shape}.",
        f"    {device}({names})[{local}] -> t[{', '.join(ranges)}]",
        *_uneven(layout, stored),
    ]


def _start(dim: DimLayout, position: Value, axis: int) -> str:
    index = dim.index(position)
    low = simplify(index * dim.size if dim.is_flat else dim.interval(index)[0])
    return PYTHON.text(low + Index(f"k{axis}", dim.size))


def _uneven(layout: Layout, stored: Stored | None) -> list[str]:
    dims = layout.dims[layout.hidden :]
    cut = [str(axis) for axis, dim in enumerate(dims) if not dim.is_even]
    if not cut:
        return []
    names = f"{', '.join(cut[:-1])} and {cut[-1]}" if len(cut) > 1 else cut[0]
    said = f"    The last shards along dimension{'s' * (len(cut) > 1)} {names} are short or empty"
    match stored:
        case None:
            return [f"{said}."]
        case "dense":
            return [f"{said}, and are stored without padding{_shortest(layout)}."]
        case "padded":
            whole = " x ".join(map(str, layout.local_shape))
            return [f"{said}; they are padded at the end to {whole}."]
        case _:
            assert_never(stored)


def _shortest(layout: Layout) -> str:
    """Describe the smallest non-empty shard: its device and extents; "" if all shards are equal."""
    boxes = layout.boxes()[:, layout.hidden :]
    extents = boxes[:, :, 1] - boxes[:, :, 0]
    elements = np.where(extents.min(axis=1) > 0, extents.prod(axis=1), extents.prod(axis=1).max())
    place = int(elements.argmin())
    if elements[place] == elements.max():
        return ""
    shape = " x ".join(map(str, extents[place].tolist()))
    return f": device {layout.mesh.device_ids[place]} has {shape}"


def _cuts(tiles: DimTiles) -> str:
    sizes = f"shards of {tiles.source.size} and {tiles.target.size}"
    cuts = f"cuts are at multiples of {tiles.grain} and repeat every {tiles.period}"
    if tiles.period is None:
        cuts = f"cuts are nested, at multiples of {tiles.grain}"
    return f"{sizes}; {cuts}"


def reduced_lines(exchange: Exchange, reshard: Reshard) -> list[str]:
    """Return lines about a reduction: the number of terms, their order, and the dtype in which
    they are accumulated; then sentences about terms without a value and terms that are not read,
    if any."""
    said = [text for text in (new_terms(reshard), read_terms(reshard)) if text]
    if exchange.operator is None:
        return said
    axes = ", ".join(f"{ref}" for ref in reshard.fate.reduced)
    made = {"sum": "adds them up", "max": "takes their maximum", "min": "takes their minimum"}
    is_narrow = is_floating(reshard.dtype) and reshard.itemsize < 4
    how = ", as float32 that is rounded once" if is_narrow and exchange.operator == "sum" else ""
    return [
        f"A value has {exchange.terms} terms, along {axes}. A receiver {made[exchange.operator]}"
        f" in the order of their coordinates{how}.",
        *said,
    ]


def new_terms(reshard: Reshard) -> str:
    """State which term along new unreduced axes has the value; "" if there are no such axes."""
    if not reshard.places:
        return ""
    new = ", ".join(map(str, reshard.fate.new))
    others = {"sum": "zero", "max": "the lowest value", "min": "the highest value"}
    other = others[reshard.target.operator]
    return f"Along {new} the term of coordinate 0 has the value, every other term {other}."


def read_terms(reshard: Reshard) -> str:
    """State which single term of a cotangent is read; "" if all terms are read."""
    if not reshard.reads_one:
        return ""
    axes = ", ".join(map(str, reshard.fate.reduced))
    return (
        f"Along {axes} only the term of coordinate 0 is read: it came from the value, and the "
        "other terms did not."
    )


def part_lines(plan: SteppedPlan, ends: Exchange) -> list[str]:
    """Describe a plan of two exchanges: the part that each device reduces, and the reason."""
    parts = plan.steps[0].ends.after
    shape = " x ".join(map(str, parts.local_shape(plan.reshard.shape)))
    count = ends.target.replicas
    why = "Moving values takes fewer bytes than moving terms:"
    if count > 1:
        why = f"A target shard has {count} replicas, too large for each to reduce all of it:"
    return [f"{why} each device reduces a part, {parts}, of {shape}; then parts are copied."]


def senders(exchange: Exchange) -> list[str]:
    """Return lines that state which replica sends a tile."""
    if exchange.source.replicas == 1:
        tile = "tile" if exchange.operator is None else "term of a tile"
        return [f"Each {tile} has one holder, which sends it."]
    count = exchange.source.replicas
    if exchange.rule.kind == "own":
        return [
            f"Of the {count} holders of a tile, the sender is the one whose coordinates along the "
            "axes that do not split the source equal the receiver's.",
        ]
    pieces = exchange.rule.pieces
    if pieces == 1:
        return [f"The {count} holders of a tile take turns over its receivers."]
    return [
        f"A tile is cut into {pieces} pieces along dimension {exchange.rule.cut}; its {count}"
        " holders share the pieces and",
        "take turns over the receivers.",
    ]


def traffic_lines(plan: Plan) -> list[str]:
    """Return lines that state the bytes received and sent, and their lower bounds."""
    traffic = plan.traffic
    received, sent = traffic.received_max, traffic.sent_max
    if (received, sent) == (traffic.bound_received_max, traffic.bound_sent_max):
        return [
            f"No device receives over {received} bytes or sends over {sent}, the least possible.",
            f"All devices together receive {traffic.received_total}.",
        ]
    return [
        f"Bytes received: {received} by the busiest device (the least possible is "
        f"{traffic.bound_received_max}), {traffic.received_total} in total.",
        f"Bytes sent: {sent} by the busiest device (the least possible is "
        f"{traffic.bound_sent_max}).",
    ]


def box_text(box: list[list[int]]) -> str:
    """Print a box: the product of half-open ranges, "empty", or "all" for a scalar."""
    if any(low >= high for low, high in box):
        return "empty"
    return " x ".join(f"[{low}, {high})" for low, high in box) or "all"


def device_ranges(exchange: Exchange) -> list[tuple[str, str, str]]:
    """Return the id, the source box and the target box of every device as strings, in ascending
    order of ids."""
    sides = []
    for layout in (exchange.source, exchange.target):
        boxes = layout.boxes()[:, layout.hidden :].tolist()
        sides.append(dict(zip(layout.mesh.device_ids, map(box_text, boxes), strict=True)))
    return [
        (str(device), sides[0].get(device, "-"), sides[1].get(device, "-"))
        for device in exchange.ranks.tolist()
    ]


def range_table(exchange: Exchange) -> list[str]:
    """Return the lines of a table of every device's ranges before and after; no lines for more than
    TABLE_DEVICES devices."""
    if exchange.ranks.size > TABLE_DEVICES:
        return []
    rows = [("device", "source", "target"), *device_ranges(exchange)]
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    return ["", *(f"    {a:<{widths[0]}}  {b:<{widths[1]}}  {c}" for a, b, c in rows)]
