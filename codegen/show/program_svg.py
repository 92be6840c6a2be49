"""The picture of a program as a standalone SVG: values as boxes, coloured by their split, and
communications as thick edges labelled with the bytes they move.

Each box states its split in text as well as by colour. For a large program only values around
communications are drawn; a dashed edge represents a dependency through omitted values.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape

from shardwright.codegen.partition.local.sizes import size_text
from shardwright.codegen.partition.partitioned import Partitioned
from shardwright.codegen.show.graph_layout import GraphPlaces, place
from shardwright.codegen.show.program_graph import GraphEdge, GraphValue, ProgramGraph, graph_of
from shardwright.codegen.show.svg_text import (
    CHARACTER,
    COLOURS,
    FAINT,
    INK,
    Span,
    box,
    in_pixels,
    root,
    text_lines,
)

WHOLE = 40
"""The maximum number of values of a program that is drawn whole. In a larger program, only
values near communications are drawn."""
MARGIN, TOP, BOX, LABEL, ROW, GAP = 24, 62, 36, 20, 62, 18
LARGE, SMALL = 12, 10
WHOLE_COLOUR, MOVE_COLOUR, MOVE, LINE = "#ffffff", "#fff4dd", "#9a5b00", "#8a93a0"


@dataclass(frozen=True)
class ProgramPicture:
    """A graph with places for its nodes: the values first, then the labels of labelled edges."""

    graph: ProgramGraph
    labelled: tuple[GraphEdge, ...]
    widths: tuple[float, ...]
    links: tuple[tuple[int, int, GraphEdge], ...]  # source node, target node, edge
    placed: GraphPlaces

    @staticmethod
    def of(graph: ProgramGraph) -> ProgramPicture:
        count = len(graph.values)
        labelled = tuple(each for each in graph.edges if each.label)
        texts = [value_lines(value) for value in graph.values]
        widths = [max(_width(a, LARGE), _width(b, SMALL)) for a, b in texts]
        widths += [_width(each.label, SMALL) for each in labelled]
        links: list[tuple[int, int, GraphEdge]] = []
        node = count
        for each in graph.edges:
            if each.label:
                links += [(each.source, node, each), (node, each.target, each)]
                node += 1
            else:
                links.append((each.source, each.target, each))
        placed = _placed(graph, widths, links)
        return ProgramPicture(graph, labelled, tuple(widths), tuple(links), placed)

    @property
    def size(self) -> tuple[float, float]:
        """The width and height of the picture in pixels."""
        height = self.span[1] + MARGIN + 18 * len(self.legend)
        return max(2 * MARGIN + self.placed.width, 720), height

    @property
    def span(self) -> tuple[float, float]:
        """The y coordinates of the top and bottom of the graph, in pixels."""
        return TOP, TOP + self.placed.count * ROW

    @property
    def legend(self) -> dict[str, str]:
        """The colour of each split."""
        ways = dict.fromkeys(value.split for value in self.graph.values)
        named = [way for way in ways if way != "whole"]
        found = {way: COLOURS[n % len(COLOURS)] for n, way in enumerate(named)}
        return found | ({"whole": WHOLE_COLOUR} if "whole" in ways else {})

    def elements(self) -> Iterator[str]:
        """Yield the SVG elements: the edges, then the boxes, then the labels."""
        for path, edge in self.paths():
            style = 'stroke-width="3"' if edge.number else 'stroke-width="1"'
            style += ' stroke-dasharray="5 4"' if edge.hidden else ""
            colour = MOVE if edge.number else LINE
            yield f'<path d="{path}" fill="none" stroke="{colour}" {style}/>'
        colours = self.legend
        for number, value in enumerate(self.graph.values):
            yield self._box(number, value, colours[value.split])
        for number, each in enumerate(self.labelled, len(self.graph.values)):
            yield self._label(number, each)

    def paths(self) -> Iterator[tuple[str, GraphEdge]]:
        """Yield the SVG path of every line between two nodes, with its edge."""
        for (source, target, edge), route in zip(self.links, self.placed.routes, strict=True):
            yield self._path(source, target, route), edge

    def corner(self, node: int) -> tuple[float, float, float, float]:
        """Return the left, top, width and height of a node in pixels."""
        is_value = node < len(self.graph.values)
        top = TOP + self.placed.rows[node] * ROW + (0 if is_value else (BOX - LABEL) / 2)
        width = self.widths[node]
        left = MARGIN + self.placed.middles[node] - width / 2
        return left, top, width, BOX if is_value else LABEL

    def _path(self, source: int, target: int, route: tuple[float, ...]) -> str:
        left, top, width, height = self.corner(source)
        points = [(left + width / 2, top + height)]
        for row, middle in enumerate(route, self.placed.rows[source] + 1):
            at = TOP + row * ROW
            points += [(MARGIN + middle, at), (MARGIN + middle, at + BOX)]
        left, top, width, _ = self.corner(target)
        return _curve([*points, (left + width / 2, top)])

    def _box(self, number: int, value: GraphValue, colour: str) -> str:
        x, y, width, height = self.corner(number)
        first, second = value_lines(value)
        border = f'stroke="{INK}" stroke-width="{2 if value.is_result else 1}"'
        rect = box(x, y, width, height, colour).replace("/>", f' rx="4" {border}/>')
        spans = (
            Span(x + width / 2, y + 15, first, LARGE),
            Span(x + width / 2, y + 29, second, SMALL, FAINT),
        )
        return rect + "".join(text_lines(spans))

    def _label(self, node: int, edge: GraphEdge) -> str:
        x, y, width, height = self.corner(node)
        dashes = "" if edge.number else ' stroke-dasharray="3 3"'
        border = f'rx="10" stroke="{MOVE}"{dashes}'
        rect = box(x, y, width, height, MOVE_COLOUR).replace("/>", f" {border}/>")
        return rect + "".join(text_lines([Span(x + width / 2, y + 14, edge.label, SMALL)]))


def program_svg(program: Partitioned) -> str:
    """Return the picture of a program as deterministic SVG."""
    picture = ProgramPicture.of(drawn(graph_of(program.local)))
    heading = f"{program.program.name} on {program.mesh}"
    width, height = picture.size
    lines = [root(width, height), f"<title>{escape(heading, quote=False)}</title>"]
    lines.append(box(0, 0, width, height, "#ffffff"))
    spans = (Span(MARGIN, 26, heading, 15, anchor="start"), _said(program, picture.graph))
    lines += text_lines(span.within(width - 2 * MARGIN) for span in spans)
    lines += picture.elements()
    lines += _legend(picture)
    return "\n".join([*lines, "</svg>"]) + "\n"


def drawn(graph: ProgramGraph) -> ProgramGraph:
    """Return the part of a graph to draw: for a large graph, the values around communications."""
    return graph if len(graph.values) <= WHOLE else graph.around_communications()


def _said(program: Partitioned, graph: ProgramGraph) -> Span:
    count = len(program.communications)
    text = f"The busiest device receives {size_text(program.bytes_received)} in {count} "
    text += f"communication{'' if count == 1 else 's'}, thick. Each colour is one way of splitting."
    if any(each.hidden for each in graph.edges):
        text += " Values around communications; dashed: through others."
    return Span(MARGIN, 46, text, 12, FAINT, "start")


def _legend(picture: ProgramPicture) -> Iterator[str]:
    y = picture.span[1] + 8
    for way, colour in picture.legend.items():
        rect = box(MARGIN, y, 14, 12, colour).replace("/>", f' stroke="{INK}"/>')
        span = Span(MARGIN + 22, y + 10, way, 11, anchor="start")
        yield rect + "".join(text_lines([span]))
        y += 18


def value_lines(value: GraphValue) -> tuple[str, str]:
    """Return the two lines of text in the box of a value."""
    line = f"  {value.line}" if value.line else ""
    result = ", a result" if value.is_result else ""
    return value.text, f"{value.made_by}{result}{line}"


def _width(text: str, size: float) -> float:
    return CHARACTER * size * len(text) + 16


def _placed(
    graph: ProgramGraph, widths: list[float], links: list[tuple[int, int, GraphEdge]]
) -> GraphPlaces:
    count = len(graph.values)
    before = {source: target for source, target, _ in links if source >= count}
    order = sorted(range(len(widths)), key=lambda n: (before.get(n, n), n < count))
    at = {node: number for number, node in enumerate(order)}
    found = place([widths[n] for n in order], [(at[a], at[b]) for a, b, _ in links], GAP)
    rows = tuple(found.rows[at[node]] for node in range(len(widths)))
    middles = tuple(found.middles[at[node]] for node in range(len(widths)))
    return GraphPlaces(rows, middles, found.routes, found.width, found.count)


def _curve(points: list[tuple[float, float]]) -> str:
    """Return a path that leaves and enters every point vertically."""
    x, y = points[0]
    parts = [f"M{in_pixels(x)} {in_pixels(y)}"]
    for to, down in points[1:]:
        middle = in_pixels((y + down) / 2)
        bend = f"{in_pixels(x)} {middle} {in_pixels(to)} {middle}"
        parts.append(f"C{bend} {in_pixels(to)} {in_pixels(down)}")
        x, y = to, down
    return "".join(parts)
