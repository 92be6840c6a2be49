"""The picture of a relayout as a standalone SVG: each device's parts of tensors, in buffer order,
before and after.

Each device has a column, and each part a box whose height is its length along the stacked
dimension. The box shows the tensor's colour and name, and the range of each stored dimension.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import NamedTuple

from shardwright.codegen.show.svg_text import COLOURS, FAINT, Span, box, root, text_lines
from shardwright.ir.parts import BoundPart
from shardwright.ir.relayout import Relayout
from shardwright.ir.stored import Stored

DRAWN = 16
"""The maximum number of devices drawn on each side."""
MARGIN, LEFT, TOP, WIDTH, LEAST, HEIGHT, GAP, SMALL = 24, 96, 74, 108, 18, 132, 14, 12
PADDING = "#e6e8eb"


class HeldPart(NamedTuple):
    """A part in a device's buffer, or padding. `text` is its label, `length` its extent."""

    tensor: str  # "" for padding
    text: str
    length: int


def blocks(stored: Stored, buffer: str, position: int) -> list[HeldPart]:
    """Return the contents of a buffer at a mesh position, in order."""
    bound = stored.bound[buffer]
    found, used = [], 0
    for part in bound.parts:
        shape = part.shape(position)
        box_ = part.box(position)
        if all(low < high for low, high in box_):
            low, high = box_[bound.dim] if box_ else (0, 1)
            found.append(HeldPart(part.tensor, _said(part, position), high - low))
            used += high - low
            gap = shape[bound.dim] - (high - low) if shape else 0
            found += [HeldPart("", "padding", gap)] * (gap > 0)
            used += gap
    extents = bound.shape(position)
    rest = extents[bound.dim] - used if extents and found else 0
    return [*found, *[HeldPart("", "padding", rest)] * (rest > 0)]


def _said(part: BoundPart, position: int) -> str:
    ranges = [
        ":" if (low, high) == (0, cut.cut.extent) and not cut.start else f"{low}:{high}"
        for cut, (low, high) in zip(part.cuts, part.box(position), strict=True)
    ]
    while ranges and ranges[-1] == ":":
        ranges.pop()
    return f"{part.tensor}[{', '.join(ranges)}]" if ranges else part.tensor


def held_rows(stored: Stored) -> Iterator[tuple[int, list[str]]]:
    """Yield each device id, in order, with the contents of the device's buffers as text."""
    for device in sorted(stored.mesh.device_ids)[:DRAWN]:
        position = stored.mesh.device_ids.index(device)
        cells = (blocks(stored, name, position) for name in stored.buffers)
        yield device, [", ".join(each.text for each in cell) or "nothing" for cell in cells]


def parts_svg(relayout: Relayout) -> str:
    """Return the picture of a relayout as deterministic SVG."""
    colours = {
        name: COLOURS[number % len(COLOURS)] for number, name in enumerate(relayout.source.tensors)
    }
    lines, spans, y = [], [], float(TOP - 40)
    columns = 1
    for title, side in (("Before", relayout.source), ("After", relayout.target)):
        devices = sorted(side.mesh.device_ids)[:DRAWN]
        columns = max(columns, len(devices))
        spans.append(Span(MARGIN, y, f"{title}: {side.mesh}", SMALL + 2, anchor="start"))
        spans += [
            Span(LEFT + (n + 0.5) * WIDTH, y + 22, f"device {device}", SMALL, FAINT)
            for n, device in enumerate(devices)
        ]
        y += 32
        for name in side.buffers:
            drawn, texts, height = _row(side, name, devices, y, colours)
            spans += [
                Span(MARGIN, y + height / 2, name, SMALL, FAINT, "start").within(LEFT - MARGIN),
                *texts,
            ]
            lines += drawn
            y += height + GAP
        if side.mesh.size > DRAWN:
            note = f"The first {DRAWN} of {side.mesh.size} devices are drawn."
            spans.append(Span(MARGIN, y + 4, note, SMALL, FAINT, "start"))
            y += GAP
        y += 2 * GAP
    size = max(LEFT + columns * WIDTH, 560) + MARGIN, y
    title = f"What devices store of {', '.join(relayout.source.tensors)}, before and after"
    return "\n".join(
        [
            root(*size),
            f"<title>{escape(title, quote=False)}</title>",
            box(0, 0, *size, "#ffffff"),
            *lines,
            *text_lines(spans),
            "</svg>\n",
        ]
    )


def _row(
    side: Stored, name: str, devices: list[int], y: float, colours: dict[str, str]
) -> tuple[list[str], list[Span], float]:
    """Return the boxes of a buffer on all devices, the texts in the boxes, and the height of the
    row."""
    held = [blocks(side, name, side.mesh.device_ids.index(device)) for device in devices]
    longest = max((sum(each.length for each in cell) for cell in held), default=1)
    tallest = max(1, *map(len, held))
    scale = max(min(HEIGHT, 30 * tallest) - LEAST * tallest, 0) / max(longest, 1)
    boxes, spans, height = [], [], float(LEAST)
    for n, cell in enumerate(held):
        place = y
        for block in cell:
            tall = LEAST + scale * block.length
            fill = colours[block.tensor] if block.tensor else PADDING
            boxes.append(box(LEFT + n * WIDTH, place, WIDTH - 3, tall - 1, fill))
            middle = LEFT + (n + 0.5) * WIDTH - 1.5, place + tall / 2 + 0.35 * SMALL
            spans.append(Span(*middle, block.text, SMALL).within(WIDTH - 10))
            place += tall
        height = max(height, place - y)
    return boxes, spans, height
