"""The closed forms of an exchange as the index functions that every emitted module defines.

Both backends emit these very functions, printed for their target, so that a reader compares them
side by side and a checker evaluates the forms of the module itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import sympy

from shardwright.ir.bounds import bounds
from shardwright.ir.exchange import Exchange
from shardwright.ir.identities import simplify
from shardwright.ir.index import Index, Value, maximum, minimum
from shardwright.ir.layout import DimLayout, Layout, Let


@dataclass(frozen=True)
class Assignment:
    """`name = value`."""

    name: str
    value: sympy.Expr


@dataclass(frozen=True)
class IndexFunction:
    """A function of mesh positions or shard indices that returns a tuple of integers."""

    name: str
    parameters: tuple[str, ...]
    doc: str
    lines: tuple[Assignment, ...]
    results: tuple[sympy.Expr, ...]


@dataclass
class Body:
    """Collects the assignments of a function while its results are derived."""

    lines: list[Assignment] = field(default_factory=list)
    taken: dict[str, int] = field(default_factory=dict)

    def let(self, name: str, value: Value) -> Value:
        """A symbol that stands for the value, with its bounds; plain values stand for themselves."""
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

    def named(self, axis: int) -> Let:
        """`let` with names that carry the dimension."""
        return lambda name, value: self.let(f"{name}{axis}", value)


def index_functions(exchange: Exchange) -> tuple[IndexFunction, ...]:
    """The closed forms of an exchange, in the order in which a reader needs them."""
    source, target = exchange.source, exchange.target
    return (
        _shard("source", source),
        _shard("target", target),
        _box("source", source),
        _box("target", target),
        _range("source", source, "a"),
        _tile(exchange),
        _peers("senders", "source shards that meet", target, source, "target"),
        _peers("receivers", "target shards that meet", source, target, "source"),
        _target_position(target),
        _holder(exchange),
    )


def _function(
    name: str,
    parameters: tuple[Index, ...],
    doc: str,
    derive: Callable[[Body], tuple[Value, ...]],
) -> IndexFunction:
    body = Body()
    results = tuple(simplify(result) for result in derive(body))
    return IndexFunction(name, tuple(p.name for p in parameters), doc, tuple(body.lines), results)


def _position(layout: Layout, name: str = "position") -> Index:
    return Index(name, layout.mesh.size)


def _shards(layout: Layout, letter: str) -> tuple[Index, ...]:
    return tuple(Index(f"{letter}{axis}", dim.parts) for axis, dim in enumerate(layout.dims))


def _shard(side: str, layout: Layout) -> IndexFunction:
    position = _position(layout)
    doc = f"Index of the {side} shard, per dimension, at a position of the {side} mesh."
    return _function(f"{side}_shard", (position,), doc, lambda body: layout.index(position))


def _interval(dim: DimLayout, index: Value, let: Let) -> tuple[Value, Value]:
    low, high = dim.interval(index, let)
    return low, high


def _box(side: str, layout: Layout) -> IndexFunction:
    position = _position(layout)

    def derive(body: Body) -> tuple[Value, ...]:
        ends: list[Value] = []
        for axis, dim in enumerate(layout.dims):
            ends += _interval(dim, dim.index(position), body.named(axis))
        return tuple(ends)

    doc = f"Tensor range (low, high), per dimension, of the {side} shard at a position."
    return _function(f"{side}_box", (position,), doc, derive)


def _range(side: str, layout: Layout, letter: str) -> IndexFunction:
    shard = _shards(layout, letter)

    def derive(body: Body) -> tuple[Value, ...]:
        ends: list[Value] = []
        for axis, (dim, index) in enumerate(zip(layout.dims, shard, strict=True)):
            ends += _interval(dim, index, body.named(axis))
        return tuple(ends)

    doc = f"Tensor range (low, high), per dimension, of a {side} shard."
    return _function(f"{side}_range", shard, doc, derive)


def _tile(exchange: Exchange) -> IndexFunction:
    source, target = _shards(exchange.source, "a"), _shards(exchange.target, "b")

    def derive(body: Body) -> tuple[Value, ...]:
        ends: list[Value] = []
        for axis, tiles in enumerate(exchange.dims):
            let = body.named(axis)
            from_low, from_high = _interval(tiles.source, source[axis], let)
            to_low, to_high = _interval(tiles.target, target[axis], let)
            ends += [maximum(from_low, to_low), minimum(from_high, to_high)]
        return tuple(ends)

    doc = "Tensor range shared by a source shard and a target shard; empty where low >= high."
    return _function("tile", (*source, *target), doc, derive)


def _peers(name: str, what: str, own: Layout, other: Layout, side: str) -> IndexFunction:
    position = _position(own)

    def derive(body: Body) -> tuple[Value, ...]:
        ends: list[Value] = []
        for axis, (dim, peer) in enumerate(zip(own.dims, other.dims, strict=True)):
            let = body.named(axis)
            low, high = _interval(dim, dim.index(position), let)
            first, last = peer.owners(low, high, let)
            first = let("first", first)
            ends += [first, last - first + 1]
        return tuple(ends)

    doc = f"First and count, per dimension, of the {what} the {side} shard at a position."
    return _function(name, (position,), doc, derive)


def _target_position(target: Layout) -> IndexFunction:
    shard, replica = _shards(target, "b"), Index("replica", target.replicas)
    doc = "Position, in the target mesh, of a replica of a target shard."
    return _function(
        "target_position",
        (*shard, replica),
        doc,
        lambda body: (target.position(shard, replica),),
    )


def _holder(exchange: Exchange) -> IndexFunction:
    shard = _shards(exchange.source, "a")
    receiver = _position(exchange.target, "receiver")
    piece = Index("piece", exchange.rule.pieces)
    doc = "Position, in the source mesh, of the holder that sends a piece of a tile to a receiver."
    return _function(
        "holder",
        (*shard, receiver, piece),
        doc,
        lambda body: (exchange.holder(shard, receiver, piece),),
    )
