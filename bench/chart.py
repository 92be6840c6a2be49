"""A table drawn as SVG, with points and lines over a logarithmic axis, and its data as JSON.

`written` puts NAME.svg and NAME.json into `bench/pictures/`, which is under version control.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

PICTURES = Path(__file__).with_name("pictures")
WIDTH, HEIGHT = 860, 440
LEFT, RIGHT, TOP, BOTTOM = 72, 190, 56, 64
INK, FAINT, GRID = "#1f2430", "#5b6270", "#e4e6ea"
COLOURS = ("#2f6fde", "#d9822b", "#2f9e6e", "#a1459e", "#7a5c3e", "#c43d4b")
STEPS = (1.0, 2.0, 5.0)

Point = tuple[float, float]


@dataclass(frozen=True)
class Series:
    """A named series of points (across, up) in a numbered colour. `joined`: whether a line joins
    the points; `hollow`: whether points are drawn as rings."""

    name: str
    points: tuple[Point, ...]
    colour: int
    joined: bool = False
    hollow: bool = False

    def mark(self, x: float, y: float) -> str:
        """Return the SVG element of one point, at x and y in pixels."""
        colour = COLOURS[self.colour % len(COLOURS)]
        fill = (
            f'fill="none" stroke="{colour}" stroke-width="2"' if self.hollow else f'fill="{colour}"'
        )
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" {fill}/>'


@dataclass(frozen=True)
class Chart:
    """A picture with a logarithmic vertical axis.

    `ticks`: (position, label) pairs on the horizontal axis; `is_log`: whether that axis is
    logarithmic too; `rules`: the (height, label) pairs of horizontal lines.
    """

    title: str
    across: str
    up: str
    series: tuple[Series, ...]
    ticks: tuple[tuple[float, str], ...]
    is_log: bool = False
    rules: tuple[tuple[float, str], ...] = ()

    def x(self, value: float) -> float:
        """Return a value's distance from the left edge, in pixels."""
        places = [place for place, _ in self.ticks] + [p[0] for s in self.series for p in s.points]
        low, high, at = (
            math.log(v) if self.is_log else v for v in (min(places), max(places), value)
        )
        return LEFT + 20 + (at - low) / (high - low or 1) * (WIDTH - LEFT - RIGHT - 40)

    def y(self, value: float) -> float:
        """Return a value's distance from the top edge, in pixels."""
        low, high = map(math.log, self.heights())
        return HEIGHT - BOTTOM - (math.log(value) - low) / (high - low) * (HEIGHT - TOP - BOTTOM)

    def heights(self) -> tuple[float, float]:
        """Return the two ends of the vertical axis: the nearest numbers of the form 1, 2 or 5 times
        a power of ten that enclose all points and rules."""
        seen = [p[1] for s in self.series for p in s.points] + [height for height, _ in self.rules]
        steps = list(_steps(min(seen) / 10, max(seen) * 10))
        least = max(step for step in steps if step <= min(seen) * (1 + 1e-9))
        return least, min(step for step in steps if step >= max(seen) and step > least)


def written(name: str, chart: Chart) -> None:
    """Write the picture, NAME.svg, and its data, NAME.json."""
    PICTURES.mkdir(exist_ok=True)
    figures = {
        "title": chart.title,
        "across": chart.across,
        "up": chart.up,
        "ticks": {label: place for place, label in chart.ticks},
        "rules": {label: height for height, label in chart.rules},
        "series": {s.name: [[x, _rounded(y)] for x, y in s.points] for s in chart.series},
    }
    lines = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in figures.items()]
    (PICTURES / f"{name}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
    (PICTURES / f"{name}.svg").write_text(svg(chart))


def svg(chart: Chart) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
        f'viewBox="0 0 {WIDTH} {HEIGHT}" font-family="DejaVu Sans, Helvetica, Arial, sans-serif">'
    )
    page = f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>'
    name = f"<title>{escape(chart.title)}</title>"
    return "\n".join([head, name, page, *_frame(chart), *_marks(chart), "</svg>"]) + "\n"


def _frame(chart: Chart) -> Iterator[str]:
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    yield _text(LEFT, 30, chart.title, 16, INK, "start")
    low, high = chart.heights()
    for step in _steps(low, high):
        yield _line((LEFT, chart.y(step)), (right, chart.y(step)), GRID)
        yield _text(LEFT - 8, chart.y(step) + 4, f"{step:g}", 11, FAINT, "end")
    for place, label in chart.ticks:
        yield _line((chart.x(place), bottom), (chart.x(place), bottom + 5), FAINT)
        for number, part in enumerate(label.split("\n")):
            yield _text(chart.x(place), bottom + 18 + 13 * number, part, 11, FAINT)
    yield _line((LEFT, bottom), (right, bottom), INK)
    yield _text((LEFT + right) / 2, HEIGHT - 12, chart.across, 12, INK)
    middle = (TOP + bottom) / 2
    yield _text(18, middle, chart.up, 12, INK, more=f' transform="rotate(-90 18 {middle:g})"')
    for height, label in chart.rules:
        yield _line(
            (LEFT, chart.y(height)), (right, chart.y(height)), INK, ' stroke-dasharray="5 4"'
        )
        yield _text(LEFT + 6, chart.y(height) - 5, label, 11, INK, "start")


def _marks(chart: Chart) -> Iterator[str]:
    for number, series in enumerate(chart.series):
        colour = COLOURS[series.colour % len(COLOURS)]
        places = [(chart.x(x), chart.y(y)) for x, y in series.points]
        if series.joined:
            for start, end in itertools.pairwise(places):
                yield _line(start, end, colour, ' stroke-width="2"')
        yield from itertools.starmap(series.mark, places)
        at = TOP + 4 + 18 * number
        yield series.mark(WIDTH - RIGHT + 16, at)
        yield _text(WIDTH - RIGHT + 26, at + 4, series.name, 12, INK, "start")


def _steps(low: float, high: float) -> Iterator[float]:
    for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1):
        for step in STEPS:
            if low * (1 - 1e-9) <= step * 10.0**power <= high * (1 + 1e-9):
                yield step * 10.0**power


def _line(start: Point, end: Point, colour: str, more: str = "") -> str:
    ends = f'x1="{start[0]:.1f}" y1="{start[1]:.1f}" x2="{end[0]:.1f}" y2="{end[1]:.1f}"'
    return f'<line {ends} stroke="{colour}"{more}/>'


def _text(
    x: float, y: float, text: str, size: int, colour: str, anchor: str = "middle", more: str = ""
) -> str:
    where = f'x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}" text-anchor="{anchor}"'
    return f"<text {where}{more}>{escape(text)}</text>"


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
