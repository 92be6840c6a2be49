"""Derive the closed forms of an exchange, as the index functions that every emitted module defines.

All kernel backends emit these functions, printed for their target. Readers can compare them side by
side, and checkers can evaluate a module's own functions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import sympy

from shardwright.ir.algebra.bounds import bounds
from shardwright.ir.algebra.identities import simplify
from shardwright.ir.algebra.index import Index, Value, maximum, minimum
from shardwright.ir.cuts import Let, unnamed
from shardwright.ir.exchange import Exchange
from shardwright.ir.layout import Layout
from shardwright.ir.mesh import Mesh


@dataclass(frozen=True)
class Assignment:
    """The assignment `name = value`."""

    name: str
    value: sympy.Expr


@dataclass(frozen=True)
class IndexFunction:
    """A function of positions or shard indices. It returns a tuple, or one value if it is
    `single`."""

    name: str
    parameters: tuple[str, ...]
    doc: str
    lines: tuple[Assignment, ...]
    results: tuple[sympy.Expr, ...]
    single: bool = False

    @property
    def values(self) -> tuple[sympy.Expr, ...]:
        """The expressions of all assignments and results."""
        return (*(line.value for line in self.lines), *self.results)


@dataclass
class FunctionBody:
    """Collects the assignments of a function while its results are derived."""

    lines: list[Assignment] = field(default_factory=list)
    taken: dict[str, int] = field(default_factory=dict)

    def let(self, name: str, value: Value) -> Value:
        """Assign an expression to a name, and return the name as a symbol with the bounds of the
        expression. Return a plain value unchanged."""
        value = simplify(value)
        if not value.args:
            return value
        for line in self.lines:
            if line.value == value:
                return self._symbol(line.name, value)
        count = self.taken.get(name, 0)
        self.taken[name] = count + 1
        unique = name if count == 0 else f"{name}_{count}"
        self.lines.append(Assignment(unique, value))
        return self._symbol(unique, value)

    @staticmethod
    def _symbol(name: str, value: sympy.Expr) -> Index:
        ends = bounds(value)
        return Index(name, sympy.oo if ends is None else ends[1] + 1)

    def named(self, axis: int, side: str = "") -> Let:
        """Return a `let` whose names include the dimension, and the side if a function handles both
        sides."""
        return lambda name, value: self.let(f"{side}{name}{axis}", value)


def index_functions(exchange: Exchange) -> tuple[IndexFunction, ...]:
    """Return the index functions of an exchange, in the order in which a module defines them."""
    source, target = exchange.source, exchange.target
    return (
        _shard("source", source),
        _shard("target", target),
        box_function("source", source),
        box_function("target", target),
        _range("source", source, "a"),
        _tile(exchange),
        _peers("senders", target, source, "source shards that meet a target shard"),
        _peers("receivers", source, target, "target shards that meet a source shard"),
        _target_position(target),
        _holder(exchange),
        *((_piece_range(exchange),) if exchange.rule.pieces > 1 else ()),
    )


def box_functions(exchange: Exchange) -> tuple[IndexFunction, ...]:
    """Return the box functions of both sides, for modules whose plan is not an exchange."""
    return box_function("source", exchange.source), box_function("target", exchange.target)


def _function(
    name: str,
    parameters: tuple[Index, ...],
    doc: str,
    derive: Callable[[FunctionBody], tuple[Value, ...]],
    single: bool = False,
) -> IndexFunction:
    body = FunctionBody()
    results = tuple(simplify(result) for result in derive(body))
    lines = _needed(body.lines, results)
    return IndexFunction(name, tuple(p.name for p in parameters), doc, lines, results, single)


def _needed(lines: list[Assignment], results: tuple[sympy.Expr, ...]) -> tuple[Assignment, ...]:
    """Return the assignments on which the results depend, directly or indirectly, in order."""
    used = {symbol.name for result in results for symbol in result.free_symbols}
    kept: list[Assignment] = []
    for line in reversed(lines):
        if line.name in used:
            kept.append(line)
            used |= {symbol.name for symbol in line.value.free_symbols}
    return tuple(reversed(kept))


def _position(layout: Layout, name: str = "position") -> Index:
    return Index(name, layout.mesh.size)


def _shards(layout: Layout, letter: str) -> tuple[Index, ...]:
    return tuple(Index(f"{letter}{axis}", dim.parts) for axis, dim in enumerate(layout.dims))


def _known(symbols: tuple[Index, ...]) -> tuple[Value, ...]:
    """Replace symbols of extent 1 by zero."""
    return tuple(sympy.Integer(0) if s.extent == 1 else s for s in symbols)


def _shard(side: str, layout: Layout) -> IndexFunction:
    position = _position(layout)
    doc = f"Index of the {side} shard, per dimension, at a position of the {side} mesh."
    return _function(f"{side}_shard", (position,), doc, lambda body: layout.index(position))


def box_function(side: str, layout: Layout) -> IndexFunction:
    """Return the function that maps a mesh position to its box on one side."""
    position = _position(layout)

    def derive(body: FunctionBody) -> tuple[Value, ...]:
        ends: list[Value] = []
        for place, dim in enumerate(layout.dims):
            axis = place - layout.hidden
            let = body.named(axis) if axis >= 0 else body.named(place, "term_")
            ends += dim.interval(dim.index(position), let)
        return tuple(ends)

    what = "Tensor range (low, high), per dimension,"
    if layout.hidden:
        what = "Ranges (low, high) of terms, then of the tensor,"
    doc = f"{what} of the {side} shard at a position."
    return _function(f"{side}_box", (position,), doc, derive)


def position_function(
    name: str, mesh: Mesh, doc: str, derive: Callable[[Index], tuple[Value, ...]]
) -> IndexFunction:
    """Return a function of a mesh position, whose results `derive` returns."""
    position = Index("position", mesh.size)
    return _function(name, (position,), doc, lambda body: derive(position))


def _range(side: str, layout: Layout, letter: str) -> IndexFunction:
    shard = _shards(layout, letter)

    def derive(body: FunctionBody) -> tuple[Value, ...]:
        ends: list[Value] = []
        for axis, (dim, index) in enumerate(zip(layout.dims, _known(shard), strict=True)):
            ends += dim.interval(index, body.named(axis))
        return tuple(ends)

    doc = f"Tensor range (low, high), per dimension, of a {side} shard."
    return _function(f"{side}_range", shard, doc, derive)


def _tile(exchange: Exchange) -> IndexFunction:
    shards = _shards(exchange.source, "a"), _shards(exchange.target, "b")
    source, target = _known(shards[0]), _known(shards[1])

    def derive(body: FunctionBody) -> tuple[Value, ...]:
        ends: list[Value] = []
        for axis, tiles in enumerate(exchange.dims):
            from_low, from_high = tiles.source.interval(source[axis], body.named(axis, "source_"))
            to_low, to_high = tiles.target.interval(target[axis], body.named(axis, "target_"))
            ends += [maximum(from_low, to_low), minimum(from_high, to_high)]
        return tuple(ends)

    doc = "Tensor range shared by a source shard and a target shard; empty where low >= high."
    return _function("tile", (*shards[0], *shards[1]), doc, derive)


def _peers(name: str, own: Layout, other: Layout, what: str) -> IndexFunction:
    position = _position(own)

    def derive(body: FunctionBody) -> tuple[Value, ...]:
        ends: list[Value] = []
        for axis, (dim, peer) in enumerate(zip(own.dims, other.dims, strict=True)):
            # A flat split needs no intermediate names: its quotients simplify, often to constants.
            let = unnamed if dim.is_flat else body.named(axis)
            low, high = dim.interval(dim.index(position), let)
            let = unnamed if peer.is_flat else body.named(axis, "peer_")
            first, last = peer.owners(low, high, let)
            count = simplify(last - first + 1)
            first = body.let(f"first{axis}", first)
            ends += [first, count if count.is_Integer else last - first + 1]
        return tuple(ends)

    doc = f"First and count, per dimension, of the {what}."
    return _function(name, (position,), doc, derive)


def _target_position(target: Layout) -> IndexFunction:
    shard, replica = _shards(target, "b"), Index("replica", target.replicas)
    doc = "Position, in the target mesh, of a replica of a target shard."
    return _function(
        "target_position",
        (*shard, replica),
        doc,
        lambda body: (target.position(_known(shard), _known((replica,))[0]),),
        single=True,
    )


def source_at(exchange: Exchange) -> IndexFunction:
    """Return the function that maps an element to its source shard, for backends that assemble
    shards from blocks."""
    elements = tuple(Index(f"i{axis}", dim.extent) for axis, dim in enumerate(exchange.source.dims))

    def derive(body: FunctionBody) -> tuple[Value, ...]:
        return tuple(
            dim.owner(element, body.named(axis))
            for axis, (dim, element) in enumerate(zip(exchange.source.dims, elements, strict=True))
        )

    doc = "Index of the source shard, per dimension, that holds an element of the tensor."
    return _function("source_at", elements, doc, derive)


def _holder(exchange: Exchange) -> IndexFunction:
    shard = _shards(exchange.source, "a")
    receiver = _position(exchange.target, "receiver")
    piece = Index("piece", exchange.rule.pieces)
    doc = "Position, in the source mesh, of the holder that sends a piece of a tile to a receiver."
    return _function(
        "holder",
        (*shard, receiver, *((piece,) if exchange.rule.pieces > 1 else ())),
        doc,
        lambda body: (exchange.holder(_known(shard), receiver, *_known((piece,))),),
        single=True,
    )


def _piece_range(exchange: Exchange) -> IndexFunction:
    width = Index("width", exchange.dims[exchange.rule.cut].max_width + 1)
    piece = Index("piece", exchange.rule.pieces)

    def derive(body: FunctionBody) -> tuple[Value, ...]:
        start, end = exchange.piece(width, piece)
        return start, end

    doc = "Range, within the width of a tile, of the piece that one holder sends."
    return _function("piece_range", (width, piece), doc, derive)
