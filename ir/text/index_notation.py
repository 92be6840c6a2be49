"""Parse shardings in the index notation of "How to Scale Your Model": `A[I_X, J_Y] {U_Z}`.

Each index is a dimension. Its subscript names the mesh axes that split the dimension, major to
minor: `I_XY`, or `I_{XY}`. `{U_Z}` means that devices along Z have partial sums.
"""

from __future__ import annotations

import re

from shardwright.ir.errors import Span
from shardwright.ir.mesh import AxisRef, Mesh
from shardwright.ir.sharding import DimSharding, Sharding
from shardwright.ir.text.located import Located, Spans

INDEXED = re.compile(r"\s*[A-Za-z]\w*\s*\[")
"""The beginning of a text in this notation, which is never the beginning of another notation."""

_WHOLE = re.compile(r"\s*[A-Za-z]\w*\s*\[([^\[\]]*)\]\s*(?:\{\s*U_(\w+)\s*\}\s*)?")
_INDEX = re.compile(r"\s*([A-Za-z][A-Za-z0-9]*)(?:_(\w+)|_\{(\w+)\})?\s*")
_EXAMPLE = "A[I_X, J], or A[I, J] {U_X}"


def parse_indexed(text: str, mesh: Mesh, argument: str | None = None) -> Sharding:
    """Parse a sharding in index notation, on a mesh. Raise InputError, with a caret,
    for an invalid text.

    >>> print(parse_indexed("A[I_XY, J] {U_Z}", Mesh({"X": 2, "Y": 2, "Z": 2})))
    [{"X", "Y"}, {}], unreduced={"Z"}
    """
    source = Located(text, argument)
    spans: Spans = {(): (0, len(text))}
    dims = []
    for number, found in enumerate(_indices(source)):
        group = 2 if found[2] else 3
        refs = _refs(source, found.span(group), mesh, spans, ("dims", number, "axes"))
        spans["dims", number] = found.span(1)
        dims.append(DimSharding(refs))
    whole = _matched(source)
    unreduced = _refs(source, whole.span(2), mesh, spans, ("unreduced",))
    with source.locating(spans):
        return Sharding(mesh, tuple(dims), (), unreduced)


def index_names(text: str) -> tuple[str, ...]:
    """Return the names of the indices in a text in index notation, without subscripts."""
    return tuple(found[1] for found in _indices(Located(text, None)))


def _matched(source: Located) -> re.Match[str]:
    found = _WHOLE.fullmatch(source.text)
    if found is None:
        raise source.error(
            "the text must be a name, indices in brackets, then any unreduced axes in braces",
            (0, len(source.text)),
            got=source.text,
            expected=_EXAMPLE,
        )
    return found


def _indices(source: Located) -> list[re.Match[str]]:
    """Return one match for each dimension; group 1 is the index, and group 2 or 3 its subscript."""
    start, end = _matched(source).span(1)
    found: list[re.Match[str]] = []
    for part in source.text[start:end].split(","):
        each = _INDEX.fullmatch(source.text, start, start + len(part))
        if each is None:
            raise source.error(
                "a dimension must be an index, with the mesh axes that split it as its subscript",
                (start, start + len(part)),
                got=part.strip() or "nothing",
                expected=_EXAMPLE,
            )
        found.append(each)
        start += len(part) + 1
    return found


def _refs(
    source: Located, span: Span, mesh: Mesh, spans: Spans, where: tuple[str | int, ...]
) -> tuple[AxisRef, ...]:
    """Return the axes of the subscript at `span`, and record the span of each in `spans` under
    `(*where, number)`. Without a subscript, return an empty tuple."""
    start, _ = span
    if start < 0:
        return ()
    names = _axes(source, span, mesh)
    for number, name in enumerate(names):
        spans[(*where, number)] = (start, start + len(name))
        start += len(name)
    return tuple(map(AxisRef, names))


def _axes(source: Located, span: Span, mesh: Mesh) -> tuple[str, ...]:
    """Return the axis names whose concatenation is the text of a subscript. Raise InputError if no
    list of axis names matches, or if several lists do."""
    text = source.text[slice(*span)]
    ways: list[list[tuple[str, ...]]] = [[()]]  # for each prefix, at most two lists of axis names
    for end in range(1, len(text) + 1):
        last = (name for name in mesh.names if text[:end].endswith(name))
        ways.append([(*way, name) for name in last for way in ways[end - len(name)]][:2])
    if not ways[-1]:
        known = ", ".join(f'"{name}"' for name in mesh.names)
        raise source.error(
            "a subscript must consist of axis names of the mesh", span, got=text, expected=known
        )
    if len(ways[-1]) > 1:
        both = (", ".join(f'"{name}"' for name in way) for way in ways[-1])
        raise source.error(
            "a subscript must not be ambiguous",
            span,
            got=f"{text}: {' or '.join(both)}",
            expected="""axes in quotes, for example '[{"X", "Y"}, {}]'""",
        )
    return ways[-1][0]
