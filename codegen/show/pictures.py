"""Text pictures: each device's contents before and after, and the cut pattern."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

from shardwright.codegen.show.cuts import Band, CutPicture, holders_text
from shardwright.codegen.show.draw import Arrow, Cell, across, centred, down, grid, size_of
from shardwright.ir.exchange import Exchange
from shardwright.ir.layout import Layout
from shardwright.ir.mesh import Mesh
from shardwright.ir.plan import Plan, direct_of
from shardwright.ir.sharding import Sharding

# Maximum width of a picture and height of a cell; larger ones show ranges instead of elements.
WIDTH = 108
CELL_LINES = 9
# The maximum number of coordinates of an axis, devices of a mesh, and bands of a dimension to draw.
DRAWN_COORDINATES = 8
DRAWN_DEVICES = 32
DRAWN_BANDS = 16

# Returns the cell of the device at a mesh position.
CellOf = Callable[[int], Cell]


def pictures(plan: Plan) -> str:
    """Return pictures of the mesh before and after with the contents of every device, and the
    cut pattern."""
    reshard, exchange = plan.reshard, direct_of(plan).exchange
    same_mesh = reshard.source.mesh == reshard.target.mesh
    parts = [
        *device_pictures(reshard.source, "the source mesh" if not same_mesh else "the mesh"),
        *(() if same_mesh else device_pictures(reshard.target, "the target mesh")),
        f"Before: {reshard.source}{_labels(exchange.source)}",
        mesh_picture(reshard.source, exchange.source),
        f"After: {reshard.target}{_labels(exchange.target)}",
        mesh_picture(reshard.target, exchange.target),
        cut_pattern(exchange),
    ]
    return "\n\n".join(parts)


def device_pictures(sharding: Sharding, which: str) -> tuple[str, ...]:
    """Return a heading, and a picture of the mesh with the device id at each position."""
    ids = sharding.mesh.device_ids
    heading = f"Devices of {which} {axes_text(sharding.mesh)}"
    return heading, _fitting(sharding, lambda position: (str(ids[position]),))


def mesh_picture(sharding: Sharding, layout: Layout) -> str:
    """Return the mesh with the tensor contents of each device: elements if the shards are small,
    otherwise ranges."""
    if has_element_labels(layout):
        picture = _drawn_mesh(
            sharding, lambda p: element_lines(_visible_box(layout, p)), DRAWN_COORDINATES
        )
        if _width(picture) <= WIDTH:
            return picture
    return _fitting(sharding, lambda p: _range_lines(_visible_box(layout, p)))


def _fitting(sharding: Sharding, cell: CellOf) -> str:
    for across_limit in range(DRAWN_COORDINATES, 1, -1):
        picture = _drawn_mesh(sharding, cell, across_limit)
        if _width(picture) <= WIDTH:
            return picture
    return _drawn_mesh(sharding, cell, 1)


def _width(picture: str) -> int:
    return max(map(len, picture.splitlines()))


def _visible_box(layout: Layout, position: int) -> tuple[tuple[int, int], ...]:
    box = layout.box(position)[layout.hidden :]
    return tuple((int(low), int(high)) for low, high in box)


def has_element_labels(layout: Layout) -> bool:
    """Return whether every element has a label with one character per dimension and a shard fits
    into a cell."""
    extents = [dim.extent for dim in layout.dims[layout.hidden :]]
    return max(extents, default=1) <= 9 and math.prod(layout.local_shape[:-1]) <= CELL_LINES


def _labels(layout: Layout) -> str:
    if not has_element_labels(layout):
        return ""
    rank = len(layout.local_shape)
    zeros = ", ".join("0" * rank)
    return f"    ({'1' * rank or 't'} is t[{zeros}])"


def element_lines(box: tuple[tuple[int, int], ...]) -> Cell:
    """Return the labels of a box's elements, counted from 1: elements that differ only in the
    last index share a line."""
    if not box:
        return ("t",)
    ranges = [range(low + 1, high + 1) for low, high in box]
    lines = tuple(
        " ".join("".join(map(str, (*first, last))) for last in ranges[-1])
        for first in itertools.product(*ranges[:-1])
    )
    return lines if any(lines) else ("-",)


def _range_lines(box: tuple[tuple[int, int], ...]) -> Cell:
    if any(low >= high for low, high in box):
        return ("-",)
    return tuple(f"[{low}, {high})" for low, high in box) or ("t",)


def _drawn_sizes(mesh: Mesh, across_limit: int) -> tuple[int, ...]:
    """Return the number of drawn coordinates of every axis, giving the minor axes priority."""
    left, limit = DRAWN_DEVICES, across_limit
    drawn: list[int] = []
    for _, size in reversed(mesh.axes):
        drawn.append(min(size, limit, left))
        left //= drawn[-1]
        limit = DRAWN_COORDINATES
    return tuple(reversed(drawn))


def _drawn_positions(mesh: Mesh, drawn: tuple[int, ...]) -> tuple[int, ...]:
    positions: tuple[int, ...] = (0,)
    for (_, size), count in zip(mesh.axes, drawn, strict=True):
        positions = tuple(p * size + c for p in positions for c in range(count))
    return positions


def _drawn_mesh(sharding: Sharding, cell: CellOf, across_limit: int) -> str:
    """Return a picture of the mesh: the last axis across, the others down."""
    mesh = sharding.mesh
    vertical = len(mesh.axes) == 1 and _runs_down(sharding)
    sizes = _drawn_sizes(mesh, DRAWN_COORDINATES if vertical else across_limit)
    cells = [cell(position) for position in _drawn_positions(mesh, sizes)]
    names = [f"mesh axis {name}" for name in mesh.names]
    columns = 1 if vertical or not sizes else sizes[-1]
    downward = list(sizes if vertical else sizes[:-1])
    rows = [cells[i : i + columns] for i in range(0, len(cells), columns)]
    block = downward[-1] if downward else 1
    lines: list[str] = []
    for start in range(0, len(rows), block):
        part = rows[start : start + block]
        heights = [max(map(len, row)) for row in part]
        lines += grid(part, [size_of(rows)[0]] * columns, heights)
    lines = down(
        _mesh_arrows(names[: len(downward)], downward, len(lines) * block // len(rows)), lines
    )
    if len(names) > len(downward):
        lines = across(names[-1], lines)
    return "\n".join([*lines, *_omitted(mesh, sizes)])


def _mesh_arrows(names: list[str], sizes: list[int], block: int) -> list[Arrow]:
    """Return an arrow for each axis drawn downwards, the minor axis first. The arrow of the
    minor axis is `block` lines high."""
    arrows: list[Arrow] = []
    for name, size in zip(reversed(names), reversed(sizes), strict=True):
        block = block * size if arrows else block
        arrows.append(Arrow(name, block))
    return arrows


def _runs_down(sharding: Sharding) -> bool:
    return sharding.rank >= 2 and bool(sharding.dims[0].axes)


def _omitted(mesh: Mesh, drawn: tuple[int, ...]) -> list[str]:
    return [
        f'The first {count} of {size} devices along "{name}".'
        for (name, size), count in zip(mesh.axes, drawn, strict=True)
        if size > count
    ]


def axes_text(mesh: Mesh) -> str:
    """Return the axes of a mesh: `<["x"=2, "y"=3]>`."""
    axes = ", ".join(f'"{name}"={size}' for name, size in mesh.axes)
    return f"<[{axes}]>"


def cut_pattern(exchange: Exchange) -> str:
    """Return the tensor cut into tiles, with the holders of each tile's source and target
    shards."""
    picture = CutPicture.of(exchange, DRAWN_BANDS)
    widest = size_of(_tile_cells(picture))[0]
    picture = picture.narrowed(max(WIDTH // (widest + 3), 1))
    cells = _tile_cells(picture)
    widths = _scaled([band.high - band.low for band in picture.columns], size_of(cells)[0], WIDTH)
    heights = [_height(band, picture.rows) for band in picture.rows]
    lines = grid(centred(cells, widths), widths, heights)
    lines = _with_starts(picture, lines, widths, heights)
    if picture.down is not None:
        lines = down([Arrow(f"tensor dimension {picture.down.axis}", len(lines))], lines)
    if picture.across is not None:
        lines = across(f"tensor dimension {picture.across.axis}", lines)
    heading = "Cut pattern: in each tile, the devices that hold it before -> after"
    return "\n".join([heading, "", *lines, *picture.notes()])


def _tile_cells(picture: CutPicture) -> list[list[Cell]]:
    return [
        [_tile_cell(picture, row, column) for column in picture.columns] for row in picture.rows
    ]


def _tile_cell(picture: CutPicture, row: Band, column: Band) -> Cell:
    source, target = picture.shards(row, column)
    exchange = picture.exchange
    before, after = holders_text(exchange.source, source), holders_text(exchange.target, target)
    return (f"{before} -> {after}",)


def _scaled(lengths: list[int], least: int, limit: int) -> list[int]:
    """Return widths in proportion to lengths; the smallest is `least`. If their sum exceeds
    `limit`, all widths are `least`."""
    shortest = min(lengths)
    scaled = [max(least, (least + 3) * length // shortest - 3) for length in lengths]
    return scaled if sum(scaled) + 3 * len(scaled) <= limit else [least] * len(lengths)


def _height(band: Band, bands: tuple[Band, ...]) -> int:
    shortest = min(other.high - other.low for other in bands)
    return min(3, max(1, 2 * ((band.high - band.low) // shortest) - 1))


def _with_starts(
    picture: CutPicture, lines: list[str], widths: list[int], heights: list[int]
) -> list[str]:
    rows = [band.low for band in picture.rows] + [picture.rows[-1].high]
    columns = [band.low for band in picture.columns] + [picture.columns[-1].high]
    margin = max(len(str(row)) for row in rows) + 1 if picture.down else 0
    if picture.down:
        ends = list(itertools.accumulate((height + 1 for height in heights), initial=0))
        marks = dict(zip(ends, rows, strict=True))
        lines = [f"{marks.get(i, ''):>{margin - 1}} {line}" for i, line in enumerate(lines)]
    if picture.across is None:
        return lines
    top = " " * margin
    for start, mark in zip(
        itertools.accumulate((w + 3 for w in widths), initial=0), columns, strict=True
    ):
        top = top.ljust(margin + start) + str(mark) + " "
    return [top.rstrip(), *lines]
