"""The picture of a reshard as a standalone SVG: source shards, target shards, and the tiles.

A colour is a source shard; a thick line is the edge of a target shard. Large reshards are drawn in
part, and the picture says so.
"""

from __future__ import annotations

import colorsys
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from shardwright.codegen.emit.docstring import title
from shardwright.codegen.show.cuts import Band, CutPicture, holders_text
from shardwright.codegen.show.pictures import axes_text
from shardwright.ir.plan import Plan

DRAWN_BANDS = 16
MARGIN, GAP, TICKS, HEADING = 24, 44, 34, 64
# A panel is between these widths and heights; wider ones stand below one another.
WIDTHS, HEIGHTS = (300, 760), (64, 520)
ROW, COLUMN = 40, 48  # pixels that a band wants
SIDE_BY_SIDE = 420
CHARACTER = 0.61  # width of a character of the monospaced font over its size
Key = Callable[[Band], object]  # what the bands of one box have in common
INK, FAINT, EDGE = "#1f2430", "#5b6270", "#ffffff"


@dataclass(frozen=True)
class Scale:
    """Pixel offsets of the cuts of one dimension within a panel."""

    offsets: tuple[float, ...]
    is_even: bool

    @property
    def length(self) -> float:
        """Pixels in all."""
        return self.offsets[-1]

    def span(self, first: int, last: int) -> tuple[float, float]:
        """Return offset and length of the bands `first` to `last`."""
        return self.offsets[first], self.offsets[last + 1] - self.offsets[first]


@dataclass(frozen=True)
class Canvas:
    """The plane of the tensor that is drawn, and its scales."""

    picture: CutPicture
    across: Scale
    down: Scale

    @property
    def stacked(self) -> bool:
        """Whether the panels stand below one another."""
        return self.across.length > SIDE_BY_SIDE

    @property
    def panel(self) -> tuple[float, float]:
        """Width and height that a panel takes with its heading and its ticks."""
        return TICKS + self.across.length, HEADING + self.down.length

    def corner(self, number: int) -> tuple[float, float]:
        """Return the top left corner of a panel's tensor."""
        width, height = self.panel
        left, top = MARGIN + TICKS, 54 + HEADING
        if self.stacked:
            return left, top + number * (height + GAP)
        return left + number * (width + GAP), top

    def size(self, notes: int) -> tuple[float, float]:
        """Return width and height of the picture."""
        left, top = self.corner(2)
        width = max(left + self.across.length + MARGIN, 640)
        return width, top + self.down.length + MARGIN + 18 * notes


def svg(plan: Plan) -> str:
    """Return the picture of a plan; the same text for the same plan."""
    picture = CutPicture.of(plan.outline, DRAWN_BANDS)
    canvas = Canvas(
        picture,
        _scale(picture.columns, COLUMN, WIDTHS),
        _scale(picture.rows, ROW, HEIGHTS),
    )
    notes = [*picture.notes(), *_scale_note(canvas)]
    width, height = canvas.size(len(notes))
    body = [
        _text(MARGIN, 32, title(plan), 15, anchor="start", room=width - 2 * MARGIN),
        *_panels(plan, canvas),
        *(
            _text(MARGIN, height - MARGIN + 4 - 18 * (len(notes) - 1 - i), note, 12, FAINT, "start")
            for i, note in enumerate(notes)
        ),
    ]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_n(width)}" height="{_n(height)}" '
        f'viewBox="0 0 {_n(width)} {_n(height)}" '
        'font-family="ui-monospace, DejaVu Sans Mono, Menlo, Consolas, monospace">'
    )
    page = f'<rect width="{_n(width)}" height="{_n(height)}" fill="#ffffff"/>'
    return "\n".join([head, f"<title>{escape(title(plan))}</title>", page, *body, "</svg>"]) + "\n"


def _scale(bands: Sequence[Band], wanted: int, limits: tuple[int, int]) -> Scale:
    """Return sizes in proportion where the shortest band stays legible, else partly in equal
    shares."""
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
    exchange, reshard = plan.outline, plan.reshard
    sides = (
        ("Before", reshard.source, exchange.source),
        ("After", reshard.target, exchange.target),
    )
    for number, (word, sharding, layout) in enumerate(sides):
        yield from _heading(canvas, number, f"{word}: {sharding}", f"on {axes_text(layout.mesh)}")
        yield from _ticks(canvas, number, _shard_of(number))
        yield from _shards(canvas, number)
    yield from _heading(canvas, 2, "Tiles: held before → after", _directions(canvas))
    yield from _ticks(canvas, 2, lambda band: (band.source, band.target))
    yield from _tiles(canvas)


def _directions(canvas: Canvas) -> str:
    """Return which dimensions are drawn."""
    drawn = ((canvas.picture.down, "down"), (canvas.picture.across, "across"))
    named = [f"dimension {dim.axis} {way}" for dim, way in drawn if dim is not None]
    return ", ".join(named) or "one element"


def _heading(canvas: Canvas, number: int, first: str, second: str) -> Iterator[str]:
    left, top = canvas.corner(number)
    room = canvas.across.length
    yield _text(left, top - 42, first, 13, anchor="start", room=room)
    yield _text(left, top - 27, second, 11, FAINT, "start", room)


def _ticks(canvas: Canvas, number: int, key: Key) -> Iterator[str]:
    """Yield the tensor index of every cut of a panel, above and on the left, where there is
    room."""
    left, top = canvas.corner(number)
    picture = canvas.picture
    if picture.across is not None:
        for x, mark in _marks(
            canvas.across, picture.columns, key, lambda text: 6.2 * len(text) + 4
        ):
            yield _text(left + x, top - 6, mark, 10, FAINT)
    if picture.down is not None:
        for y, mark in _marks(canvas.down, picture.rows, key, lambda _: 11):
            yield _text(left - 5, top + y + 3.5, mark, 10, FAINT, "end", TICKS - 3)


def _marks(
    scale: Scale, bands: Sequence[Band], key: Key, room: Callable[[str], float]
) -> Iterator[tuple[float, str]]:
    """Yield offset and tensor index of every cut; one that would touch the mark before it is
    left out."""
    cuts = [(offset, band.low) for offset, _, band in _groups(scale, bands, key)]
    last = -100.0
    for offset, index in (*cuts, (scale.length, bands[-1].high)):
        if offset - last > room(str(index)):
            yield offset, str(index)
            last = offset


def _shards(canvas: Canvas, side: int) -> Iterator[str]:
    """Yield the shards of the source (0) or the target (1) with their holders."""
    picture = canvas.picture
    layout = picture.exchange.target if side else picture.exchange.source
    left, top = canvas.corner(side)
    for y, height, row in _groups(canvas.down, picture.rows, _shard_of(side)):
        for x, width, column in _groups(canvas.across, picture.columns, _shard_of(side)):
            index = picture.shards(row, column)[side]
            fill = "#f2f3f5" if side else _colour(picture, row, column)
            yield _box(left + x, top + y, width, height, fill, INK, 1.5)
            yield from _label(left + x, top + y, width, height, (holders_text(layout, index),))


def _shard_of(side: int) -> Key:
    return (lambda band: band.target) if side else (lambda band: band.source)


def _groups(scale: Scale, bands: Sequence[Band], key: Key) -> Iterator[tuple[float, float, Band]]:
    """Yield offset, length and first band of each run of bands of one shard."""
    for _, group in itertools.groupby(enumerate(bands), key=lambda pair: key(pair[1])):
        run = list(group)
        yield *scale.span(run[0][0], run[-1][0]), run[0][1]


def _tiles(canvas: Canvas) -> Iterator[str]:
    picture, exchange = canvas.picture, canvas.picture.exchange
    left, top = canvas.corner(2)
    for r, row in enumerate(picture.rows):
        y, height = canvas.down.span(r, r)
        for c, column in enumerate(picture.columns):
            x, width = canvas.across.span(c, c)
            source, target = picture.shards(row, column)
            texts = holders_text(exchange.source, source), holders_text(exchange.target, target)
            fill = _colour(picture, row, column)
            yield _box(left + x, top + y, width, height, fill, EDGE, 1)
            yield from _label(left + x, top + y, width, height, texts)
    for y, height, _ in _groups(canvas.down, picture.rows, _shard_of(1)):
        for x, width, _ in _groups(canvas.across, picture.columns, _shard_of(1)):
            yield _box(left + x, top + y, width, height, "none", INK, 2)


def _colour(picture: CutPicture, row: Band, column: Band) -> str:
    """Return a colour for the source shard of a tile: hues far apart, all light enough for dark
    text."""
    down = {band.source: i for i, band in enumerate(_firsts(picture.rows))}
    right = {band.source: i for i, band in enumerate(_firsts(picture.columns))}
    number = down[row.source] * len(right) + right[column.source]
    hue = (0.58 + number * 0.61803398875) % 1.0
    lightness = (0.80, 0.86, 0.74)[number // 7 % 3]
    channels = colorsys.hls_to_rgb(hue, lightness, 0.62)
    return "#" + "".join(f"{round(255 * channel):02x}" for channel in channels)


def _firsts(bands: Sequence[Band]) -> list[Band]:
    """Return the first band of every source shard."""
    return [next(group) for _, group in itertools.groupby(bands, key=lambda band: band.source)]


def _label(
    x: float, y: float, width: float, height: float, texts: tuple[str, ...]
) -> Iterator[str]:
    """Yield the texts in the middle of a box, joined by an arrow, on two lines where one is
    small."""
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
        yield _text(x + width / 2, middle + i * size * 1.2 + size * 0.35, line, size)


def _fitting(lines: tuple[str, ...], width: float, height: float) -> float:
    """Return the font size, at most 14, at which lines fit a box."""
    longest = max(map(len, lines))
    return min(14.0, (width - 6) / (CHARACTER * longest), (height - 4) / (1.2 * len(lines)))


def _box(
    x: float, y: float, width: float, height: float, fill: str, stroke: str, line: float
) -> str:
    return (
        f'<rect x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" height="{_n(height)}" '
        f'fill="{fill}" stroke="{stroke}" stroke-width="{_n(line)}"/>'
    )


def _text(
    x: float,
    y: float,
    text: str,
    size: float,
    colour: str = INK,
    anchor: str = "middle",
    room: float | None = None,
) -> str:
    """Return a line of text, smaller where it would not fit its room, cut short below a legible
    size."""
    if room is not None:
        size = max(min(size, room / (CHARACTER * max(len(text), 1))), 8)
        most = int(room / (CHARACTER * size) + 1e-6)
        text = text if len(text) <= most else text[: most - 1] + "…"
    return (
        f'<text x="{_n(x)}" y="{_n(y)}" font-size="{_n(size)}" fill="{colour}" '
        f'text-anchor="{anchor}">{escape(text)}</text>'
    )


def _n(value: float) -> str:
    """Return a number of pixels, to a tenth."""
    return f"{value:.1f}".removesuffix(".0")
