"""Elements of SVG pictures: boxes, and text of known width. All lengths are in pixels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from html import escape

FONT = "ui-monospace, DejaVu Sans Mono, Menlo, Consolas, monospace"
CHARACTER = 0.61  # width of a character of the font, relative to its size
SIZE = 14  # default size of text
INK, FAINT = "#1f2430", "#5b6270"

COLOURS = (
    *("#cfe3f5", "#f6dcc0", "#d5ecc9", "#ecd2ea", "#f7efb2", "#c9ebe6", "#f3cfd2", "#d9d6f3"),
    *("#e3e0c8", "#cfd8dc"),
)


@dataclass(frozen=True)
class Span:
    """A positioned piece of text. `anchor`: whether the position is its start, middle or end."""

    x: float
    y: float
    text: str
    size: float = SIZE
    colour: str = INK
    anchor: str = "middle"

    def within(self, room: float) -> Span:
        """Shrink the text if it is wider than `room`; truncate it rather than make it illegibly
        small."""
        size = max(min(self.size, room / (CHARACTER * max(len(self.text), 1))), 8)
        most = int(room / (CHARACTER * size) + 1e-6)
        text = self.text if len(self.text) <= most else self.text[: most - 1] + "…"
        return replace(self, text=text, size=size)

    @property
    def style(self) -> dict[str, str]:
        """The SVG attributes of the text, by name."""
        return {
            "font-size": in_pixels(self.size),
            "fill": self.colour,
            "text-anchor": self.anchor,
        }


def root(width: float, height: float) -> str:
    """Return the opening tag of a picture, with the common style of text."""
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


def text_lines(spans: Iterable[Span]) -> Iterator[str]:
    """Yield one text element for all spans, or nothing if there are none."""
    listed = tuple(spans)
    if not listed:
        return
    common = listed[0].style
    said = _differing(common, Span(0, 0, "").style)
    if len(listed) == 1:
        (span,) = listed
        yield f"<text {_place(span.x, span.y)}{said}>{escape(span.text, quote=False)}</text>"
        return
    parts = (
        f"<tspan {_place(span.x, span.y)}{own}>{escape(span.text, quote=False)}</tspan>"
        for span, own in ((span, _differing(span.style, common)) for span in listed)
    )
    yield f"<text{said}>{''.join(parts)}</text>"


def _differing(style: dict[str, str], usual: dict[str, str]) -> str:
    return "".join(f' {name}="{value}"' for name, value in style.items() if value != usual[name])


def _place(x: float, y: float) -> str:
    return f'x="{in_pixels(x)}" y="{in_pixels(y)}"'


def in_pixels(value: float) -> str:
    """Return a number of pixels as text, rounded to a tenth."""
    return f"{value:.1f}".removesuffix(".0")
