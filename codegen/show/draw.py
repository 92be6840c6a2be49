"""Grids of text cells with `+`, `-`, `|`, and arrows that name the axes across and down."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

Cell = tuple[str, ...]  # the lines of a cell


@dataclass(frozen=True)
class Arrow:
    """An arrow that points down on the right of a picture, along its first `height` lines."""

    label: str
    height: int


def size_of(cells: Sequence[Sequence[Cell]]) -> tuple[int, int]:
    """Return the length of the longest line and the number of lines of the tallest cell."""
    flat = [cell for row in cells for cell in row]
    width = max((len(line) for cell in flat for line in cell), default=0)
    return width, max((len(cell) for cell in flat), default=1)


def grid(
    cells: Sequence[Sequence[Cell]], widths: Sequence[int], heights: Sequence[int]
) -> list[str]:
    """Return the lines of a grid. `widths`, `heights`: the sizes of cells, without margins."""
    border = "+" + "+".join("-" * (width + 2) for width in widths) + "+"
    lines = [border]
    for row, height in zip(cells, heights, strict=True):
        for line in range(height):
            texts = (_line(cell, line, height) for cell in row)
            padded = (f" {text:<{width}} " for text, width in zip(texts, widths, strict=True))
            lines.append("|" + "|".join(padded) + "|")
        lines.append(border)
    return lines


def _line(cell: Cell, line: int, height: int) -> str:
    """Return a line of a cell. A cell of several lines is aligned at the top, a cell of one line
    in the middle."""
    start = (height - 1) // 2 if len(cell) == 1 else 0
    return cell[line - start] if 0 <= line - start < len(cell) else ""


def centred(cells: Sequence[Sequence[Cell]], widths: Sequence[int]) -> list[list[Cell]]:
    """Return the cells with each line centred in its column."""
    return [
        [
            tuple(line.center(width) for line in cell)
            for cell, width in zip(row, widths, strict=True)
        ]
        for row in cells
    ]


def across(label: str, lines: list[str]) -> list[str]:
    """Return the lines of a picture below a labelled arrow that points right."""
    return [label, "-" * max(len(label), 11) + ">", *lines]


def down(arrows: Sequence[Arrow], lines: list[str]) -> list[str]:
    """Return the picture with arrows on its right, the innermost first."""
    for arrow in arrows:
        width = max(map(len, lines))
        shafts = itertools.chain(
            [f" {arrow.label} |"],
            [" " * (len(arrow.label) + 2) + "|"] * (arrow.height - 2),
            [" " * (len(arrow.label) + 2) + "↓"],
            itertools.repeat(""),
        )
        lines = [
            f"{line:<{width}}{shaft}" if shaft else line
            for line, shaft in zip(lines, shafts, strict=False)
        ]
    return [line.rstrip() for line in lines]
