"""The pull kernel of a reshard, as lines: which block of which tile a program copies, and whence.

A launch fills one target shard. Tiles take turns over the programs, so that all links are busy all
the time, and begin at another source shard for each device, so that devices that start together do
not all read from one. Where that can be, a device's own tile is the last.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import sympy

from shardwright.codegen.backends.lines import conjunction, printed, pruned
from shardwright.codegen.backends.peers import PeerEnds
from shardwright.codegen.backends.triton_gpu.along import Along, Candidates, Condition, along
from shardwright.codegen.backends.triton_gpu.lines import (
    LOOPED,
    Terms,
    chosen,
    sum_argument,
    test_of,
)
from shardwright.codegen.backends.triton_gpu.reduced import Reduced
from shardwright.codegen.backends.triton_gpu.rows import Moves
from shardwright.codegen.emit.index_functions import Assignment, FunctionBody
from shardwright.ir.algebra.identities import simplify
from shardwright.ir.algebra.index import Index, Value, floor_div, mod
from shardwright.ir.algebra.printers import TRITON
from shardwright.ir.exchange import Exchange


@dataclass(frozen=True)
class Kernel(PeerEnds):
    """The derivation for an exchange. `some_local`: whether any device holds a part of its target
    shard; `wide`: whether offsets pass 32 bits; `dtype`: what is reduced, where anything is."""

    moves: Moves
    some_local: bool
    wide: bool
    dtype: str = ""

    @property
    def exchange(self) -> Exchange:
        """What is moved."""
        return self.moves.exchange

    @property
    def hidden(self) -> int:
        """How many dimensions of the exchange number terms, before those of the tensor."""
        return self.exchange.source.hidden

    @property
    def reduces(self) -> bool:
        """Whether terms are reduced: every program goes through all terms of its block."""
        return self.exchange.operator is not None

    @property
    def reduced(self) -> Reduced:
        """How terms become values."""
        return Reduced(self.exchange, self.dtype)

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """The most source shards that a target shard meets along each dimension of the tensor; 1
        along hidden ones, whose shards are no tiles of their own."""
        met = (dim.max_peers_of_target for dim in self.exchange.dims[self.hidden :])
        return (*(1 for _ in range(self.hidden)), *met)

    @property
    def tiles(self) -> int:
        """How many tiles, or pieces of tiles, make up a target shard at most."""
        return math.prod(self.counts) * self.exchange.rule.pieces

    @property
    def positions(self) -> str:
        """The parameters that are positions, as a Python list."""
        return '["receiver", "me"]' if self.knows_me else '["receiver"]'

    @property
    def outer(self) -> tuple[int, ...]:
        """The first dimensions of the groups that are neither rows nor their number, of those that
        have more than one index."""
        groups = zip(self.moves.groups[:-2], self.moves.widest[:-2], strict=True)
        return tuple(group[0] for group, widest in groups if widest > 1)

    @property
    def by(self) -> str:
        """The support function that copies a block of rows, or says where one lies."""
        if self.reduces:
            return "rows_at"
        return "copy_some_lines" if self.moves.form == "mixed" else "copy_rows"

    @property
    def doc(self) -> str:
        """The docstring of the kernel."""
        if self.reduces:
            made = {"sum": "Add up", "max": "Find the maximum of", "min": "Find the minimum of"}
            does = made[self.exchange.operator or "sum"]
            what = f"{does} blocks of tiles over all terms."
        else:
            what = "Copy blocks of tiles, each out of the source shard that has it."
        return f"{what} Offsets are in elements."

    def lines(self) -> list[str]:
        """Return the body of the kernel."""
        body = FunctionBody()
        digits = self._digits()
        tiles = [
            self._hidden(axis)
            if axis < self.hidden
            else along(dim, axis - self.hidden, self.receiver, self._turn(axis, digits[axis]), body)
            for axis, dim in enumerate(self.exchange.dims)
        ]
        sources = tuple(tile.source for tile in tiles)
        holder = simplify(self.exchange.holder(sources, self.receiver, digits[-1]))
        middle: list[str] = []
        sender: Value = Index("sender", self.exchange.source.mesh.size)
        if self.tells_held:
            held = self._held_lines(sources, holder)
        else:
            sender, held = holder if self.reduces else body.let("sender", holder), []
        middle += [] if self.reduces else held
        first, body = body.lines, FunctionBody()
        if self.exchange.rule.pieces > 1:
            tiles, cut = self._cut(tiles, digits[-1])
            middle += cut
        rows = self._rows(tiles)
        if self.reduces:
            copying = [
                *self._place_lines(rows),
                *self.reduced.lines(held, TRITON.text(sender)),
            ]
        else:
            copying = self._copy_lines(TRITON.text(sender), rows)
        if rows.conditions:
            copying = [*test_of(rows.conditions), *(f"    {line}" for line in copying)]
        kept = pruned(first, [*middle, *copying])
        each = [*self._tile(), *self._assigned(kept), *middle, *copying]
        return [*self._programs(), *(f"    {line}" for line in each)]

    def meets(self, axis: int) -> str:
        """Return how many source shards meet a target shard along a dimension, in words."""
        dim, count = self.exchange.dims[axis], self.counts[axis]
        every = "" if Candidates.of(dim).full.all() else "up to "
        return "one" if count == 1 else f"{every}{count}"

    def _assigned(self, assignments: list[Assignment]) -> list[str]:
        """Return assignments as lines, those that choose among source shards with a comment."""
        counts = enumerate(self.counts)
        numbers = {f"a{axis - self.hidden}": axis for axis, count in counts if count > 1}
        lines = []
        for assignment in assignments:
            if assignment.name in numbers:
                axis = numbers[assignment.name]
                sizes = self.exchange.dims[axis].source.size, self.exchange.dims[axis].target.size
                met = f"{self.meets(axis)} shards of {sizes[0]} meet one of {sizes[1]}"
                order = "devices begin with different ones"
                order += ", end with their own" if self._ends_with_own(axis) else ""
                lines.append(f"# {met[0].upper()}{met[1:]}; {order}.")
            lines += printed(TRITON, [assignment], depth=2)
        return lines

    def _programs(self) -> list[str]:
        """Return lines that begin the loop of a program over its blocks."""
        loop = "for place in range({}, BLOCK.number, tl.num_programs(0)):"
        if not self.wide:
            return [loop.format("tl.program_id(0)")]
        return [
            "# Offsets pass 32 bits.",
            "receiver = tl.cast(receiver, tl.int64)",
            loop.format("tl.cast(tl.program_id(0), tl.int64)"),
        ]

    def _tile(self) -> list[str]:
        """Return lines that take tile, outer indices and block off the place in the loop."""
        names, sizes = [], []
        if self.tiles > 1:
            names, sizes = ["number"], [self.tiles]
        widest = dict(
            zip((group[0] for group in self.moves.groups), self.moves.widest, strict=True)
        )
        for axis in self.outer:
            names.append(f"index{axis - self.hidden}")
            sizes.append(widest[axis])
        left, lines = "place", []
        for name, size in zip(names, sizes, strict=True):
            lines.append(f"{name}, block = {left} % {size}, {left} // {size}")
            left = "block"
        return lines

    def _digits(self) -> tuple[Value, ...]:
        """Return the digit of the tile's number along each dimension, and that of its piece."""
        number, found, weight = Index("number", self.tiles), [], 1
        for count in reversed((*self.counts, self.exchange.rule.pieces)):
            found.append(mod(floor_div(number, weight), count))
            weight *= count
        return tuple(reversed(found))

    def _turn(self, axis: int, digit: Value) -> Value:
        """Return which of the source shards that are met along a dimension comes at a digit."""
        count = self.counts[axis]
        if count == 1:
            return 0
        own = self.exchange.source.dims[axis].index(self.receiver)
        return mod(digit + own + int(self._ends_with_own(axis)), count)

    def _ends_with_own(self, axis: int) -> bool:
        """Return whether a step past the own shard puts that last: always, where the first shard
        that is met has a multiple of their count."""
        count = self.counts[axis]
        firsts = Candidates.of(self.exchange.dims[axis]).source[::count]
        return self.exchange.same_order and not (firsts % count).any()

    def _hidden(self, axis: int) -> Along:
        """Return the tile along a hidden dimension: the receiver's own term, or each in turn."""
        dim, one = self.exchange.dims[axis], sympy.Integer(1)
        # Of new terms the first alone gets anything, and that is of the one term of the source.
        term: Value = dim.target.index(self.receiver) if dim.source.parts > 1 else 0 * one
        if self.reduces and axis == 0:
            term = Index("term", dim.source.parts)
        return Along(term, 0 * one, 0 * one, one, one, one, ())

    def _held_lines(self, sources: tuple[Value, ...], holder: Value) -> list[str]:
        """Return lines that find the sender where a device that holds a tile copies its own."""
        tests, me = self.held(sources), self.me.name
        return [
            "# A device that holds the tile copies its own; the others share the holders.",
            *conjunction("held = ", tests, "&"),
            *chosen("sender", "held", me, TRITON.text(holder)),
        ]

    def _cut(self, tiles: list[Along], piece: Value) -> tuple[list[Along], list[str]]:
        """Return the tiles with that of the cut dimension replaced by its piece, and the lines that
        find that."""
        axis = self.exchange.rule.cut
        tile = tiles[axis]
        width: Value = tile.width
        if isinstance(width, Index):
            width = Index(width.name, self.exchange.dims[axis].max_width + 1)
        start, end = (simplify(end) for end in self.exchange.piece(width, piece))
        texts = TRITON.text(start), TRITON.text(end)
        lines = [
            f"# A tile is cut into {self.exchange.rule.pieces} pieces.",
        ]
        if self.tells_held and not self.reduces:
            first = f"tl.where({TRITON.text(piece)} == 0, {TRITON.text(width)}, 0)"
            lines += chosen("start", "held", "0", texts[0])
            lines += chosen("end", "held", first, texts[1])
        else:
            lines += [f"start = {texts[0]}", f"end = {texts[1]}"]
        most = self.exchange.dims[axis].max_width + 1
        starts, stops = Index("start", most), Index("end", most)
        piece_of = Along(
            source=tile.source,
            read=tile.read + starts,
            write=tile.write + starts,
            width=stops - starts,
            held=tile.held,
            wanted=tile.wanted,
            inside=(*tile.inside, (starts, stops)),
        )
        return [*tiles[:axis], piece_of, *tiles[axis + 1 :]], lines

    def _rows(self, tiles: list[Along]) -> _Rows:
        """Return a tile, or a piece of one, as rows."""
        groups, conditions = self.moves.groups, [c for tile in tiles for c in tile.inside]
        reads: Terms = []
        writes: Terms = []
        read_stride: Value = 1
        write_stride: Value = 1
        apart: list[tuple[Value, Value]] = []
        for place in reversed(range(len(groups))):
            axis, *whole = groups[place]
            inner = math.prod((tiles[k].width for k in whole), start=sympy.Integer(1))
            begin = tiles[axis].read * inner, tiles[axis].write * inner
            if axis in self.outer:
                index = Index(f"index{axis - self.hidden}", self.moves.widest[place])
                begin = begin[0] + index, begin[1] + index
                extent = simplify(tiles[axis].width * inner)
                if extent != self.moves.widest[place]:
                    conditions.append((index, extent))
            reads.insert(0, (begin[0], read_stride))
            writes.insert(0, (begin[1], write_stride))
            apart.append((read_stride, write_stride))
            read_stride = read_stride * tiles[axis].held * inner
            write_stride = write_stride * tiles[axis].wanted * inner
        columns, rows = self._extent(tiles, -1), sympy.Integer(1)
        read_row = write_row = sympy.Integer(0)
        if len(groups) > 1:
            rows, (read_row, write_row) = self._extent(tiles, -2), apart[1]
        return _Rows(
            read=reads,
            write=writes,
            rows=simplify(rows),
            columns=simplify(columns),
            read_row=simplify(read_row),
            write_row=simplify(write_row),
            conditions=list(dict.fromkeys(conditions)),
        )

    def _extent(self, tiles: list[Along], place: int) -> Value:
        return math.prod((tiles[k].width for k in self.moves.groups[place]), start=sympy.Integer(1))

    def _copy_lines(self, sender: str, rows: _Rows) -> list[str]:
        """Return the call that copies a block of rows out of the source shard of a sender."""
        return [
            f"{self.by}(",
            f"    shard_at(peers, {sender}, out, BLOCK),",
            "    out,",
            *self._row_arguments(rows),
            ")",
        ]

    def _place_lines(self, rows: _Rows) -> list[str]:
        """Return the call that says where a block of rows lies in both shards."""
        return [f"read, write, inside = {self.by}(", *self._row_arguments(rows), ")"]

    def _row_arguments(self, rows: _Rows) -> list[str]:
        room = LOOPED - 4 * (2 if rows.conditions else 1)
        values = {
            "rows": rows.rows,
            "columns": rows.columns,
            "read_row": rows.read_row,
            "write_row": rows.write_row,
        }
        block = "block" if self.tiles > 1 or self.outer else "place"
        return [
            *(f"    {line}" for line in sum_argument("read", rows.read, room)),
            *(f"    {line}" for line in sum_argument("write", rows.write, room)),
            *(f"    {name}={TRITON.text(value)}," for name, value in values.items()),
            # The interpreter's loops are over Python's integers, which have no type.
            f"    block=tl.cast({block}, tl.int{64 if self.wide else 32}),",
            "    BLOCK=BLOCK,",
        ]


@dataclass(frozen=True)
class _Rows:
    """A tile as rows: where the first begins in both shards, how many there are, the elements of
    one, how far apart they are; `conditions`: what holds unless nothing is to be copied."""

    read: Terms
    write: Terms
    rows: Value
    columns: Value
    read_row: Value
    write_row: Value
    conditions: list[Condition]
