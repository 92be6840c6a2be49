"""The picture of a reshard as a standalone SVG: source shards, target shards, and the tiles.

Each source shard has a colour; thick lines are the edges of target shards. Only a part of a large
reshard is drawn, with a note.
"""

from __future__ import annotations

import colorsys
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

from shardwright.codegen.show.cuts import Band, CutPicture, holders_text
from shardwright.codegen.show.pictures import axes_text
from shardwright.codegen.show.svg_text import (
    CHARACTER,
    FAINT,
    INK,
    Span,
    box,
    in_pixels,
    root,
    text_lines,
)
from shardwright.codegen.text.docstring import title
from shardwright.ir.plan import Plan

DRAWN_BANDS = 16
MARGIN, GAP, TICKS, HEADING = 24, 44, 34, 64
# Maximum width and height of a panel; wide panels are placed one below another.
WIDTHS, HEIGHTS = (300, 760), (64, 520)
ROW, COLUMN = 40, 48  # preferred height or width of a band, in pixels
SIDE_BY_SIDE = 420
PAGE, GREY = "#ffffff", "#f2f3f5"
Key = Callable[[Band], object]  # a key that the bands of one box share
Texts = Callable[[tuple[int, ...], tuple[int, ...]], tuple[str, ...]]  # the label of two shards
# Panels: source shards, target shards, tiles.
KEYS: tuple[Key, ...] = (
    lambda band: band.source,
    lambda band: band.target,
    lambda band: (band.source, band.target),
)


@dataclass(frozen=True)
class Scale:
    """Pixel offsets of the cuts of one dimension within a panel."""

    offsets: tuple[float, ...]
    is_even: bool

    @property
    def length(self) -> float:
        """The length of the dimension in pixels."""
        return self.offsets[-1]

    def span(self, first: int, last: int) -> tuple[float, float]:
        """Return the offset and length of the bands `first` to `last`, in pixels."""
        return self.offsets[first], self.offsets[last + 1] - self.offsets[first]


@dataclass(frozen=True)
class Canvas:
    """The drawn slice of the tensor, and its scales."""

    picture: CutPicture
    across: Scale
    down: Scale

    @property
    def stacked(self) -> bool:
        """Return whether the panels are placed one below another."""
        return self.across.length > SIDE_BY_SIDE

    @property
    def panel(self) -> tuple[float, float]:
        """The width and height of a panel, with its heading and ticks."""
        return TICKS + self.across.length, HEADING + self.down.length

    def corner(self, number: int) -> tuple[float, float]:
        """Return the top left corner of a panel's tensor as (x, y) in pixels."""
        width, height = self.panel
        left, top = MARGIN + TICKS, 54 + HEADING
        if self.stacked:
            return left, top + number * (height + GAP)
        return left + number * (width + GAP), top

    def size(self, notes: int) -> tuple[float, float]:
        """Return the width and height of the picture for a number of notes."""
        left, top = self.corner(2)
        width = max(left + self.across.length + MARGIN, 640)
        return width, top + self.down.length + MARGIN + 18 * notes


def svg(plan: Plan) -> str:
    """Return the picture of a plan as deterministic SVG."""
    picture = CutPicture.of(plan.outline, DRAWN_BANDS)
    canvas = Canvas(
        picture,
        _scale(picture.columns, COLUMN, WIDTHS),
        _scale(picture.rows, ROW, HEIGHTS),
    )
    notes = [*picture.notes(), *_scale_note(canvas)]
    width, height = canvas.size(len(notes))
    below = height - MARGIN + 4 - 18 * (len(notes) - 1)
    lines = [
        root(width, height),
        f"<title>{escape(title(plan), quote=False)}</title>",
        "<defs>",
        *_shapes(canvas),
        "</defs>",
        box(0, 0, width, height, PAGE),
        *text_lines([_start(MARGIN, 32, title(plan), 15).within(width - 2 * MARGIN)]),
        *_panels(plan, canvas),
        *text_lines(
            _start(MARGIN, below + 18 * i, note, 12, FAINT) for i, note in enumerate(notes)
        ),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _shapes(canvas: Canvas) -> Iterator[str]:
    picture = canvas.picture
    yield '<g id="source">'
    for y, height, row in _groups(canvas.down, picture.rows, KEYS[0]):
        for x, width, column in _groups(canvas.across, picture.columns, KEYS[0]):
            yield box(x, y, width, height, _colour(picture, row, column))
    yield "</g>"
    right, bottom = in_pixels(canvas.across.length), in_pixels(canvas.down.length)
    down = [in_pixels(y) for y, _, _ in _groups(canvas.down, picture.rows, KEYS[1])]
    across = [in_pixels(x) for x, _, _ in _groups(canvas.across, picture.columns, KEYS[1])]
    lines = [*(f"M0 {y}H{right}" for y in down[1:]), *(f"M{x} 0V{bottom}" for x in across[1:])]
    yield f'<path id="target" d="{" ".join((f"M0 0H{right}V{bottom}H0Z", *lines))}"/>'


def _scale(bands: Sequence[Band], wanted: int, limits: tuple[int, int]) -> Scale:
    """Return a scale with lengths in proportion to extents. If the shortest band would be
    illegible, 70% of the length is divided equally among the bands, and only the rest in
    proportion."""
    least, most = limits
    length = min(max(least, wanted * len(bands)), most)
    extents = [band.high - band.low for band in bands]
    total = sum(extents)
    is_even = min(extents) * length >= 0.6 * wanted * total or len(set(extents)) == 1
    own = 0.0 if is_even else 0.7 * length / len(bands)
    rest = length - own * len(bands)
    widths = (own + rest * extent / total for extent in extents)
    return Scale(tuple(itertools.accumulate(widths, initial=0.0)), is_even)


def _scale_note(canvas: Canvas) -> list[str]:
    even = canvas.across.is_even and canvas.down.is_even
    return [] if even else ["Narrow bands are drawn wider than they are."]


def _panels(plan: Plan, canvas: Canvas) -> Iterator[str]:
    before, after = plan.outline.source, plan.outline.target
    yield from _headed(canvas, 0, f"Before: {plan.reshard.source}", f"on {axes_text(before.mesh)}")
    yield _used(canvas, 0, "source", 1.5, INK)
    yield from _labels(canvas, 0, lambda source, _: (holders_text(before, source),))
    yield from _headed(canvas, 1, f"After: {plan.reshard.target}", f"on {axes_text(after.mesh)}")
    yield _used(canvas, 1, "target", 1.5, INK, GREY)
    yield from _labels(canvas, 1, lambda _, target: (holders_text(after, target),))
    yield from _headed(canvas, 2, "Tiles: held before → after", _directions(canvas))
    yield _used(canvas, 2, "source", 1, PAGE)
    yield _used(canvas, 2, "target", 2, INK, "none")
    yield from _labels(
        canvas,
        2,
        lambda source, target: (holders_text(before, source), holders_text(after, target)),
    )


def _directions(canvas: Canvas) -> str:
    drawn = ((canvas.picture.down, "down"), (canvas.picture.across, "across"))
    named = [f"dimension {dim.axis} {way}" for dim, way in drawn if dim is not None]
    return ", ".join(named) or "one element"


def _headed(canvas: Canvas, number: int, first: str, second: str) -> Iterator[str]:
    left, top = canvas.corner(number)
    picture, room = canvas.picture, canvas.across.length
    lines = _start(left, top - 42, first, 13), _start(left, top - 27, second, 11, FAINT)
    yield from text_lines(line.within(room) for line in lines)
    marks: list[Span] = []
    if picture.across is not None:
        listed = _marks(canvas.across, picture.columns, KEYS[number], _width_of_mark)
        marks += (Span(left + x, top - 6, mark, 10, FAINT) for x, mark in listed)
    if picture.down is not None:
        listed = _marks(canvas.down, picture.rows, KEYS[number], lambda _: 11)
        down = (Span(left - 5, top + y + 3.5, mark, 10, FAINT, "end") for y, mark in listed)
        marks += (mark.within(TICKS - 3) for mark in down)
    yield from text_lines(marks)


def _start(x: float, y: float, text: str, size: float, colour: str = INK) -> Span:
    return Span(x, y, text, size, colour, "start")


def _width_of_mark(text: str) -> float:
    return 6.2 * len(text) + 4


def _marks(
    scale: Scale, bands: Sequence[Band], key: Key, room: Callable[[str], float]
) -> Iterator[tuple[float, str]]:
    """Yield the offset and the tensor index of every cut, except where a mark would touch the
    previous mark."""
    cuts = [(offset, band.low) for offset, _, band in _groups(scale, bands, key)]
    last = -100.0
    for offset, index in (*cuts, (scale.length, bands[-1].high)):
        if offset - last > room(str(index)):
            yield offset, str(index)
            last = offset


def _used(
    canvas: Canvas, number: int, shape: str, line: float, stroke: str, fill: str | None = None
) -> str:
    left, top = canvas.corner(number)
    filled = "" if fill is None else f' fill="{fill}"'
    lined = f'stroke="{stroke}" stroke-width="{in_pixels(line)}"'
    return f'<use href="#{shape}" x="{in_pixels(left)}" y="{in_pixels(top)}"{filled} {lined}/>'


def _groups(scale: Scale, bands: Sequence[Band], key: Key) -> Iterator[tuple[float, float, Band]]:
    for _, group in itertools.groupby(enumerate(bands), key=lambda pair: key(pair[1])):
        run = list(group)
        yield *scale.span(run[0][0], run[-1][0]), run[0][1]


def _labels(canvas: Canvas, number: int, texts: Texts) -> Iterator[str]:
    left, top = canvas.corner(number)
    picture = canvas.picture
    for y, height, row in _groups(canvas.down, picture.rows, KEYS[number]):
        yield from text_lines(
            span
            for x, width, column in _groups(canvas.across, picture.columns, KEYS[number])
            for span in _label(
                left + x, top + y, width, height, texts(*picture.shards(row, column))
            )
        )


def _colour(picture: CutPicture, row: Band, column: Band) -> str:
    """Return a colour for a tile's source shard. Hues are far apart, and all are light enough
    for dark text."""
    down = {band.source: i for i, band in enumerate(_firsts(picture.rows))}
    right = {band.source: i for i, band in enumerate(_firsts(picture.columns))}
    number = down[row.source] * len(right) + right[column.source]
    hue = (0.58 + number * 0.61803398875) % 1.0
    lightness = (0.80, 0.86, 0.74)[number // 7 % 3]
    channels = colorsys.hls_to_rgb(hue, lightness, 0.62)
    return "#" + "".join(f"{round(255 * channel):02x}" for channel in channels)


def _firsts(bands: Sequence[Band]) -> list[Band]:
    return [next(group) for _, group in itertools.groupby(bands, key=lambda band: band.source)]


def _label(
    x: float, y: float, width: float, height: float, texts: tuple[str, ...]
) -> Iterator[Span]:
    one: tuple[str, ...] = (" → ".join(texts),)
    two = (texts[0], *(f"→ {text}" for text in texts[1:]))
    lines = one
    if _fitting(one, width, height) < 9:
        lines = max((one, two), key=lambda lines: _fitting(lines, width, height))
    size = _fitting(lines, width, height)
    if size < 5:
        return
    middle = y + height / 2 - (len(lines) - 1) * size * 0.6
    for i, line in enumerate(lines):
        yield Span(x + width / 2, middle + i * size * 1.2 + size * 0.35, line, size)


def _fitting(lines: tuple[str, ...], width: float, height: float) -> float:
    """Return the font size, at most 14, at which the lines fit into a box."""
    longest = max(map(len, lines))
    return min(14.0, (width - 6) / (CHARACTER * longest), (height - 4) / (1.2 * len(lines)))
