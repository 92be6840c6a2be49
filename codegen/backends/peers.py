"""The text of a module's functions `senders` and `receivers`, which compute the peers of a device
from its position.

Each end computes its peers independently; the self-check of a module proves that both agree.
"""

from __future__ import annotations

from dataclasses import dataclass

import sympy

from shardwright.codegen.backends.lines import FITS, LONG, conjunction, length, printed, pruned
from shardwright.codegen.text.index_functions import FunctionBody
from shardwright.codegen.text.python_text import INDENT, WIDTH, statement_lines
from shardwright.ir.algebra.identities import simplify
from shardwright.ir.algebra.index import Index, Value
from shardwright.ir.algebra.printers import PYTHON, TRITON
from shardwright.ir.cuts import unnamed
from shardwright.ir.exchange import Exchange
from shardwright.ir.layout import DimLayout, Layout


@dataclass(frozen=True)
class Peers:
    """The text of the functions `senders` and `receivers` of an exchange. `some_local`: whether any
    device already has part of its target shard."""

    exchange: Exchange
    some_local: bool

    @property
    def receiver(self) -> Index:
        """The symbol for the device's position in the target mesh."""
        return Index("receiver", self.exchange.target.mesh.size)

    @property
    def tells_held(self) -> bool:
        """Whether the functions must distinguish receivers that already have a tile from others.

        They need not if the sender has the receiver's own coordinates, or is the only device with
        the tile: a receiver that has the tile is then its own sender.
        """
        return self.exchange.rule.kind == "turns" and self.some_local

    @property
    def knows_me(self) -> bool:
        """Whether the functions also compute the receiver's position in the source mesh."""
        return self.tells_held and not self.exchange.same_order

    @property
    def me(self) -> Index:
        """The symbol for the device's position in the source mesh."""
        if self.exchange.same_order:
            return self.receiver
        return Index("me", self.exchange.source.mesh.size)

    def held(self, sources: tuple[Value, ...]) -> list[str]:
        """Return tests, to be joined by `and`, whether a device has a source shard. `sources`: the
        shard's index along each dimension."""
        tests = [] if self.exchange.same_order else ["me >= 0"]
        for dim, source in zip(self.exchange.source.dims, sources, strict=True):
            own, other = simplify(dim.index(self.me)), simplify(source)
            if (own - other).is_Integer:
                tests += [] if own == other else ["False"]
            else:
                first, second = (own, other) if other.is_Integer else (other, own)
                tests.append(f"{TRITON.text(first)} == {TRITON.text(second)}")
        return tests

    @property
    def _cut(self) -> bool:
        return self.exchange.rule.pieces > 1

    @property
    def numbered(self) -> str:
        """The words for the docstrings of `senders` and `receivers` if their results include
        pieces, otherwise ""."""
        return ", and pieces (None: all of a tile)" if self._cut else ""

    def senders(self) -> list[str]:
        """Return the body of `senders`, which lists the senders to a receiver."""
        exchange, receiver = self.exchange, self.receiver
        body = FunctionBody()
        loops, shards = _met(exchange.target, exchange.source, receiver, "a", body)
        piece = Index("piece", exchange.rule.pieces)
        holder = simplify(exchange.holder(shards, receiver, piece))
        if not self.tells_held and not self._cut:
            return _below(body, _listed(PYTHON.text(holder), loops))
        each = [f"yield {PYTHON.text(holder)}"]
        if self._cut:
            each = [f"for piece in range({exchange.rule.pieces}):"]
            each.append(f"{INDENT}yield {PYTHON.text(holder)}, piece")
        lines = self._own_position()
        if self.tells_held:
            me, held = self.me.name, self._held(shards)
            if self._cut:
                each = ["if held:", f"{INDENT}yield {me}, None", "else:", *map(_indented, each)]
            else:
                each = [f"yield {me} if held else {PYTHON.text(holder)}"]
            each = [*held, *each]
        return _below(body, [*lines, *_nested(loops, each)])

    def receivers(self) -> list[str]:
        """Return the body of `receivers`, which lists the receivers of a sender."""
        exchange = self.exchange
        sender = Index("sender", exchange.source.mesh.size)
        body = FunctionBody()
        loops, shards = _met(exchange.source, exchange.target, sender, "b", body)
        replica: Value = sympy.Integer(0)
        if exchange.target.replicas > 1:
            replica = Index("replica", exchange.target.replicas)
            loops.append(f"for replica in range({exchange.target.replicas})")
        position = simplify(exchange.target.position(shards, replica))
        if exchange.source.replicas == 1:
            return _below(body, _listed(PYTHON.text(position), loops))
        each = statement_lines(PYTHON, "receiver", position)
        if exchange.rule.kind == "own":
            mine = _text(exchange.source.replica(self.receiver))
            each.append(f"if {mine} == {_text(exchange.source.replica(sender))}:")
            return _below(body, _nested(loops, [*each, f"{INDENT}yield receiver"]))
        each += [*self._own_position(), *self._in_turn(exchange.source.index(sender))]
        return _below(body, _nested(loops, each))

    def _in_turn(self, own: tuple[Value, ...]) -> list[str]:
        """Return lines that yield a receiver if it is this sender's turn to serve it. `own`: the
        index of the sender's shard along each dimension."""
        pieces = self.exchange.rule.pieces
        turn = self.exchange.holder(own, self.receiver, Index("piece", pieces))
        holder = statement_lines(PYTHON, "holder", simplify(turn))
        held, me = self._held(own), self.me.name
        if not self._cut:
            chosen = f"({me} if held else holder)" if self.tells_held else "holder"
            start = held if self.tells_held else []
            return [*start, *holder, f"if {chosen} == sender:", f"{INDENT}yield receiver"]
        sends = [*holder, "if holder == sender:", f"{INDENT}yield receiver, piece"]
        loop = [f"for piece in range({pieces}):", *map(_indented, sends)]
        if not self.tells_held:
            return loop
        keeps = [f"if held and {me} == sender:", f"{INDENT}yield receiver, None"]
        return [*held, *keeps, "elif not held:", *map(_indented, loop)]

    def _held(self, sources: tuple[Value, ...]) -> list[str]:
        start = "held = "
        tests = conjunction(self.held(sources), "and", FITS - 8 - len(start))
        return (start + tests).splitlines()

    def _own_position(self) -> list[str]:
        if not self.knows_me:
            return []
        return [
            "device = TARGET_IDS[receiver]",
            "me = SOURCE_IDS.index(device) if device in SOURCE_IDS else -1",
        ]


def _indented(line: str) -> str:
    return INDENT + line


def _text(value: Value) -> str:
    return PYTHON.text(simplify(value))


def _met(
    own: Layout, other: Layout, position: Index, letter: str, body: FunctionBody
) -> tuple[list[str], tuple[Value, ...]]:
    """Return a loop over the other side's shards, for each dimension along which a shard intersects
    several of them, and the expression for the other shard's index along every dimension."""
    loops, numbers = [], []
    for place, (dim, peer) in enumerate(zip(own.dims, other.dims, strict=True)):
        axis = place - own.hidden
        first, last = _ends(dim, peer, axis, position, body)
        if first == last:
            numbers.append(first)
            continue
        count = simplify(last - first + 1)
        if length(PYTHON.text(first)) + length(PYTHON.text(last)) > LONG:
            first, last = body.let(f"first{axis}", first), body.let(f"last{axis}", last)
        name = f"{letter}{axis}" if axis >= 0 else "term"
        numbers.append(Index(name, peer.parts))
        stop = first + count if count.is_Integer else last + 1
        ends = [PYTHON.text(first), PYTHON.text(simplify(stop))]
        said = ", ".join(ends[1:] if first == 0 else ends)
        loops.append(f"for {name} in range({said})")
    return loops, tuple(numbers)


def _ends(
    dim: DimLayout, peer: DimLayout, axis: int, position: Index, body: FunctionBody
) -> tuple[Value, Value]:
    # A flat split needs no names: its quotients simplify, often to constants.
    let = unnamed if dim.is_flat else body.named(axis)
    low, high = dim.interval(dim.index(position), let)
    let = unnamed if peer.is_flat else body.named(axis, "peer_")
    first, last = peer.owners(low, high, let)
    return simplify(first), simplify(last)


def _below(body: FunctionBody, lines: list[str]) -> list[str]:
    """Return the lines, preceded by the assignments that they use."""
    return [*printed(PYTHON, pruned(body.lines, lines)), *lines]


def _listed(item: str, loops: list[str]) -> list[str]:
    if not loops:
        return [f"return [{item}]"]
    if len(loops) == 1 and loops[0].startswith(f"for {item} in "):
        return [f"return {loops[0].removeprefix(f'for {item} in ')}"]
    line = f"return [{item} {' '.join(loops)}]"
    if len(INDENT + line) <= WIDTH:
        return [line]
    inner = f"{item} {' '.join(loops)}"
    if len(INDENT * 2 + inner) <= WIDTH:
        return ["return [", INDENT + inner, "]"]
    return ["return [", INDENT + item, *(INDENT + loop for loop in loops), "]"]


def _nested(loops: list[str], body: list[str]) -> list[str]:
    lines = [f"{INDENT * depth}{loop}:" for depth, loop in enumerate(loops)]
    return [*lines, *(INDENT * len(loops) + line for line in body)]
