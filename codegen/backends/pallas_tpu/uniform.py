"""The direct form where tiles are all of one shape: the kernel as one would write it for this very
reshard.

Every device sends as many tiles as it gets, each to a device that is a closed form of its own
position and the number of the tile. A tile is, along each dimension, all of the source shard or all
of the target shard, whichever is smaller: it begins in the source shard as its receiver says, and
in the target shard as its sender does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from shardwright.codegen.backends.lines import length, printed, pruned
from shardwright.codegen.backends.pallas_tpu.memory import View
from shardwright.codegen.backends.pallas_tpu.terms import PLAIN, KernelEnds
from shardwright.codegen.emit.index_functions import Assignment, FunctionBody
from shardwright.codegen.emit.python_text import INDENT, called
from shardwright.ir.algebra.identities import simplify
from shardwright.ir.algebra.index import Index, Value, floor_div, mod
from shardwright.ir.algebra.printers import PALLAS
from shardwright.ir.exchange import Exchange
from shardwright.ir.layout import DimLayout
from shardwright.ir.tiles import DimTiles


@dataclass(frozen=True)
class Uniform:
    """An exchange of tiles of one shape; `axes`: those that a device's position is read of, as a
    Python expression; `ends`: what a module calls what is of this exchange."""

    exchange: Exchange
    view: View
    axes: str
    ends: KernelEnds = PLAIN

    @staticmethod
    def of(exchange: Exchange, view: View, axes: str, ends: KernelEnds = PLAIN) -> Uniform | None:
        """Return an exchange if all of its tiles have one shape."""
        even = all(_is_even(tiles) for tiles in exchange.dims)
        if not even or not exchange.same_order or exchange.source.replicas > 1:
            return None
        return Uniform(exchange, view, axes, ends) if exchange.rule.pieces == 1 else None

    @property
    def count(self) -> int:
        """How many tiles a device sends, its own included, and gets."""
        return math.prod(_met(tiles)[0] for tiles in self.exchange.dims)

    @cached_property
    def held(self) -> tuple[bool, bool]:
        """Whether any device holds a tile of its own target shard, and whether all do."""
        positions = np.arange(self.exchange.source.mesh.size, dtype=np.int64)
        found = np.full(positions.shape, True)
        for tiles in self.exchange.dims:
            a, b = (side.index(positions) for side in (tiles.source, tiles.target))
            first, last = tiles.source.owners(*tiles.target.interval(b))
            found &= np.broadcast_to((first <= a) & (a <= last), found.shape)
        return bool(found.any()), bool(found.all())

    @property
    def sends(self) -> bool:
        """Whether anything is sent."""
        return self.count > 1 or not self.held[1]

    @property
    def semaphores(self) -> tuple[str, ...]:
        """The DMA semaphores of the kernel."""
        return ("sent", "received") if self.sends else ("copied",)

    def peers_lines(self) -> list[str]:
        """Return the constant PEERS."""
        more = [str(self.count)] if self.count > 1 else []
        sides = [self.ends.source, self.ends.target]
        name = f"{self.ends.own('PEERS')} = Permuted"
        return called(name, [*sides, self.sender, self.receiver, *more])

    @property
    def sender(self) -> str:
        """The name of the function that gives whom a tile comes from."""
        return self.ends.own("sender" if self.count > 1 else "sender_to")

    @property
    def receiver(self) -> str:
        """The name of the function that gives whom a tile goes to."""
        return self.ends.own("receiver" if self.count > 1 else "receiver_of")

    @property
    def libraries(self) -> frozenset[str]:
        """The libraries that the kernel uses."""
        tests = self.count == 1 and self.held[0] and self.sends
        uses_pl = tests or self.count > 1 or any(map(self._owner, self.view))
        return frozenset(("lax", "pltpu", *(("pl",) if uses_pl else ())))

    @property
    def arithmetic(self) -> frozenset[str]:
        """The functions of integers that the kernel and the functions of positions call."""
        values = [value for function in self._positions for value in function.values]
        values += [self._start(axis) for axis in self.view if self._owner(axis)]
        if self.count > 1 and self.held[0] and not self.held[1]:
            values += [end for ends in self._alike for end in ends]
        calls = frozenset[str]().union(*map(PALLAS.calls, values))
        return frozenset(name.lstrip("_") for name in calls)

    @property
    def functions(self) -> tuple[tuple[str, ...], ...]:
        """The functions that say who sends to whom."""
        return tuple(function.lines for function in self._positions)

    @cached_property
    def _positions(self) -> tuple[_Function, ...]:
        size, number = self.exchange.source.mesh.size, Index("number", self.count)
        if self.count == 1:
            device = Index("device", size)
            return (
                _Function(
                    f"{self.receiver}(device)", ONE_RECEIVER, *self._receiver(device, number)
                ),
                _Function(f"{self.sender}(device)", ONE_SENDER, *self._sender(device, number)),
            )
        found = self._receiver(Index("sender", size), number)
        back = self._sender(Index("receiver", size), number)
        return (
            _Function(f"{self.receiver}(sender, number)", self.ends.said(RECEIVER), *found),
            _Function(f"{self.sender}(receiver, number)", self.ends.said(SENDER), *back),
        )

    def _receiver(self, sender: Index, number: Value) -> tuple[FunctionBody, Value]:
        """Return whom the tile of a number goes to. Each device begins at its own place among the
        receivers, so that they do not all write into one of them at a time."""
        target = self.exchange.target
        replica: Value = mod(number + sender, target.replicas)
        number = floor_div(number, target.replicas)
        shards: list[Value] = []
        for tiles in reversed(self.exchange.dims):
            (_, count), near = _met(tiles), tiles.target.index(sender)
            first = floor_div(tiles.source.index(sender) * tiles.source.size, tiles.target.size)
            turn = mod(floor_div(number, 1) + near, count)
            number = floor_div(number, count)
            shards.insert(0, first + turn)
        return _in_words(shards, "b", lambda found: target.position(found, replica))

    def _sender(self, receiver: Index, number: Value) -> tuple[FunctionBody, Value]:
        """Return whom the tile of a number comes from."""
        source, shards = self.exchange.source, list[Value]()
        for tiles in reversed(self.exchange.dims):
            count, _ = _met(tiles)
            first = floor_div(tiles.target.index(receiver) * tiles.target.size, tiles.source.size)
            shards.insert(0, first + mod(number, count))
            number = floor_div(number, count)
        return _in_words(shards, "a", lambda found: source.position(found, 0))

    def _owner(self, axis: int) -> str:
        """Return whose own extent along a dimension tiles have less of than the other end: its
        place says where in the other's shard a tile begins. Empty where both have the same."""
        source, target = (side.size for side in self._sides(axis))
        return "" if source == target else "receiver" if source > target else "sender"

    def _sides(self, axis: int) -> tuple[DimLayout, DimLayout]:
        return self.exchange.dims[axis].source, self.exchange.dims[axis].target

    def _helper(self, axis: int) -> str:
        """Return the name of the function that gives the range of tiles along a dimension."""
        rank = len(self.view)
        return {1: "part", 2: ("rows", "columns")[axis % 2]}.get(rank, f"part{axis}") + "_of"

    def _start(self, axis: int) -> Value:
        """Return where, along a dimension, a tile begins in the shard of the other end."""
        owner, (source, target) = self._owner(axis), self._sides(axis)
        small, large = (target, source) if owner == "receiver" else (source, target)
        position = Index(owner, self.exchange.source.mesh.size)
        return simplify(mod(small.index(position), large.size // small.size) * small.size)

    def _helpers(self) -> list[str]:
        """Return functions of the owner of what tiles have all of: their range in the shard of the
        other end."""
        lines = []
        for place, axis in enumerate(self.view):
            owner, (source, target) = self._owner(axis), self._sides(axis)
            if not owner:
                continue
            size, text = min(source.size, target.size), PALLAS.text(self._start(axis))
            tiled = place >= len(self.view) - 2 and not text.isdigit()
            text = f"pl.multiple_of({text}, {size})" if tiled else text
            said = "takes of its senders'" if owner == "receiver" else "fills of its receivers'"
            lines += [
                f"def {self._helper(axis)}({owner}):  # what it {said} shards",
                f"{INDENT}return pl.ds({text}, {size})",
                "",
            ]
        return lines

    def _part(self, ref: str, peer: str) -> str:
        """Return the part of a shard that a tile takes; the sender is this device."""
        owner, device = ("receiver", peer) if ref == "x" else ("sender", "me")
        slices = [
            f"{self._helper(axis)}({device})" if self._owner(axis) == owner else ":"
            for axis in self.view
        ]
        return ref if set(slices) == {":"} else f"{ref}.at[{', '.join(slices)}]"

    @property
    def kernels(self) -> tuple[tuple[str, ...], ...]:
        """The lines of the kernel; where it sends, of its two halves."""
        if not self.sends:
            copy = called("keep = pltpu.make_async_copy", self._own("copied"), indents=1)
            place = [self._place] * any("(me)" in line for line in copy)
            lines = [*place, *self._helpers(), *copy, "keep.start()", "keep.wait()"]
            doc = "Copy what y, this device's target shard, has of x, its source shard."
            return (self._function("_kernel", "x, y, copied", doc, lines),)
        start = [self._place, *(self._one() if self.count == 1 else self._several())]
        leaves = "this device's tiles leave" if self.count > 1 else "its source shard has left"
        waits = f"Wait until {leaves}, and all of y, its target shard, has come."
        return (
            self._function("_start", "x, y, sent, received", self._doc, start),
            self._function("_wait", "y, sent, received", waits, self._waits()),
        )

    def _function(self, name: str, given: str, doc: str, lines: list[str]) -> tuple[str, ...]:
        return (
            f"def {self.ends.own(name)}({given}):",
            f'{INDENT}"""{self.ends.said(doc)}"""',
            *(INDENT + line if line else "" for line in lines),
        )

    @property
    def _place(self) -> str:
        return f"me = lax.axis_index({self.axes})"

    @property
    def _doc(self) -> str:
        if self.count == 1:
            return "Begin to push x, this device's source shard, into y, another's target shard."
        return "Begin to push this device's tiles of x, its source shard, to where they belong."

    def _own(self, semaphore: str) -> list[str]:
        """Return what a copy of a device's own tile is given."""
        return [self._part("x", "me"), self._part("y", "me"), semaphore]

    def _one(self) -> list[str]:
        """Return the lines that start a permutation of whole shards."""
        push = [f"meet_one({self.sender}(me))", *self._copy("x", "y", f"{self.receiver}(me)")]
        if not self.held[0]:
            return push
        return [
            "",
            f"@pl.when({self.receiver}(me) == me)",
            "def keep():",
            f"{INDENT}pltpu.make_async_copy(x, y, received).start()",
            "",
            f"@pl.when({self.receiver}(me) != me)",
            "def push():",
            *(INDENT + line for line in push),
        ]

    def _copy(self, read: str, write: str, peer: str) -> list[str]:
        """Return the lines that start to push a tile to a peer."""
        given = [read, write, "sent", "received", f"device_id={peer}", "device_id_type=LOGICAL"]
        lines = called("pltpu.make_async_remote_copy", given, indents=2)
        return [*lines[:-1], f"{lines[-1]}.start()"]

    def _several(self) -> list[str]:
        """Return the lines that start to push several tiles."""
        kept, all_kept = self.held
        own = "True" if all_kept else "own" if kept else "False"
        keep = called("keep = pltpu.make_async_copy", self._own("received"), indents=1)
        keep.append("keep.start()" if all_kept else "pl.when(own)(keep.start)")
        return [
            *(self._has_own() if own == "own" else []),
            f"meet(me, {self.sender}, {self.count}, own={own})",
            "",
            *self._helpers(),
            "def push(peer):",
            f"{INDENT}read, write = {self._part('x', 'peer')}, {self._part('y', 'peer')}",
            *(INDENT + line for line in self._copy("read", "write", "peer")),
            "",
            f"each_peer(me, {self.receiver}, {self.count}, push)",
            *(keep if kept else []),
        ]

    def _waits(self) -> list[str]:
        """Return the lines that wait for all: a semaphore counts bytes, so that one wait is for
        all tiles that come, the own one among them, and another for those that leave."""
        kept, all_kept = self.held
        come, leave = "wait_for(y, received)", "wait_for(y, sent)"
        if not kept:
            return [f"{come}  # as many bytes come as leave", leave]
        others = [f"wait_for({part}, sent)" for part in self._others]
        if all_kept:
            return [come, "# As many tiles leave as come, but for the own one.", *others]
        if self.count == 1:
            return [self._place, come, f"pl.when({self.receiver}(me) != me)(lambda: {leave})"]
        return [
            self._place,
            *self._has_own(),
            come,
            "# As many tiles leave as come, but for the own one.",
            *(f"pl.when(own)(lambda: {other})" for other in others),
            f"pl.when(own ^ True)(lambda: {leave})",
        ]

    @property
    def _others(self) -> list[str]:
        """Parts of a target shard that have as many elements as all of its tiles but one."""
        sizes = {axis: min(side.size for side in self._sides(axis)) for axis in self.view}
        found: list[str] = []
        spans = dict.fromkeys(self.view, ":")
        for axis in self.view:
            size, extent = sizes[axis], self._sides(axis)[1].size
            if extent > size:
                spans[axis] = f"pl.ds({size}, {extent - size})"
                found.append(f"y.at[{', '.join(spans.values())}]")
                spans[axis] = f"pl.ds(0, {size})"
        return found

    @property
    def _alike(self) -> list[list[Value]]:
        """What is the same where a device holds a tile of its own, by dimension."""
        found, position = [], Index("me", self.exchange.source.mesh.size)
        for axis in range(len(self.view)):
            sides = self._sides(axis)
            larger = max(side.size for side in sides)
            ends = [
                simplify(floor_div(side.index(position), larger // side.size)) for side in sides
            ]
            found += [ends] if ends[0] != ends[1] else []
        return found

    def _has_own(self) -> list[str]:
        """Return lines that say whether a device holds a tile of its own target shard."""
        pairs = dict.fromkeys(tuple(sorted(map(PALLAS.text, ends))) for ends in self._alike)
        tests = [" == ".join(pair) for pair in pairs]
        own = tests[0] if len(tests) == 1 else " & ".join(f"({test})" for test in tests)
        return ["# Whether it holds a tile of its own target shard.", f"own = {own}"]


LONG = 88
"""Characters of a result in which no part is named."""

ONE_RECEIVER = "The device whose target shard is this one's source shard."
ONE_SENDER = "The device whose source shard is this one's target shard."
RECEIVER = "The device that the tile of a number of a source shard goes to."
SENDER = "The device that the tile of a number of a target shard comes from."


def _in_words(
    shards: list[Value], letter: str, position: Callable[[tuple[Value, ...]], Value]
) -> tuple[FunctionBody, Value]:
    """Return a position of a shard; the shard is named where it would be too long otherwise."""
    body, whole = FunctionBody(), simplify(position(tuple(shards)))
    if length(PALLAS.text(whole)) <= LONG:
        return body, whole
    named = tuple(body.let(f"{letter}{axis}", shard) for axis, shard in enumerate(shards))
    return body, simplify(position(named))


def _is_even(tiles: DimTiles) -> bool:
    sides = tiles.source, tiles.target
    if sides[0].extent != sides[1].extent:  # terms of which one alone is read, or has the value
        return False
    small, large = sorted(side.size for side in sides)
    return all(side.is_flat and side.is_even for side in sides) and large % small == 0


def _met(tiles: DimTiles) -> tuple[int, int]:
    """Return how many source shards a target shard meets, and the other way round."""
    source, target = tiles.source.size, tiles.target.size
    return max(target // source, 1), max(source // target, 1)


@dataclass(frozen=True)
class _Function:
    """A function of one result."""

    signature: str
    doc: str
    body: FunctionBody
    result: Value

    @cached_property
    def _assignments(self) -> list[Assignment]:
        return pruned(self.body.lines, [PALLAS.text(self.result)])

    @property
    def values(self) -> tuple[Value, ...]:
        """All expressions, of assignments and the result."""
        return (*(each.value for each in self._assignments), self.result)

    @property
    def lines(self) -> tuple[str, ...]:
        """The function as text."""
        lines = [*printed(PALLAS, self._assignments), f"return {PALLAS.text(self.result)}"]
        head = (f"def {self.signature}:", f'{INDENT}"""{self.doc}"""')
        return (*head, *(INDENT + line for line in lines))
