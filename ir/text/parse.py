"""Parse meshes, shardings and shapes. The `str` of a mesh or sharding is its canonical text.

The grammar is in `grammar.lark`. Every mistake, of syntax or of meaning, raises an InputError with
a caret under its token.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import cast

from lark import Token, Tree

from shardwright.ir.axes import AxisRef
from shardwright.ir.errors import Span, Where, one_of, suggested
from shardwright.ir.mesh import Mesh
from shardwright.ir.sharding import DimSharding, Operator, Sharding, check_shape
from shardwright.ir.text.hlo_sharding import hlo_sharding
from shardwright.ir.text.located import Located, Spans, span_of

Node = Tree[Token]
Meshes = Mesh | Iterable[Mesh] | None

HLO = re.compile(
    r"\s*(?:sharding\s*=\s*)?\{\s*(?:devices\s*=|(?:replicated|maximal|manual|unreduced)\b)"
)
"""The beginning of a text in the notation of HLO."""
ELEMENT = re.compile(r"tensor\s*<\s*((?:(?:\?|[0-9]+)x)*)[A-Za-z]\w*\s*>")
SHAPE = re.compile(r"\s*(?:\((?P<round>.*)\)|\[(?P<square>.*)\]|(?P<plain>.*?))\s*", re.DOTALL)


def parse_mesh(text: str, argument: str | None = None) -> Mesh:
    """Parse a mesh: `<["x"=2, "y"=3]>`, or `x=2,y=3`. The text may list the devices,
    `device_ids=[...]`, and name the mesh, `@m = ...`.

    >>> print(parse_mesh('{<["x"=2]>, device_ids=[1, 0]}'))
    <["x"=2], device_ids=[1, 0]>
    """
    source = Located(text, argument)
    return _mesh(source, _child(source.tree("mesh_text", "a mesh")))


def parse_meshes(text: str, argument: str | None = None) -> tuple[Mesh, ...]:
    """Parse a list of named meshes, `@name = <[...]>`, skipping comments, `// ...`. Raise
    InputError, with a caret, for an invalid text."""
    source = Located(text, argument)
    meshes: dict[str | None, Mesh] = {}
    for node in source.tree("meshes_text", "a list of named meshes").children:
        mesh = _mesh(source, cast(Node, node))
        if mesh.name in meshes:
            raise source.error(
                "names of meshes must be distinct",
                span_of(_tokens(node, "MESH_NAME")[0]),
                got=f"@{mesh.name} twice",
                expected="a different name",
            )
        meshes[mesh.name] = mesh
    return tuple(meshes.values())


def parse_sharding(
    text: str, meshes: Meshes = None, argument: str | None = None, rank: int | None = None
) -> Sharding:
    """Parse a sharding. It is on the given mesh, on one of several meshes that the
    text names, or on a mesh that the text contains.

    The notation of HLO (`hlo_sharding.py`) needs exactly one mesh. `rank`: the rank of the tensor,
    which `{replicated}` does not state.

    >>> print(parse_sharding('<@m, [{"x", ?}p1], replicated={}>', Mesh({"x": 2}, name="m")))
    [{"x", ?}p1]
    """
    source = Located(text, argument)
    known = (meshes,) if isinstance(meshes, Mesh) else tuple(meshes or ())
    if len(known) == 1 and HLO.match(text):
        return hlo_sharding(source, known[0], rank)
    tree = source.tree("sharding_text", "a sharding")
    node = next(child for child in tree.children if isinstance(child, Tree))
    bare = _child(node, "bare") if node.data == "bound" else node
    mesh = _mesh_of(source, node, known, only=isinstance(meshes, Mesh))
    sharding = _sharding(source, bare, mesh)
    for tensor in _tokens(tree, "TENSOR"):
        sharding = _for_tensor(source, sharding, tensor, _child(bare, "dims"))
    return sharding


def parse_shape(text: str, argument: str | None = None) -> tuple[int, ...]:
    """Parse a shape: `6x6`, `6,6`, `(6, 6)` or `[6, 6]`. A scalar has shape `()`.

    >>> parse_shape("2x3"), parse_shape("(7,)"), parse_shape("()")
    ((2, 3), (7,), ())
    """
    source = Located(text, argument)
    inside = _inside_brackets(text)
    extents: list[int] = []
    spans: Spans = {(): (inside[0], inside[1])}
    for i, part in enumerate(_shape_parts(text, inside)):
        spans["shape", i] = part
        extents.append(_extent(source, part))
    with source.locating(spans):
        return check_shape(extents, argument or "shape")


def _inside_brackets(text: str) -> Span:
    match = SHAPE.fullmatch(text)
    return match.span(match.lastgroup or 0) if match else (0, len(text))


def _shape_parts(text: str, inside: Span) -> list[Span]:
    """Return the spans of the extents in a shape. In brackets, a trailing separator is allowed."""
    bracketed = inside[0] > 0 and text[inside[0] - 1] in "(["
    body = text[slice(*inside)]
    if bracketed and not body.strip():
        return []
    parts, start = [], inside[0]
    for separator in re.finditer("[x,×]", body):
        parts.append((start, inside[0] + separator.start()))
        start = inside[0] + separator.end()
    last = (start, inside[1])
    dropped = bracketed and parts and not text[slice(*last)].strip()
    return parts if dropped else [*parts, last]


def _extent(source: Located, part: Span) -> int:
    given = source.text[slice(*part)]
    lead = len(given) - len(given.lstrip())
    span = (part[0] + lead, part[0] + lead + len(given.strip())) if given.strip() else part
    if re.fullmatch("-?[0-9]+", given.strip()):
        return source.integer(given.strip(), span)
    raise source.error(
        "the text is not a shape",
        span,
        got=given.strip() or "nothing in place of an extent",
        expected="extents, for example 6x6 or 6,6",
    )


def _mesh(source: Located, node: Node) -> Mesh:
    spans: Spans = {(): span_of(node)}
    name = _tokens(node, "MESH_NAME")
    inner = _child(node, "mesh") if node.data == "named_mesh" else node
    axes = [_axis(source, axis, i, spans) for i, axis in enumerate(_children(inner))]
    ids = _tokens(inner, "ID_LIST")
    if len(ids) > 1:
        raise source.error("device_ids may be given only once", span_of(ids[1]), got="two lists")
    device_ids = source.integers(ids[0], spans) if ids else None
    with source.locating(spans):
        return Mesh(axes, device_ids, name[0][1:] if name else None)


def _axis(source: Located, node: Node, i: int, spans: Spans) -> tuple[str, int]:
    name, size = cast(list[Token], node.children)
    spans["axes", i, "name"], spans["axes", i, "size"] = span_of(name), span_of(size)
    return name.strip('"'), source.integer(size, span_of(size))


def _mesh_of(source: Located, node: Node, known: tuple[Mesh, ...], only: bool) -> Mesh:
    """Return the mesh of a `bare` or `bound` sharding node. `only`: whether a mesh in the text must
    equal the only known mesh."""
    named = _tokens(node, "MESH_NAME")
    if named:
        return _named_mesh(source, named[0], known)
    inline = _children(node, "inline_mesh")
    if not inline:
        if len(known) == 1:
            return known[0]
        raise source.error(
            "a sharding must name its mesh unless exactly one is given",
            span_of(node),
            got=f"{len(known)} meshes",
            expected="<@name, [...]> or <mesh<[...]>, [...]>",
        )
    mesh = _mesh(source, inline[0])
    if only and mesh != known[0]:
        raise source.error(
            "the mesh written in a sharding must equal the given mesh",
            span_of(inline[0]),
            got=mesh,
            expected=str(known[0]),
        )
    return mesh


def _named_mesh(source: Located, token: Token, known: tuple[Mesh, ...]) -> Mesh:
    """Return the known mesh that a token names. If the only known mesh has no name, it matches any
    name."""
    for mesh in known:
        if mesh.name == token[1:] or (len(known) == 1 and mesh.name is None):
            return mesh
    names = [f"@{mesh.name}" for mesh in known if mesh.name]
    raise source.error(
        "the mesh that a sharding names must be given" + suggested(str(token), names),
        span_of(token),
        got=str(token),
        expected=one_of(names) if names else "a mesh of that name",
    )


def _sharding(source: Located, node: Node, mesh: Mesh) -> Sharding:
    spans: Spans = {(): span_of(node)}
    dims = tuple(
        _dim(source, dim, ("dims", i), spans)
        for i, dim in enumerate(_children(_child(node, "dims")))
    )
    sets: dict[str, tuple[AxisRef, ...]] = {}
    operator: Operator = "sum"
    for axis_set in _children(node, "axis_set"):
        kind = _tokens(axis_set, "KIND")[0]
        if kind in sets:
            raise source.error(f"{kind} may be given only once", span_of(kind), got=f"{kind} twice")
        sets[str(kind)] = _refs(source, axis_set, (str(kind),), spans)
        operator = _operator(source, axis_set, kind) or operator
    replicated, unreduced = (sets.get(kind, ()) for kind in ("replicated", "unreduced"))
    with source.locating(spans):
        return Sharding(mesh, dims, replicated, unreduced, operator)


def _operator(source: Located, axis_set: Node, kind: Token) -> Operator | None:
    for token in _tokens(axis_set, "OPERATOR"):
        if kind != "unreduced":
            raise source.error(
                "only unreduced axes may have an operator",
                span_of(token),
                got=f"{kind}={token}{{…}}",
                expected=f"{kind}={{…}}",
            )
        return cast(Operator, str(token))
    return None


def _dim(source: Located, node: Node, where: Where, spans: Spans) -> DimSharding:
    refs = _refs(source, node, (*where, "axes"), spans)
    given = _tokens(node, "PRIORITY")
    priority = source.priority(given[0]) if given else None
    with source.locating({("priority",): span_of(given[0] if given else node)}):
        return DimSharding(refs, bool(_tokens(node, "OPEN")), priority)


def _refs(source: Located, node: Node, where: Where, spans: Spans) -> tuple[AxisRef, ...]:
    """Return the axis references that a node contains, and record the span of number j in `spans`
    under `(*where, j)`."""
    refs: list[AxisRef] = []
    for j, ref in enumerate(_children(node, "ref")):
        spans[*where, j] = span_of(ref)
        name, *sub_axis = cast(list[Token], ref.children)
        with source.locating({(): span_of(ref)}):
            numbers = [source.integer(number, span_of(number)) for number in sub_axis]
            refs.append(AxisRef(name[1:-1], *numbers))
    return tuple(refs)


def _for_tensor(source: Located, sharding: Sharding, tensor: Token, dims: Node) -> Sharding:
    """Return the sharding for the rank of a tensor type. Raise InputError if their ranks differ."""
    match = ELEMENT.fullmatch(str(tensor))
    if match is None:
        raise source.error(
            "the text is not a tensor type",
            span_of(tensor),
            got=str(tensor),
            expected="extents and an element type, for example tensor<4x8xf32>",
        )
    with source.locating({(): span_of(dims)}):
        return sharding.for_rank(match[1].count("x"))


def _children(node: Node, kind: str | None = None) -> list[Node]:
    found = (child for child in node.children if isinstance(child, Tree))
    return [child for child in found if kind is None or child.data == kind]


def _child(node: Node, kind: str | None = None) -> Node:
    return _children(node, kind)[0]


def _tokens(node: Node | Token, kind: str) -> list[Token]:
    children = node.children if isinstance(node, Tree) else ()
    return [child for child in children if isinstance(child, Token) and child.type == kind]
