"""Parse shardings as JAX and torch print them: `P('x', None)` and `(Shard(dim=0), Replicate())`.

The grammar is in `framework.lark`.
"""

from __future__ import annotations

import re
from typing import cast

from lark import Token, Tree

from shardwright.ir.errors import one_of
from shardwright.ir.jax_specs import Spec
from shardwright.ir.mesh import Mesh
from shardwright.ir.sharding import OPERATORS, Sharding
from shardwright.ir.text.located import Located, Spans, span_of
from shardwright.ir.torch_placements import Placed

SPEC = re.compile(r"\s*(?:jax\.sharding\.)?(?:P|PartitionSpec)\s*\(")
_PLACEMENT = "(?:Shard|Replicate|Partial|_StridedShard)"
PLACEMENTS = re.compile(rf"\s*(?:[\[(]\s*{_PLACEMENT}\b|{_PLACEMENT}\s*\()")


def parse_spec(text: str, mesh: Mesh, rank: int | None, argument: str | None = None) -> Sharding:
    """Parse the printed form of a PartitionSpec as a sharding on a mesh.

    `rank`: the rank of the tensor; None: the number of entries of the spec. Raises InputError, with
    a caret, for an invalid text.

    >>> print(parse_spec("P(('x', 'y'), None)", Mesh({"x": 2, "y": 2}), 2))
    [{"x", "y"}, {}]
    """
    source = Located(text, argument)
    tree = source.tree("spec_text", "a PartitionSpec")
    spans: Spans = {(): span_of(tree)}
    dims: list[tuple[str, ...] | None] = []
    sets: dict[str, tuple[str, ...]] = {}
    for item in cast(list[Tree[Token]], tree.children[1:]):
        names = tuple(_unquoted(token) for token in _strings(item))
        if item.data == "axis_set":
            kind = cast(Token, item.children[0])
            if kind in sets:
                raise source.error(
                    f"{kind} may be given only once", span_of(kind), got=f"{kind} twice"
                )
            sets[kind] = names
            place: tuple[str | int, ...] = (str(kind),)
        else:
            place = ("dims", len(dims), "axes")
            dims.append(None if _is(item, "UNCONSTRAINED") else names)
        spans |= {(*place, j): span_of(token) for j, token in enumerate(_strings(item))}
    spec = Spec(tuple(dims), sets.get("unreduced", ()), text.strip())
    with source.locating(spans):
        return spec.sharding(mesh, len(dims) if rank is None else rank)


def parse_placements(text: str, argument: str | None = None) -> tuple[Placed, ...]:
    """Parse the printed form of placements. Raise InputError, with a caret, for an invalid text.

    >>> [each.dim for each in parse_placements("(Shard(dim=0), Replicate())")]
    [0, None]
    """
    source = Located(text, argument)
    tree = source.tree("placements_text", "a sequence of placements")
    return tuple(_placed(source, node) for node in cast(list[Tree[Token]], tree.children))


def _placed(source: Located, node: Tree[Token]) -> Placed:
    text = source.text[slice(*span_of(node))]
    numbers = [source.integer(token, span_of(token)) for token in _tokens(node, "INT")]
    if numbers:
        dim, factor = (*numbers, 1)[:2]
        return Placed(text, dim, factor)
    if _is(node, "REPLICATE"):
        return Placed(text)
    operators = [*_tokens(node, "OPERATOR"), *_strings(node)]
    operator = _unquoted(operators[0]) if operators else "sum"
    if operator not in OPERATORS:
        raise source.error(
            "unknown operator of a partial value", span_of(operators[0]), got=operator,
            expected=one_of(OPERATORS),
        )  # fmt: skip
    return Placed(text, operator=operator)


def _tokens(node: Tree[Token], kind: str) -> list[Token]:
    return [each for each in node.children if isinstance(each, Token) and each.type == kind]


def _strings(node: Tree[Token]) -> list[Token]:
    return _tokens(node, "STRING")


def _is(node: Tree[Token], kind: str) -> bool:
    return bool(_tokens(node, kind))


def _unquoted(token: Token) -> str:
    return token[1:-1] if token.type == "STRING" else str(token)
