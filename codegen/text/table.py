"""Tabulate the transfers between devices in a module's docstring, for up to TABLE_DEVICES
devices."""

from __future__ import annotations

import textwrap
from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from shardwright.codegen.text.docstring import TABLE_DEVICES
from shardwright.codegen.text.python_text import INDENT, WIDTH
from shardwright.ir.arrays import Integers
from shardwright.ir.exchange import Exchange
from shardwright.ir.layout import Layout
from shardwright.ir.plan import DirectPlan, SteppedPlan
from shardwright.ir.steps import MoveStep
from shardwright.ir.transfers import Transfers

LONGEST = 28
"""The maximum number of lines of a complete table. A longer table lists senders but not
elements."""

NARROWEST = 32
"""The minimum width of the last column, in characters."""

KEPT = "\N{NO-BREAK SPACE}"
"""Stands in for a space at which a line must not be broken."""

Row = tuple[str, ...]


def transfer_table(plan: DirectPlan) -> list[str]:
    """Return the lines of the table of a plan's transfers; no lines for more than TABLE_DEVICES
    devices."""
    exchange = plan.exchange
    if exchange.ranks.size > TABLE_DEVICES:
        return []
    pairs = permutation(plan)
    if pairs:
        return ["", *pairs]
    dims = cut_dims(exchange)
    table = _Table(held(exchange.source, dims), held(exchange.target, dims), exchange)
    full, brief = (_received(plan.transfers(), dims, brief) for brief in (False, True))
    along = [f"{along_text(dims)}:", ""] if are_some(dims, exchange) else []
    for rows in (table.beside(full), table.below(full)):
        if len(rows) - 1 <= LONGEST and _fit(rows):
            return ["", *along, *rows]
    rows = table.beside(brief)
    if dims and _fit(rows):
        said = "A device sends the intersection of its range before and the receiver's after."
        return ["", *along[:1], said, "", *rows]
    return ["", *_Table({}, {}, exchange).beside(brief)]


def part_table(plan: SteppedPlan, ends: Exchange) -> list[str]:
    """Return a caption, a header, and a row for each device of a plan of two exchanges: its source
    shard, the part that it reduces, and its target shard. Return no lines for more than
    TABLE_DEVICES devices."""
    if ends.ranks.size > TABLE_DEVICES:
        return []
    parts = next(step.exchange for step in plan.steps[1:] if isinstance(step, MoveStep))
    dims = [
        axis
        for axis, dim in enumerate(parts.dims[parts.source.hidden :])
        if max(dim.source.parts, dim.target.parts) > 1
    ]
    columns = [held(each, dims) for each in (ends.source, parts.source, ends.target)]
    rows: list[Row] = [("device", "before", "part", "after")]
    rows += [(f"{d}", *(c.get(d, "-") for c in columns)) for d in ends.ranks.tolist()]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        INDENT + "  ".join(f"{t:<{w}}" for t, w in zip(row, widths, strict=True)) for row in rows
    )
    return ["", f"{along_text(dims)}:", "", *(line.rstrip() for line in lines)]


def _fit(rows: list[str]) -> bool:
    return all(len(row) <= WIDTH for row in rows)


def permutation(plan: DirectPlan) -> list[str]:
    """Return lines with each device's receiver and sender if each device sends its whole shard
    to one device and receives one shard. Return no lines for any other plan, or for more than
    TABLE_DEVICES devices."""
    exchange = plan.exchange
    if exchange.ranks.size > TABLE_DEVICES:
        return []
    pairs = _pairs(plan.transfers(), exchange)
    return ["A permutation: every shard goes whole to one device.", "", *pairs] if pairs else []


def along_text(dims: list[int]) -> str:
    """Return a heading for ranges along these dimensions."""
    return f"Ranges along dimension{'s' if len(dims) > 1 else ''} {', '.join(map(str, dims))}"


def are_some(dims: list[int], exchange: Exchange) -> bool:
    """Return whether `dims` is a proper subset of the tensor's dimensions."""
    return 0 < len(dims) < len(exchange.dims) - exchange.source.hidden


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
    """Return the number of elements of every device's shard, in ascending order of device ids."""
    boxes = layout.boxes()
    sizes = np.prod(boxes[:, :, 1] - boxes[:, :, 0], axis=1).tolist()
    return [size for _, size in sorted(zip(layout.mesh.device_ids, sizes, strict=True))]


def cut_dims(exchange: Exchange) -> list[int]:
    """Return the dimensions that either side splits, or along which tiles are cut."""
    rule, hidden = exchange.rule, exchange.source.hidden
    cut = rule.cut - hidden if rule.pieces > 1 else None
    return [
        axis
        for axis, dim in enumerate(exchange.dims[hidden:])
        if max(dim.source.parts, dim.target.parts) > 1 or axis == cut
    ]


def _received(moved: Transfers, dims: list[int], brief: bool) -> dict[int, str]:
    if brief:
        senders: dict[int, list[str]] = defaultdict(list)
        for sender, receiver in zip(moved.sender, moved.receiver, strict=True):
            if sender != receiver:
                senders[int(receiver)].append(f"{sender}")
        return {device: f"from {', '.join(told)}" for device, told in senders.items()}
    return {
        device: ", ".join(f"{box} from {who}".replace(" ", KEPT) for box, who in boxes)
        for device, boxes in by_box(moved, dims).items()
    }


def by_box(moved: Transfers, dims: list[int]) -> dict[int, list[tuple[str, str]]]:
    """Return, by device, the boxes that it receives, each with its sender or, if it is reduced, the
    senders of all terms."""
    found: dict[int, dict[str, list[str]]] = defaultdict(dict)
    for sender, receiver, box in zip(moved.sender, moved.receiver, moved.tensor, strict=True):
        if sender != receiver:
            found[int(receiver)].setdefault(box_along(box, dims), []).append(f"{sender}")
    return {
        device: [(box, ", ".join(senders)) for box, senders in boxes.items()]
        for device, boxes in found.items()
    }


@dataclass(frozen=True)
class _Table:
    """The shards of devices before and after the reshard, by device id; both are empty if the table
    omits them."""

    before: dict[int, str]
    after: dict[int, str]
    exchange: Exchange

    def beside(self, received: dict[int, str]) -> list[str]:
        heads = self._heads()
        said = ["receives", *(received.get(d, "nothing") for d in self.exchange.ranks.tolist())]
        return [
            line
            for head, text in zip(heads, said, strict=True)
            for line in _broken(f"{head}  ", " " * len(f"{head}  "), text)
        ]

    def below(self, received: dict[int, str]) -> list[str]:
        first, *heads = self._heads()
        lines, start = [first.rstrip()], INDENT * 3
        for head, device in zip(heads, self.exchange.ranks.tolist(), strict=True):
            lines.append(head.rstrip())
            lines += _broken(f"{start}receives ", start, received.get(device, "nothing"))
        return lines

    def _heads(self) -> list[str]:
        devices = self.exchange.ranks.tolist()
        table: list[Row] = [("device", "before", "after")]
        table += [(str(d), self.before.get(d, "-"), self.after.get(d, "-")) for d in devices]
        if not self.before:
            table = [row[:1] for row in table]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        return [
            INDENT + "  ".join(f"{t:<{w}}" for t, w in zip(row, widths, strict=True))
            for row in table
        ]


def _broken(start: str, further: str, said: str) -> list[str]:
    """Break a string into lines. The first begins with `start`, the others with `further`."""
    lines = textwrap.wrap(
        said,
        max(WIDTH, len(start) + NARROWEST),
        initial_indent=start,
        subsequent_indent=further,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(KEPT, " ").rstrip() for line in lines]


def held(layout: Layout, dims: list[int]) -> dict[int, str]:
    """Return each device's ranges along these dimensions, by device id."""
    boxes = layout.boxes()[:, layout.hidden :]
    return {
        device: box_along(box, dims)
        for device, box in zip(layout.mesh.device_ids, boxes, strict=True)
    }


def box_along(box: Integers, dims: list[int]) -> str:
    """Return a box as the product of its ranges along these dimensions."""
    if any(low >= high for low, high in box.tolist()):
        return "empty"
    return " x ".join(f"[{box[k][0]}, {box[k][1]})" for k in dims) or "all"
