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
from shardwright.codegen.emit.index_functions import FunctionBody
from shardwright.codegen.emit.python_text import INDENT, called
from shardwright.ir.algebra.identities import simplify
from shardwright.ir.algebra.index import Index, Value, floor_div, mod
from shardwright.ir.algebra.printers import PALLAS
from shardwright.ir.exchange import Exchange
from shardwright.ir.tiles import DimTiles


@dataclass(frozen=True)
class Uniform:
    """An exchange of tiles of one shape; `axes`: those that a device's position is read of, as a
    Python expression."""

    exchange: Exchange
    view: View
    axes: str

    @staticmethod
    def of(exchange: Exchange, view: View, axes: str) -> Uniform | None:
        """Return an exchange if all of its tiles have one shape."""
        even = all(_is_even(tiles) for tiles in exchange.dims)
        if not even or not exchange.same_order or exchange.source.replicas > 1:
            return None
        return Uniform(exchange, view, axes) if exchange.rule.pieces == 1 else None

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
        kept = ("copied",) if self.held[0] else ()
        return (*kept, "sent", "received") if self.sends else kept

    @property
    def peers_lines(self) -> list[str]:
        """The constant PEERS."""
        more = [str(self.count)] if self.count > 1 else []
        return called("PEERS = Permuted", ["_SOURCE", "_TARGET", self.sender, self.receiver, *more])

    @property
    def sender(self) -> str:
        """The name of the function that gives whom a tile comes from."""
        return "sender" if self.count > 1 else "sender_to"

    @property
    def receiver(self) -> str:
        """The name of the function that gives whom a tile goes to."""
        return "receiver" if self.count > 1 else "receiver_of"

    @property
    def functions(self) -> tuple[tuple[str, ...], ...]:
        """The functions that say who sends to whom."""
        size, number = self.exchange.source.mesh.size, Index("number", self.count)
        if self.count == 1:
            device = Index("device", size)
            return (
                _function("receiver_of(device)", ONE_RECEIVER, *self._receiver(device, number)),
                _function("sender_to(device)", ONE_SENDER, *self._sender(device, number)),
            )
        found = self._receiver(Index("sender", size), number)
        back = self._sender(Index("receiver", size), number)
        return (
            _function("receiver(sender, number)", RECEIVER, *found),
            _function("sender(receiver, number)", SENDER, *back),
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

    def _part(self, ref: str, position: str) -> str:
        """Return the part of a shard where a tile begins: of the source shard as its receiver says,
        of the target shard as its sender does."""
        slices = []
        for place, axis in enumerate(self.view):
            tiles, size = self.exchange.dims[axis], self.exchange.source.mesh.size
            own, other = tiles.source, tiles.target
            if ref == "y":
                own, other = other, own
            if own.size <= other.size:
                slices.append(":")
                continue
            index = mod(other.index(Index(position, size)), own.size // other.size)
            start = PALLAS.text(simplify(index * other.size))
            tiled = place >= len(self.view) - 2 and not start.isdigit()
            start = f"pl.multiple_of({start}, {other.size})" if tiled else start
            slices.append(f"pl.ds({start}, {other.size})")
        return ref if set(slices) == {":"} else f"{ref}.at[{', '.join(slices)}]"

    @property
    def kernel(self) -> tuple[str, ...]:
        """The lines of the kernel."""
        return (
            f"def _kernel(x, y, {', '.join(self.semaphores)}):",
            f'{INDENT}"""{self._doc}',
            "",
            f"{INDENT}x, y: its source and target shard; {', '.join(self.semaphores)}: DMA "
            "semaphores.",
            f'{INDENT}"""',
            *(INDENT + line if line else "" for line in self._lines()),
        )

    @property
    def _doc(self) -> str:
        if not self.sends:
            return "Copy what this device's target shard has of its source shard."
        if self.count == 1:
            return "Push this device's shard to its receiver."
        return "Push this device's tiles into their receivers' target shards."

    def _lines(self) -> list[str]:
        place = [f"me = lax.axis_index({self.axes})"]
        if not self.sends:
            return [*place, *self._keep()]
        return [*place, *(self._one() if self.count == 1 else self._several())]

    def _keep(self) -> list[str]:
        given = [self._part("x", "me"), self._part("y", "me"), "copied"]
        return [
            *called("keep = pltpu.make_async_copy", given, indents=1),
            "keep.start()",
            "keep.wait()",
        ]

    def _one(self) -> list[str]:
        """Return the lines of a permutation of whole shards."""
        push = [
            "meet_one(sender_to(me))",
            *self._copy("copy =", "x", "y", "receiver_of(me)"),
            "copy.start()",
            "copy.wait()  # what leaves has left, and as many bytes have come",
        ]
        if not self.held[0]:
            return push
        return [
            "",
            "@pl.when(receiver_of(me) == me)",
            "def keep():",
            f"{INDENT}copy = pltpu.make_async_copy(x, y, copied)",
            f"{INDENT}copy.start()",
            f"{INDENT}copy.wait()",
            "",
            "@pl.when(receiver_of(me) != me)",
            "def push():",
            *(INDENT + line for line in push),
        ]

    def _copy(self, name: str, read: str, write: str, peer: str) -> list[str]:
        given = [read, write, "sent", "received", f"device_id={peer}", "device_id_type=LOGICAL"]
        return called(f"{name} pltpu.make_async_remote_copy", given, indents=2)

    def _several(self) -> list[str]:
        place, (kept, all_kept) = self._part("y", "me"), self.held
        write = "y" if place == "y" else "place"
        keep = self._keep_of(write) if all_kept else self._keep_some(write) if kept else []
        each = f"each_peer(me, receiver, {self.count}, lambda peer: push(peer)"
        return [
            f"meet(me, sender, receiver, {self.count})",
            *([f"place = {place}"] if write != "y" else []),
            "",
            "def push(peer):",
            f"{INDENT}part = {self._part('x', 'peer')}",
            *(INDENT + line for line in self._copy("return", "part", write, "peer")),
            "",
            f"{each}.start())",
            *keep,
            "# What leaves has left, and as many bytes have come.",
            f"{each}.wait())",
        ]

    def _keep_of(self, write: str) -> list[str]:
        given = [self._part("x", "me"), write, "copied"]
        made = called("keep = pltpu.make_async_copy", given, indents=1)
        return [*made, "keep.start()", "keep.wait()"]

    def _keep_some(self, write: str) -> list[str]:
        """Return the lines that copy a device's own tile where it has one."""
        tests = []
        size = self.exchange.source.mesh.size
        for tiles in self.exchange.dims:
            a, b = (side.index(Index("me", size)) for side in (tiles.source, tiles.target))
            larger = max(tiles.source.size, tiles.target.size)
            ends = [
                simplify(floor_div(index, larger // side.size))
                for index, side in ((a, tiles.source), (b, tiles.target))
            ]
            if ends[0] != ends[1]:
                tests.append(" == ".join(PALLAS.text(end) for end in ends))
        some = tests[0] if len(tests) == 1 else " & ".join(f"({test})" for test in tests)
        given = [self._part("x", "me"), write, "copied"]
        return [
            f"some = {some}  # whether it holds a tile of its own",
            *called("keep = pltpu.make_async_copy", given, indents=1),
            "pl.when(some)(keep.start)",
            "pl.when(some)(keep.wait)",
        ]


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
    small, large = sorted(side.size for side in sides)
    return all(side.is_flat and side.is_even for side in sides) and large % small == 0


def _met(tiles: DimTiles) -> tuple[int, int]:
    """Return how many source shards a target shard meets, and the other way round."""
    source, target = tiles.source.size, tiles.target.size
    return max(target // source, 1), max(source // target, 1)


def _function(signature: str, doc: str, body: FunctionBody, result: Value) -> tuple[str, ...]:
    """Return the lines of a function of one result."""
    last = f"return {PALLAS.text(result)}"
    lines = [*printed(PALLAS, pruned(body.lines, [last])), last]
    return (f"def {signature}:", f'{INDENT}"""{doc}"""', *(INDENT + line for line in lines))
