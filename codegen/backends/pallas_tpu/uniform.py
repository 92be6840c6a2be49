"""The template contexts for exchanges whose tiles all have the same shape: one kernel sends them
from shard to shard, the other sends thin tiles from slot to slot.

Every device sends as many tiles as it receives, and each receiver is a closed form of the sender's
position and the tile's number. Along each dimension, a tile is the whole source shard or the whole
target shard, whichever is smaller. Its start in the source shard depends on its receiver, and its
start in the target shard on its sender.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import sympy

from shardwright.codegen.backends.lines import length, printed, pruned
from shardwright.codegen.backends.pallas_tpu.far_apart import FarApart
from shardwright.codegen.backends.pallas_tpu.memory import View
from shardwright.codegen.backends.pallas_tpu.terms import PLAIN, KernelEnds
from shardwright.codegen.text.index_functions import Assignment, FunctionBody
from shardwright.codegen.text.python_text import INDENT, WIDTH, called
from shardwright.codegen.text.templates import render
from shardwright.ir.algebra.identities import simplify
from shardwright.ir.algebra.index import Index, Value, floor_div, mod
from shardwright.ir.algebra.printers import PALLAS
from shardwright.ir.exchange import Exchange
from shardwright.ir.layout import DimLayout
from shardwright.ir.tiles import DimTiles


@dataclass(frozen=True)
class UniformText:
    """The context of the templates: expressions, names, numbers and comments.

    `tile`: the extents of a tile; `in_x`: where in this device's source shard the tile for `peer`
    starts, as an expression; `in_y`: where in the receiver's target shard the tile from this
    device, `me`, starts; `first`: the start of a shard's first tile; `rounds`: the order of
    tiles.
    """

    name: str
    start: str
    wait: str
    start_kernel: str
    done_kernel: str
    kernel: str
    source: str
    target: str
    axes: str
    sender: str
    receiver: str
    rounds: FarApart
    tile: tuple[int, ...]
    in_x: str
    in_y: str
    first: str
    tile_bytes: str
    shard_bytes: str


@dataclass(frozen=True)
class ThinText:
    """The template context for thin tiles. `in_source`, `in_target`: the names of the functions for
    a tile's start in either shard; `moved`: the name of the function that packs, pushes and
    unpacks; `shard`: the shape of a target shard; `place`: the number that receivers give to this
    device's tile, as an expression; `slot`: the shape of a slot; `elements`: the number of elements
    of a tile; `padding`: how many more a slot has; `granule`: the number of elements in 512 bytes.
    The other fields are as in `UniformText`."""

    name: str
    kernel: str
    in_source: str
    in_target: str
    moved: str
    shard: tuple[int, ...]
    source: str
    target: str
    axes: str
    sender: str
    receiver: str
    rounds: FarApart
    tile: tuple[int, ...]
    slot: tuple[int, ...]
    elements: int
    padding: int
    granule: int
    in_x: str
    in_y: str
    place: str
    slot_bytes: str
    slots_bytes: str


@dataclass(frozen=True)
class Uniform:
    """An exchange whose tiles all have the same shape; `axes`: the mesh axes that give a device's
    position, as a Python expression; `itemsize`: the bytes of an element in flight; `ends`: the
    module's names for this exchange."""

    exchange: Exchange
    view: View
    axes: str
    itemsize: int
    ends: KernelEnds = PLAIN

    @staticmethod
    def of(
        exchange: Exchange, view: View, itemsize: int, axes: str, ends: KernelEnds = PLAIN
    ) -> Uniform | None:
        """Return the exchange, or None if its tiles differ in shape, its meshes differ in device
        order, its source has replicas, or its tiles are cut into pieces."""
        even = all(_is_even(tiles) for tiles in exchange.dims)
        if not even or not exchange.same_order or exchange.source.replicas > 1:
            return None
        if exchange.rule.pieces > 1:
            return None
        # 64-bit elements move as two successive halves.
        return Uniform(exchange, view, axes, min(itemsize, 4), ends)

    @property
    def count(self) -> int:
        """The number of tiles that a device sends, and receives, counting the tile that it
        keeps."""
        return math.prod(_met(tiles)[0] for tiles in self.exchange.dims)

    @property
    def sends(self) -> bool:
        """Whether devices send any tile. They do not if each device already has the only tile of
        its target shard."""
        positions = np.arange(self.exchange.source.mesh.size, dtype=np.int64)
        pairs = [(tiles.source, tiles.target) for tiles in self.exchange.dims]
        owners = (a.owner(b.index(positions) * b.size) for a, b in pairs)
        own = (a.index(positions) for a, _ in pairs)
        return self.count > 1 or not all(map(np.array_equal, owners, own))

    def peers_lines(self) -> list[str]:
        name = f"{self.ends.own('PEERS')} = Permuted"
        given = [self.ends.source, self.ends.target, self.sender, self.receiver, str(self.count)]
        return called(name, given)

    @property
    def sender(self) -> str:
        return self.ends.own("sender")

    @property
    def receiver(self) -> str:
        return self.ends.own("receiver")

    @property
    def libraries(self) -> frozenset[str]:
        """The short names of the JAX modules that the kernel uses."""
        return frozenset(("lax", "pl", "pltpu") if self.sends else ("pltpu",))

    @property
    def calls(self) -> frozenset[str]:
        """The support functions that the kernel and the functions of positions call."""
        values = [value for function in self._positions for value in function.values]
        values += [self._start(axis) for axis in self.view if self._owner(axis)]
        arithmetic = frozenset[str]().union(*map(PALLAS.calls, values))
        if not self.sends:
            return arithmetic
        turns = () if self.rounds.listed else ("rem",)
        return arithmetic | {"each", "remote_copy", "signal", "wait_for", *turns}

    @property
    def functions(self) -> tuple[tuple[str, ...], ...]:
        """The lines of the functions for a tile's receiver and for its sender."""
        return tuple(function.lines for function in self._positions)

    @cached_property
    def _positions(self) -> tuple[_Function, ...]:
        size, number = self.exchange.source.mesh.size, Index("number", self.count)
        found = self._receiver(Index("sender", size), number)
        back = self._sender(Index("receiver", size), number)
        return (
            _Function(f"{self.receiver}(sender, number)", self.ends.said(RECEIVER), *found),
            _Function(f"{self.sender}(receiver, number)", self.ends.said(SENDER), *back),
        )

    def _receiver(self, sender: Index, number: Value) -> tuple[FunctionBody, Value]:
        """Return assignments and the expression for the receiver of tile `number`. Each sender
        begins with a different receiver, so that they do not all write to the same one at the same
        time."""
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
        source, shards = self.exchange.source, list[Value]()
        for tiles in reversed(self.exchange.dims):
            count, _ = _met(tiles)
            first = floor_div(tiles.target.index(receiver) * tiles.target.size, tiles.source.size)
            shards.insert(0, first + mod(number, count))
            number = floor_div(number, count)
        return _in_words(shards, "a", lambda found: source.position(found, 0))

    def _owner(self, axis: int) -> str:
        """Return the device, "me" (sender) or "peer" (receiver), whose shard is smaller along a
        dimension: its position determines where a tile starts in the other's shard. Return "" if
        both shards are equal."""
        source, target = (side.size for side in self._sides(axis))
        return "" if source == target else "peer" if source > target else "me"

    def _sides(self, axis: int) -> tuple[DimLayout, DimLayout]:
        return self.exchange.dims[axis].source, self.exchange.dims[axis].target

    def _start(self, axis: int) -> Value:
        owner, (source, target) = self._owner(axis), self._sides(axis)
        small, large = (target, source) if owner == "peer" else (source, target)
        position = Index(owner, self.exchange.source.mesh.size)
        return simplify(mod(small.index(position), large.size // small.size) * small.size)

    def _starts(self, owner: str) -> str:
        """Return a tile's start in the shard of the device other than `owner` ("me" or "peer"), as
        the text of a tuple. The start is 0 along each dimension along which `owner` does not have
        the smaller shard."""
        starts = [
            PALLAS.text(self._start(axis)) if self._owner(axis) == owner else "0"
            for axis in self.view
        ]
        one = f"({', '.join(starts)}{',' * (len(starts) == 1)})"
        if len("        in_x = ") + len(one) <= WIDTH:
            return one
        return "\n".join(["(", *(f"{INDENT}{start}," for start in starts), ")"])

    @property
    def rounds(self) -> FarApart:
        return FarApart(self.count)

    @property
    def text(self) -> UniformText:
        sizes = [tuple(side.size for side in self._sides(axis)) for axis in self.view]
        tile, shard = math.prod(map(min, sizes)), math.prod(target for _, target in sizes)
        ends = self.ends
        return UniformText(
            name="PART_" if ends.second else "",
            start=ends.own("_start"),
            wait=ends.own("_wait"),
            start_kernel=ends.own("_start_kernel"),
            done_kernel=ends.own("_done_kernel"),
            kernel=ends.own("_kernel"),
            source=ends.said("source shard"),
            target=ends.said("target shard"),
            axes=self.axes,
            sender=self.sender,
            receiver=self.receiver,
            rounds=self.rounds,
            tile=tuple(map(min, sizes)),
            in_x=self._starts("peer"),
            in_y=self._starts("me"),
            first=str((0,) * len(sizes)),
            tile_bytes=f"{tile * self.itemsize:,}",
            shard_bytes=f"{shard * self.itemsize:,}",
        )

    @property
    def place(self) -> Value:
        """The number that receivers give to this device's tile: the index of its source shard among
        those that overlap the receiver's target shard."""
        me, number = Index("me", self.exchange.source.mesh.size), sympy.Integer(0)
        for tiles in self.exchange.dims:
            count, _ = _met(tiles)
            number = number * count + mod(tiles.source.index(me), count)
        return simplify(number)

    def thin(self, slot: tuple[int, int, int]) -> ThinText:
        """Return the context for thin tiles; `slot`: the shape of a slot."""
        text, size = self.text, math.prod(slot) * self.itemsize
        return ThinText(
            name=text.name,
            kernel=text.kernel,
            in_source=self.ends.own("in_source"),
            in_target=self.ends.own("in_target"),
            moved=self.ends.own("_moved"),
            shard=tuple(self._sides(axis)[1].size for axis in self.view),
            source=text.source,
            target=text.target,
            axes=self.axes,
            sender=self.sender,
            receiver=self.receiver,
            rounds=self.rounds,
            tile=text.tile,
            slot=slot,
            elements=math.prod(text.tile),
            padding=math.prod(slot) - math.prod(text.tile),
            granule=math.prod(slot[1:]),
            in_x=text.in_x,
            in_y=text.in_y,
            place=PALLAS.text(self.place),
            slot_bytes=f"{size:,}",
            slots_bytes=f"{self.count * size:,}",
        )

    def kernels(self, starts: bool) -> tuple[tuple[str, ...], ...]:
        """Return the lines of the kernel's functions. A kernel that sends is made of two halves:
        one starts transfers, the other waits for them. With `starts`, also return a separate kernel
        for each half."""
        names = ("uniform", *(["started"] if starts else [])) if self.sends else ("kept",)
        texts = (render(f"pallas_tpu/{name}.py.jinja", self.text) for name in names)
        return tuple(tuple(text.splitlines()) for text in texts)


LONG = 88
"""The most characters of a position that is written as one expression."""

RECEIVER = "The device that the tile of a number of a source shard goes to."
SENDER = "The device that the tile of a number of a target shard comes from."


def _in_words(
    shards: list[Value], letter: str, position: Callable[[tuple[Value, ...]], Value]
) -> tuple[FunctionBody, Value]:
    """Return assignments and the expression for the position of a shard. If the expression is long,
    assign the shard's indices to variables first."""
    body, whole = FunctionBody(), simplify(position(tuple(shards)))
    if length(PALLAS.text(whole)) <= LONG:
        return body, whole
    named = tuple(body.let(f"{letter}{axis}", shard) for axis, shard in enumerate(shards))
    return body, simplify(position(named))


def _is_even(tiles: DimTiles) -> bool:
    sides = tiles.source, tiles.target
    if sides[0].extent != sides[1].extent:  # only one of the sides has several terms
        return False
    small, large = sorted(side.size for side in sides)
    return all(side.is_flat and side.is_even for side in sides) and large % small == 0


def _met(tiles: DimTiles) -> tuple[int, int]:
    source, target = tiles.source.size, tiles.target.size
    return max(target // source, 1), max(source // target, 1)


@dataclass(frozen=True)
class _Function:
    signature: str
    doc: str
    body: FunctionBody
    result: Value

    @cached_property
    def _assignments(self) -> list[Assignment]:
        return pruned(self.body.lines, [PALLAS.text(self.result)])

    @property
    def values(self) -> tuple[Value, ...]:
        return (*(each.value for each in self._assignments), self.result)

    @property
    def lines(self) -> tuple[str, ...]:
        lines = [*printed(PALLAS, self._assignments), f"return {PALLAS.text(self.result)}"]
        head = (f"def {self.signature}:", f'{INDENT}"""{self.doc}"""')
        return (*head, *(INDENT + line for line in lines))
