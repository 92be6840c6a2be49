"""The picture of a matmul as a standalone SVG: the product of each device, turn by turn.

For each device, A is drawn on the left and B above C, as when multiplying by hand; the device's
parts during the product are coloured. In a loop, moving parts are labelled with the turn in which
the device has them. All extents are drawn with equal length.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape

from shardwright.codegen.show.matmul import (
    matmul_words,
    product_words,
    range_text,
    turns_of,
)
from shardwright.codegen.show.svg_text import FAINT, Span, box, root, text_lines
from shardwright.codegen.text.docstring import TABLE_DEVICES
from shardwright.ir.layout import Layout
from shardwright.ir.matmul import SIDES, Side
from shardwright.ir.matmul_plan import MatmulPlan

MARGIN, TOP, GAP, SPACE = 24, 70, 6, 34
LABEL = 18  # the height of a device's heading
LENGTHS = {"i": 76, "j": 76, "k": 76}  # the length of each factor in pixels
COLOURS: dict[Side, str] = {"lhs": "#accdec", "rhs": "#e0ecac", "out": "#ecc0ac"}
NAMES: dict[Side, str] = {"lhs": "A", "rhs": "B", "out": "C"}
EMPTY = "#f2f3f5"
WIDTH = LENGTHS["j"] + GAP + LENGTHS["k"]
HEIGHT = LABEL + LENGTHS["j"] + GAP + LENGTHS["i"]
CORNERS: dict[Side, tuple[int, int]] = {
    "lhs": (0, LABEL + LENGTHS["j"] + GAP),
    "rhs": (LENGTHS["j"] + GAP, LABEL),
    "out": (LENGTHS["j"] + GAP, LABEL + LENGTHS["j"] + GAP),
}


@dataclass(frozen=True)
class Scene:
    """A plan, and its boxes: for each side, the ranges of every device, [devices, dimensions,
    2]."""

    plan: MatmulPlan
    boxes: dict[Side, list[list[list[int]]]]

    @staticmethod
    def of(plan: MatmulPlan) -> Scene:
        """Return the scene of a plan, with the boxes of its product."""
        product = plan.chosen.multiplication
        boxes: dict[Side, list[list[list[int]]]] = {}
        for side in SIDES:
            layout = Layout.of(product.shardings[side], plan.matmul.shape(side), "flat")
            boxes[side] = layout.boxes()[:, layout.hidden :].tolist()
        return Scene(plan, boxes)

    def device(self, position: int, left: float, top: float) -> Iterator[str]:
        """Yield the SVG elements of a device, with its top left corner at a point."""
        ids, batch = self.plan.matmul.mesh.device_ids, self.plan.matmul.batch
        ranges = self.boxes["out"][position][:batch]
        said = " ".join([f"device {ids[position]}", *(range_text((a, b)) for a, b in ranges)])
        spans = [Span(left, top + 12, said, 12, anchor="start").within(WIDTH)]
        for side in SIDES:
            x, y, width, height = self._place(side, left, top)
            yield box(x, y, width, height, EMPTY)
            yield box(*self._part(side, self.boxes[side][position][batch:], left, top))
            spans.append(Span(x + 8, y + 11, NAMES[side], 10, FAINT))
        yield from text_lines([*spans, *self._turns(position, left, top)])

    def _place(self, side: Side, left: float, top: float) -> tuple[float, float, float, float]:
        x, y = CORNERS[side]
        rows, columns = self._names(side)
        return left + x, top + y, LENGTHS[columns], LENGTHS[rows]

    def _names(self, side: Side) -> tuple[str, str]:
        first, second = self.plan.matmul.factors(side)[-2:]
        return self.plan.matmul.factor_name(first), self.plan.matmul.factor_name(second)

    def _part(
        self, side: Side, held: list[list[int]], left: float, top: float
    ) -> tuple[float, float, float, float, str]:
        """Return the x, y, width, height and colour of a device's part of a side."""
        x, y, width, height = self._place(side, left, top)
        extents = self.plan.matmul.shape(side)[-2:]
        (low, high), (first, last) = (
            (start / extent, max(end, start) / extent)
            for (start, end), extent in zip(held, extents, strict=True)
        )
        across, down = width * (last - first), height * (high - low)
        return x + width * first, y + height * low, across, down, COLOURS[side]

    def _turns(self, position: int, left: float, top: float) -> Iterator[Span]:
        """Yield the number of each turn as text, placed at the part that the device has in that
        turn."""
        loop, matmul = self.plan.chosen.loop, self.plan.matmul
        if loop is None or loop.factor < matmul.batch:
            return
        axis = matmul.factors(loop.side).index(loop.factor)
        whole = self.boxes[loop.side][position]
        turns = enumerate(turns_of(self.plan, position))
        numbered = sorted((part, turn) for turn, parts in turns for part in parts)
        down = axis == len(whole) - 2
        # Numbers that would touch go into adjacent lanes.
        *_, across, high, _ = self._part(loop.side, whole[-2:], left, top)
        lanes = math.ceil(len(numbered) * (10 if down else 12) / max(high if down else across, 1))
        for rank, ((start, end), turn) in enumerate(numbered):
            held = [list(each) for each in whole]
            held[axis] = [whole[axis][0] + start, whole[axis][0] + end]
            x, y, width, height, _ = self._part(loop.side, held[-2:], left, top)
            lane = (rank % lanes + 1) / (lanes + 1)
            aside, below = (lane, 0.5) if down else (0.5, lane)
            yield Span(x + width * aside, y + height * below + 3, str(turn), 9)


def matmul_svg(plan: MatmulPlan) -> str | None:
    """Return the picture of a plan as deterministic SVG; None if there are too many devices."""
    mesh = plan.matmul.mesh
    if mesh.size > TABLE_DEVICES:
        return None
    scene, columns = Scene.of(plan), min(mesh.size, 4)
    rows = -(-mesh.size // columns)
    width = max(2 * MARGIN + columns * (WIDTH + SPACE) - SPACE, 720)
    height = TOP + rows * (HEIGHT + SPACE) - SPACE + MARGIN
    title = f"{matmul_words(plan.matmul)}."
    lines = [root(width, height), f"<title>{escape(title, quote=False)}</title>"]
    lines.append(box(0, 0, width, height, "#ffffff"))
    heading = (Span(MARGIN, 30, title, 15, anchor="start"), _said(plan))
    lines += text_lines(span.within(width - 2 * MARGIN) for span in heading)
    for position in range(mesh.size):
        row, column = divmod(position, columns)
        corner = MARGIN + column * (WIDTH + SPACE), TOP + row * (HEIGHT + SPACE)
        lines.append("".join(scene.device(position, *corner)))
    return "\n".join([*lines, "</svg>"]) + "\n"


def _said(plan: MatmulPlan) -> Span:
    local = plan.chosen.multiplication.local_extents
    shapes = (
        f"{NAMES[side]} {[local[each] for each in plan.matmul.factors(side)]}" for side in SIDES
    )
    text = f"Coloured: a device's parts, {', '.join(shapes)}"
    text += f" ({product_words(plan.chosen.multiplication)})."
    if plan.chosen.loop is not None:
        text += f" Numbers: the turn in which it has a part of {NAMES[plan.chosen.loop.side]}."
    return Span(MARGIN, 50, text, 12, FAINT, "start")
