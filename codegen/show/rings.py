"""A reduction on rings as text and as a picture: a row per step, a column per device."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from shardwright.codegen.moves.network.rings import Passed, Rings, RingStep
from shardwright.codegen.show.svg_text import FAINT, Span, box, in_pixels, root, text_lines
from shardwright.codegen.text.docstring import TABLE_DEVICES

MARGIN, TOP, LEFT = 24, 96, 170
COLUMN, ROW, HEIGHT = 84, 64, 18  # pixels per device, per step, per direction
COLOURS = (
    "#accdec", "#e0ecac", "#ecc0ac", "#c4b5e3", "#a9dfc9", "#f0dc9e", "#e5b3cd", "#b9d0b0",
    "#d3d8e0", "#f2c18f", "#9fd6e0", "#d9c7b0", "#c9e4f5", "#d5efb5", "#f7d4c8", "#d6c9ef",
)  # fmt: skip
LINES = {True: "", False: ' stroke-dasharray="4 3"'}


def rings_text(rings: Rings) -> str:
    """Return a table of the parts that each device sends in each step. For many devices, show
    only the first ones."""
    shown = rings.ids[:TABLE_DEVICES]
    lines = [*_heading(rings), ""]
    rows = [["device", *map(str, shown)]]
    for step in rings.steps:
        cells = {device: _cell(step, device) for device in shown}
        rows.append([step.what, *cells.values()])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells_of = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        lines.append("  ".join(cells_of).rstrip())
    if len(rings.ids) > len(shown):
        lines.append(f"and so on, for {len(rings.ids)} devices")
    return "\n".join(lines)


def _heading(rings: Rings) -> Iterator[str]:
    yield f"Terms are reduced on rings along {', then '.join(rings.along)}."
    yield "In each step every device combines its own terms of a part with the terms received so"
    yield "far, and sends the result on: half of each part upwards, half downwards. A part is named"
    yield f"after the device that keeps it; half a part takes {rings.nbytes:,} bytes with padding."


def _cell(step: RingStep, device: int) -> str:
    return " ".join(
        f"{'up' if each.upwards else 'down'} {_parts(each)}"
        for each in step.passed
        if each.sender == device
    )


def _parts(passed: Passed) -> str:
    first, *rest = passed.parts
    if len(rest) < 2:
        return ",".join(map(str, passed.parts))
    return f"{first},..,{rest[-1]}"


def rings_svg(rings: Rings, title: str) -> str | None:
    """Return the picture of rings as deterministic SVG; None if there are too many devices.

    A box shows the parts that a device sends, in the colour of the device that keeps them, with the
    number of terms added so far. A line leads from each box to the receiver; lines of halves that
    move downwards are dashed.
    """
    if len(rings.ids) > TABLE_DEVICES:
        return None
    columns = {device: number for number, device in enumerate(rings.ids)}
    width = max(LEFT + COLUMN * len(columns) + MARGIN, 720)
    height = TOP + ROW * (len(rings.steps) + 1) + MARGIN
    said = f"Terms on rings along {', then '.join(rings.along)}"
    how = "boxes: parts by the device that keeps them, and how many terms they have so far"
    spans = [
        Span(MARGIN, 32, title, 15, anchor="start").within(width - 2 * MARGIN),
        Span(MARGIN, 54, f"{said}; {how}.", 12, FAINT, "start").within(width - 2 * MARGIN),
        *(Span(_middle(n), TOP - 14, f"device {d}", 12) for d, n in columns.items()),
    ]
    lines = [root(width, height), f"<title>{escape(title, quote=False)}</title>"]
    lines += [box(0, 0, width, height, "#ffffff"), *text_lines(spans)]
    for number, step in enumerate(rings.steps):
        lines += _step(step, TOP + ROW * number, columns)
    lines += _kept(rings, TOP + ROW * len(rings.steps), columns)
    return "\n".join([*lines, "</svg>"]) + "\n"


def _middle(column: int) -> float:
    return LEFT + COLUMN * (column + 0.5)


def _step(step: RingStep, top: float, columns: dict[int, int]) -> Iterator[str]:
    spans = [
        Span(MARGIN, top + HEIGHT + 4, step.what, 12, anchor="start").within(LEFT - MARGIN - 6)
    ]
    boxes, lines = [], []
    for each in step.passed:
        here, there = columns[each.sender], columns[each.receiver]
        low = top + (0 if each.upwards else HEIGHT)
        shade = COLOURS[columns[each.parts[0]] % len(COLOURS)]
        boxes.append(box(_middle(here) - COLUMN / 2 + 4, low, COLUMN - 8, HEIGHT, shade))
        terms = f"{_parts(each)}: {each.terms}"
        spans.append(Span(_middle(here), low + 13, terms, 11).within(COLUMN - 10))
        ends = _middle(here), top + 2 * HEIGHT, _middle(there), top + ROW
        x, y, to, bottom = map(in_pixels, ends)
        lines.append(f'<path d="M{x} {y}L{to} {bottom}"{LINES[each.upwards]}/>')
    yield f'<g stroke="{FAINT}" stroke-width="1" fill="none">{"".join(lines)}</g>'
    yield "".join(boxes)
    yield from text_lines(spans)


def _kept(rings: Rings, top: float, columns: dict[int, int]) -> Iterator[str]:
    spans = [Span(MARGIN, top + HEIGHT, "kept, of all terms", 12, anchor="start")]
    for device, number in columns.items():
        left = _middle(number) - COLUMN / 2 + 4
        yield box(left, top, COLUMN - 8, 1.5 * HEIGHT, COLOURS[number % len(COLOURS)])
        spans.append(Span(_middle(number), top + HEIGHT, str(device), 11))
    yield from text_lines(spans)
