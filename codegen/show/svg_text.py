"""Elements of an SVG picture: boxes, and text in a font whose width is known. Lengths in pixels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from xml.sax.saxutils import escape

FONT = "ui-monospace, DejaVu Sans Mono, Menlo, Consolas, monospace"
CHARACTER = 0.61  # width of a character of that font over its size
SIZE = 14  # of text, if nothing else is said
INK, FAINT = "#1f2430", "#5b6270"


@dataclass(frozen=True)
class Span:
    """A piece of text at a place of its own."""

    x: float
    y: float
    text: str
    size: float = SIZE

    def within(self, room: float) -> Span:
        """Return it smaller where it is wider than `room`, cut short below a legible size."""
        size = max(min(self.size, room / (CHARACTER * max(len(self.text), 1))), 8)
        most = int(room / (CHARACTER * size) + 1e-6)
        text = self.text if len(self.text) <= most else self.text[: most - 1] + "…"
        return Span(self.x, self.y, text, size)


def root(width: float, height: float) -> str:
    """Return the first line of a picture, which says what texts have in common."""
    across, down = in_pixels(width), in_pixels(height)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{across}" height="{down}" '
        f'viewBox="0 0 {across} {down}" '
        f'font-family="{FONT}" font-size="{SIZE}" text-anchor="middle" fill="{INK}">'
    )


def box(x: float, y: float, width: float, height: float, fill: str) -> str:
    """Return a rectangle of one colour."""
    size = f'width="{in_pixels(width)}" height="{in_pixels(height)}"'
    return f'<rect {_place(x, y)} {size} fill="{fill}"/>'


def text_lines(spans: Iterable[Span], colour: str = INK, anchor: str = "middle") -> Iterator[str]:
    """Yield one element for all spans, if there are any; `anchor`: which end of a span is at its
    place."""
    listed = tuple(spans)
    if not listed:
        return
    size = in_pixels(listed[0].size)
    said = {"font-size": size, "fill": colour, "text-anchor": anchor}
    usual = {"font-size": in_pixels(SIZE), "fill": INK, "text-anchor": "middle"}
    common = "".join(f' {name}="{value}"' for name, value in said.items() if value != usual[name])
    if len(listed) == 1:
        (span,) = listed
        yield f"<text {_place(span.x, span.y)}{common}>{escape(span.text)}</text>"
        return
    parts = (_tspan(span, size) for span in listed)
    yield f"<text{common}>{''.join(parts)}</text>"


def _tspan(span: Span, usual: str) -> str:
    size = in_pixels(span.size)
    own = "" if size == usual else f' font-size="{size}"'
    return f"<tspan {_place(span.x, span.y)}{own}>{escape(span.text)}</tspan>"


def _place(x: float, y: float) -> str:
    return f'x="{in_pixels(x)}" y="{in_pixels(y)}"'


def in_pixels(value: float) -> str:
    """Return a number of pixels, to a tenth."""
    return f"{value:.1f}".removesuffix(".0")
