"""Parse the texts of stored layouts, such as `stack(0, q[{"tp"}], k)`.

The grammar is in `layout.lark`, the meaning in `ir/parts.py`. The `str` of a layout is such a text.
"""

from __future__ import annotations

import re
from typing import cast

from lark import Token, Tree

from shardwright.ir.axes import AxisRef
from shardwright.ir.dim_cuts import DimCut
from shardwright.ir.errors import InputError, Where
from shardwright.ir.factors import Factors
from shardwright.ir.parts import ONLY, BufferLayout, Stack, TensorPart
from shardwright.ir.text.located import Located, Spans, span_of

Node = Tree[Token]


def parse_layout(text: str, argument: str | None = None) -> BufferLayout:
    """Parse the layout of a buffer. Raise InputError, with a caret, for an invalid text.

    >>> print(parse_layout("stack(0, q[{tp}, {}], k[{tp:(1)2}])"))
    stack(0, q[{"tp"}], k[{"tp":(1)2}])
    """
    return layout_and_spans(text, argument)[0]


def layout_and_spans(text: str, argument: str | None = None) -> tuple[BufferLayout, Spans]:
    """Parse a layout. Return it, with the spans of its parts, dimensions and factors in the text,
    by their paths in the layout. Raise InputError, with a caret, for an invalid text."""
    source = Located(text, argument)
    spans: Spans = {}
    try:
        (node,) = source.tree("layout_text", "a stored layout").children
    except InputError as error:
        raise _mended(error, text) from None
    reader = _LayoutReader(source, spans)
    spans[()] = span_of(node)
    return reader.layout(cast(Node, node)), spans


def parse_dim(text: str, argument: str | None = None) -> DimCut:
    """Return the cut of a dimension, given as `tp`, `"tp":(1)2` or `{"tp"} balanced`. Raise
    InputError, with a caret, for an invalid text.

    >>> print(parse_dim("tp sized(38016)"))
    {"tp"} sized(38016)
    """
    source = Located(text, argument)
    spans: Spans = {}
    (node,) = source.tree("dim_text", "a cut of a dimension").children
    return _LayoutReader(source, spans).dim(cast(Node, node), ())


_MENDS = (
    (r"(\w)\s*\{([^{}]*)\}", r"\1[{\2}]"),  # q{tp}
    (r"\[\s*([^\W\d][^\[\]{}]*|\"[^\[\]{}]*)\]", r"[{\1}]"),  # q[tp]
    (r"\b(stack|cut)\(\s*(?!\d)", r"\1(0, "),  # stack(q, k)
    (r"\bcut\((\d+),\s*([^{},]+),", r"cut(\1, {\2},"),  # cut(0, tp, q)
)
"""Common mistakes: for each, a pattern and its replacement by valid text."""


def _mended(error: InputError, text: str) -> InputError:
    """Return the error with the corrected text as `expected`, if the text is a valid layout after
    common mistakes are corrected; else return the error unchanged."""
    meant = text
    for pattern, by in _MENDS:
        meant = re.sub(pattern, by, meant)
    try:
        Located(meant, None).tree("layout_text", "a stored layout")
    except InputError:
        return error
    again = InputError(error.rule, argument=error.argument, got=error.got, expected=meant)
    return again.within(error.text, error.span)


class _LayoutReader:
    def __init__(self, source: Located, spans: Spans) -> None:
        self.source, self.spans = source, spans

    def layout(self, node: Node) -> BufferLayout:
        if node.data == "part":
            return self.part(node, ("parts", 0))
        (place,) = _tokens(node, "INT")
        dim = self.source.integer(place, span_of(place))
        self.spans["dim",] = span_of(place)
        if node.data == "stack":
            parts = [self.part(each, ("parts", i)) for i, each in enumerate(_trees(node))]
            return Stack(dim, tuple(parts))
        cut, inner = _trees(node)
        how = self.dim(cut, ("cut",))
        found = self.layout(inner)
        if isinstance(found, TensorPart):
            return found.with_cut(dim, how)
        if found.dim != dim:
            raise self.source.error(
                "a cut through a stack must be along the stack's dimension",
                span_of(place),
                got=dim,
                expected=str(found.dim),
            )
        return Stack(dim, found.parts, how)

    def part(self, node: Node, where: Where) -> TensorPart:
        self.spans[where] = span_of(node)
        name = next(iter(_tokens(node, "WORD")), ONLY)
        trees = {tree.data: tree for tree in _trees(node)}
        dims: tuple[DimCut, ...] = ()
        if "dims" in trees:
            nodes = enumerate(_trees(trees["dims"]))
            dims = tuple(self.dim(each, (*where, "dims", i)) for i, each in nodes)
        factors = None
        if "factors" in trees:
            self.spans[*where, "factors"] = span_of(trees["factors"])
            factors = self.factors(trees["factors"])
        return TensorPart(str(name), dims, factors)

    def factors(self, node: Node) -> Factors:
        sides: tuple[list[list[tuple[str, int | None]]], ...] = ([], [])
        arrow = next(i for i, child in enumerate(node.children) if isinstance(child, Token))
        for i, child in enumerate(node.children):
            if isinstance(child, Tree):
                sides[i > arrow].append([self.factor(each) for each in _trees(child)])
        for name, size in (factor for group in sides[1] for factor in group):
            if size is not None:
                raise self.source.error(
                    "the size of a factor must be on the left of ->",
                    span_of(node),
                    got=f"{name}={size}",
                    expected=name,
                )
        with self.source.locating({(): span_of(node)}):
            before = tuple(map(tuple, sides[0]))
            return Factors(before, tuple(tuple(name for name, _ in group) for group in sides[1]))

    def factor(self, node: Node) -> tuple[str, int | None]:
        name, *size = cast(list[Token], node.children)
        if not size:
            return str(name), None
        number = self.source.integer(size[0], span_of(size[0]))
        if number < 1:
            raise self.source.error(
                "a factor must be at least 1", span_of(size[0]), got=number, expected="1, 2, 3, …"
            )
        return str(name), number

    def dim(self, node: Node, where: Where) -> DimCut:
        self.spans[where] = span_of(node)
        said: dict[str, object] = {}
        axes: list[AxisRef] = []
        for tree in _trees(node):
            if tree.data == "ref":
                self.spans[*where, "axes", len(axes)] = span_of(tree)
                with self.source.locating({(): span_of(tree)}):
                    axes.append(self.ref(tree))
            elif tree.data == "window":
                self.spans[*where, "window"] = span_of(tree)
                said["window"] = tuple(self.numbers(tree))
            else:
                self.modifier(tree, said, where)
        spans = {
            place[len(where) :]: span
            for place, span in self.spans.items()
            if place[: len(where)] == where
        }
        with self.source.locating(spans):
            return DimCut(tuple(axes), **said)  # type: ignore[arg-type]

    def ref(self, node: Node) -> AxisRef:
        name, *sizes = cast(list[Token], node.children)
        pre, size = self.numbers(node) if sizes else (None, None)
        return AxisRef(name.strip('"'), pre, size)

    def numbers(self, node: Node) -> list[int]:
        return [self.source.integer(token, span_of(token)) for token in _tokens(node, "INT")]

    def modifier(self, node: Node, said: dict[str, object], where: Where) -> None:
        word, *given = cast(list[Token], node.children)
        name = str(word)
        field = name if name in ("into", "reversed", "table") else "rule"
        self.spans[*where, field] = span_of(node)
        if field in said:
            is_rule = field == "rule"
            raise self.source.error(
                "a cut may have only one rule" if is_rule else f"{name} may be given only once",
                span_of(node),
                got=f"{said['rule']} and {name}" if is_rule else f"{name} twice",
                expected="only one of them",
            )
        for i, token in enumerate(given):
            self.spans[*where, field, i] = span_of(token)
            if token == "-" and field != "table":
                raise self.source.error(
                    "only a table may have - in place of a number",
                    span_of(token),
                    got="-",
                    expected="a number",
                )
        numbers = tuple(
            None if token == "-" else self.source.integer(token, span_of(token)) for token in given
        )
        counts = {"into": 1, "reversed": 0}
        if field in counts and len(numbers) != counts[field]:
            raise self.source.error(
                f"{name} takes {'one number' if counts[field] else 'no numbers'}",
                span_of(node),
                got=self.source.text[slice(*span_of(node))],
                expected=f"{name}(8)" if counts[field] else name,
            )
        if field == "rule":
            said["rule"], said["numbers"] = name, numbers
        else:
            said[field] = {"into": numbers[:1], "reversed": (True,), "table": (numbers,)}[field][0]


def _trees(node: Node) -> list[Node]:
    return [child for child in node.children if isinstance(child, Tree)]


def _tokens(node: Node, kind: str) -> list[Token]:
    return [each for each in node.children if isinstance(each, Token) and each.type == kind]
