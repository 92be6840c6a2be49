"""Who sends what to whom, as a table in the docstring of a module: up to sixteen devices."""

from __future__ import annotations

import textwrap
from collections import defaultdict

import numpy as np

from shardwright.codegen.emit.docstring import TABLE_DEVICES
from shardwright.codegen.emit.python_text import INDENT, WIDTH
from shardwright.ir.arrays import Integers
from shardwright.ir.exchange import Exchange
from shardwright.ir.layout import Layout
from shardwright.ir.plan import DirectPlan
from shardwright.ir.transfers import Transfers

LONGEST = 24
"""Lines of a table that says all; a longer one says from whom devices receive, not what."""

NARROWEST = 32
"""Characters of the last column at least."""

KEPT = "\N{NO-BREAK SPACE}"
"""Stands for a space at which no line is broken."""

Row = tuple[str, ...]


def transfer_table(plan: DirectPlan) -> list[str]:
    """Return the lines, none where there are more devices."""
    exchange = plan.exchange
    if exchange.ranks.size > TABLE_DEVICES:
        return []
    pairs = permutation(plan)
    if pairs:
        return ["", *pairs]
    dims, moved = cut_dims(exchange), plan.transfers()
    rows = _rows(exchange, moved, dims)
    if len(rows) - 1 > LONGEST or not _fit(rows):
        rows = _rows(exchange, moved, dims, brief=True)
    if not _fit(rows):
        return ["", *_rows(exchange, moved, [], brief=True)]
    along = [f"{along_text(dims)}:", ""] if dims else []
    return ["", *along, *rows]


def _fit(rows: list[str]) -> bool:
    return all(len(row) <= WIDTH for row in rows)


def permutation(plan: DirectPlan) -> list[str]:
    """Return lines that pair devices where each sends its whole shard to one, and receives one;
    none otherwise, or where there are more devices."""
    exchange = plan.exchange
    if exchange.ranks.size > TABLE_DEVICES:
        return []
    pairs = _pairs(plan.transfers(), exchange)
    return ["A permutation: every shard goes whole to one device.", "", *pairs] if pairs else []


def along_text(dims: list[int]) -> str:
    """Return along which dimensions ranges are given."""
    return f"Ranges along dimension{'s' if len(dims) > 1 else ''} {', '.join(map(str, dims))}"


def _pairs(moved: Transfers, exchange: Exchange) -> list[str]:
    count = exchange.ranks.size
    order = np.argsort(moved.receiver)
    by_both = moved.elements.tolist(), moved.elements[order].tolist()
    if any(len({*ends.tolist()}) != count for ends in (moved.sender, moved.receiver)):
        return []
    if len(moved) != count or by_both != (_volumes(exchange.source), _volumes(exchange.target)):
        return []
    names = ["device", "sends to", "receives from"]
    values = [moved.sender, moved.receiver, moved.sender[order]]
    width = max(len(str(device)) for device in exchange.ranks.tolist()) + 2
    return [
        f"{INDENT}{name:<14}" + "".join(f"{value:>{width}}" for value in listed.tolist())
        for name, listed in zip(names, values, strict=True)
    ]


def _volumes(layout: Layout) -> list[int]:
    """Return the elements of every device's shard, by ascending device id."""
    boxes = layout.boxes()
    sizes = np.prod(boxes[:, :, 1] - boxes[:, :, 0], axis=1).tolist()
    return [size for _, size in sorted(zip(layout.mesh.device_ids, sizes, strict=True))]


def cut_dims(exchange: Exchange) -> list[int]:
    """Return the dimensions that either side splits, or along which tiles are cut into pieces."""
    rule, hidden = exchange.rule, exchange.source.hidden
    cut = rule.cut - hidden if rule.pieces > 1 else None
    return [
        axis
        for axis, dim in enumerate(exchange.dims[hidden:])
        if max(dim.source.parts, dim.target.parts) > 1 or axis == cut
    ]


def _rows(exchange: Exchange, moved: Transfers, dims: list[int], brief: bool = False) -> list[str]:
    """Return a line or more for each device: what it holds before, after, and receives; `brief`:
    from whom only; no `dims`: what it holds is left out."""
    received = defaultdict(list)
    for sender, receiver, box in zip(moved.sender, moved.receiver, moved.tensor, strict=True):
        if sender != receiver:
            told = f"{sender}" if brief else f"{_box(box, dims)} from {sender}"
            received[int(receiver)].append(told.replace(" ", KEPT))
    before, after = (_held(layout, dims) for layout in (exchange.source, exchange.target))
    table: list[Row] = [("device", "before", "after")]
    table += [(str(d), before.get(d, "-"), after.get(d, "-")) for d in exchange.ranks.tolist()]
    if not dims:
        table = [row[:1] for row in table]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = []
    for row, device in zip(table, [None, *exchange.ranks.tolist()], strict=True):
        start = INDENT + "  ".join(f"{t:<{w}}" for t, w in zip(row, widths, strict=True)) + "  "
        said = "receives" if device is None else ", ".join(received[device]) or "nothing"
        if brief and device is not None and received[device]:
            said = f"from {said}"
        lines += textwrap.wrap(
            said,
            max(WIDTH, len(start) + NARROWEST),
            initial_indent=start,
            subsequent_indent=" " * len(start),
            break_long_words=False,
            break_on_hyphens=False,
        )
    return [line.replace(KEPT, " ").rstrip() for line in lines]


def _held(layout: Layout, dims: list[int]) -> dict[int, str]:
    boxes = layout.boxes()[:, layout.hidden :]
    return {
        device: _box(box, dims) for device, box in zip(layout.mesh.device_ids, boxes, strict=True)
    }


def _box(box: Integers, dims: list[int]) -> str:
    if any(low >= high for low, high in box.tolist()):
        return "empty"
    return " x ".join(f"[{box[k][0]}, {box[k][1]})" for k in dims) or "all"
