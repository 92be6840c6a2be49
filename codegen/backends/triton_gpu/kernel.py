"""The pull kernel of a reshard, as lines: which block of which tile a program copies, and whence.

A launch fills one target shard. Tiles take turns over the programs, so that all links are busy all
the time, and begin at another source shard for each device, so that devices that start together do
not all read from one; a device's own tile is the last.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import sympy

from shardwright.codegen.backends.peers import Ends, conjunction, printed, pruned
from shardwright.codegen.backends.triton_gpu.along import Along, Condition, along
from shardwright.codegen.backends.triton_gpu.rows import Moves
from shardwright.codegen.emit.index_functions import FunctionBody
from shardwright.codegen.emit.python_text import exploded
from shardwright.ir.algebra.identities import simplify
from shardwright.ir.algebra.index import Index, Value, floor_div, mod
from shardwright.ir.algebra.printers import TRITON
from shardwright.ir.exchange import Exchange

Terms = list[tuple[Value, Value]]
"""Summands of an offset: where something begins, and how far apart that is counted in."""

FITS = 96
"""Characters of a line of the kernel's body."""

NAMED = ("read", "write", "rows", "columns", "read_row", "write_row")
"""What the copy of rows is given, by these names."""


@dataclass(frozen=True)
class Kernel(Ends):
    """The derivation for an exchange. `some_local`: whether any device holds a part of its target
    shard; `wide`: whether offsets pass 32 bits."""

    moves: Moves
    some_local: bool
    wide: bool

    @property
    def exchange(self) -> Exchange:
        """What is moved."""
        return self.moves.exchange

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """The most source shards that a target shard meets along each dimension."""
        return tuple(dim.max_peers_of_target for dim in self.exchange.dims)

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
        """The first dimensions of the groups that are neither rows nor their number."""
        return tuple(group[0] for group in self.moves.groups[:-2])

    @property
    def copy(self) -> str:
        """The support function that copies a block of rows."""
        return "copy_some_lines" if self.moves.form == "mixed" else "copy_rows"

    def lines(self) -> list[str]:
        """Return the body of the kernel."""
        body = FunctionBody()
        digits = self._digits()
        tiles = [
            along(dim, axis, self.receiver, self._turn(axis, digits[axis]), body)
            for axis, dim in enumerate(self.exchange.dims)
        ]
        sources = tuple(tile.source for tile in tiles)
        holder = simplify(self.exchange.holder(sources, self.receiver, digits[-1]))
        middle: list[str] = []
        if self.tells_held:
            middle += self._held_lines(sources, holder)
            sender: Value = Index("sender", self.exchange.source.mesh.size)
        else:
            sender = body.let("sender", holder)
        first, body = body.lines, FunctionBody()
        if self.exchange.rule.pieces > 1:
            tiles, cut = self._cut(tiles, digits[-1])
            middle += cut
        begins, values, conditions = self._rows(tiles)
        copying = [
            f"source = shard_at(peers, {TRITON.text(sender)}, out, LANES)",
            *(
                line
                for name, begin in zip(NAMED, begins, strict=False)
                for line in _sum(name, begin)
            ),
            *_unfolded(values),
            *self._copy_lines(),
        ]
        if conditions:
            copying = [*_test(conditions), *(f"    {line}" for line in copying)]
        kept = pruned(first, [*middle, *copying])
        return [*self._program(), *printed(TRITON, kept), *middle, *copying]

    def _program(self) -> list[str]:
        """Return lines that take tile, outer indices and block off the number of the program."""
        program = "tl.program_id(0)"
        lines = []
        if self.wide:
            lines.append("# Offsets pass 32 bits.")
            lines.append("program = tl.cast(tl.program_id(0), tl.int64)")
            lines.append("receiver = tl.cast(receiver, tl.int64)")
            program = "program"
        names, sizes = [], []
        if self.tiles > 1:
            names, sizes = ["number"], [self.tiles]
        widest = dict(
            zip((group[0] for group in self.moves.groups), self.moves.widest, strict=True)
        )
        for axis in self.outer:
            names.append(f"index{axis}")
            sizes.append(widest[axis])
        left = program
        for name, size in zip(names, sizes, strict=True):
            lines.append(f"{name}, block = {left} % {size}, {left} // {size}")
            left = "block"
        return lines if names else [*lines, f"block = {program}"]

    def _digits(self) -> tuple[Value, ...]:
        """Return the digit of the tile's number along each dimension, and that of its piece."""
        number, found, weight = Index("number", self.tiles), [], 1
        for count in reversed((*self.counts, self.exchange.rule.pieces)):
            found.append(mod(floor_div(number, weight), count))
            weight *= count
        return tuple(reversed(found))

    def _turn(self, axis: int, digit: Value) -> Value:
        """Return which of the source shards that are met along a dimension comes at a digit: the
        own one last, where their first has a multiple of their count."""
        count = self.counts[axis]
        if count == 1:
            return 0
        own = self.exchange.source.dims[axis].index(self.receiver)
        return mod(digit + own + 1, count)

    def _held_lines(self, sources: tuple[Value, ...], holder: Value) -> list[str]:
        """Return lines that find the sender where a device that holds a tile copies its own."""
        tests, me = self.held(sources), self.me.name
        return [
            "# A device that holds the tile copies its own; the others share the holders.",
            *conjunction("held = ", tests, "&"),
            *_chosen("sender", "held", me, TRITON.text(holder)),
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
        if self.tells_held:
            first = f"tl.where({TRITON.text(piece)} == 0, {TRITON.text(width)}, 0)"
            lines += _chosen("start", "held", "0", texts[0])
            lines += _chosen("end", "held", first, texts[1])
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

    def _rows(self, tiles: list[Along]) -> tuple[tuple[Terms, Terms], list[Value], list[Condition]]:
        """Return where the first row begins in both shards, the other values of NAMED, and what is
        so unless nothing is to be copied."""
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
                index = Index(f"index{axis}", self.moves.widest[place])
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
        found = [simplify(value) for value in (rows, columns, read_row, write_row)]
        return (reads, writes), found, list(dict.fromkeys(conditions))

    def _extent(self, tiles: list[Along], place: int) -> Value:
        return math.prod((tiles[k].width for k in self.moves.groups[place]), start=sympy.Integer(1))

    def _copy_lines(self) -> list[str]:
        names = ["source", "out", *NAMED[:2], *NAMED[4:], *NAMED[2:4], "block"]
        names += ["WIDTH", "LANES", "ROWS", "COLUMNS", "COLUMN_BLOCKS"]
        return exploded(self.copy, names)


def _chosen(name: str, test: str, one: str, other: str) -> list[str]:
    """Return the lines of a choice."""
    inner = f"{test}, {one}, {other}"
    line = f"{name} = tl.where({inner})"
    if len(line) <= FITS:
        return [line]
    apart = [inner] if len(inner) <= FITS - 4 else [f"{test},", f"{one},", f"{other},"]
    return [f"{name} = tl.where(", *(f"    {each}" for each in apart), ")"]


def _test(conditions: list[Condition]) -> list[str]:
    """Return the lines that begin a block of what is done unless a tile is empty."""
    tests = [f"{TRITON.text(small)} < {TRITON.text(large)}" for small, large in conditions]
    return conjunction("if ", tests, "&", ":")


def _sum(name: str, terms: Terms) -> list[str]:
    """Return `name = begin * stride + ...` of what is not zero."""
    parts = []
    for begin, stride in terms:
        value, step = simplify(begin), simplify(stride)
        text = TRITON.text(value)
        if value == 0:
            continue
        if step != 1:
            text = f"({text})" if isinstance(value, sympy.Add) else text
            step_text = TRITON.text(step)
            text += f" * ({step_text})" if step.args else f" * {step_text}"
        parts.append(text)
    line = f"{name} = {' + '.join(parts) or '0'}"
    if len(line) <= 88:
        return [line]
    return [f"{name} = (", f"    {parts[0]}", *(f"    + {part}" for part in parts[1:]), ")"]


def _unfolded(values: list[Value]) -> list[str]:
    """Return the lines of the other NAMED, two by two where both are short."""
    lines = []
    for place in (0, 2):
        names, texts = (
            NAMED[2 + place : 4 + place],
            list(map(TRITON.text, values[place : place + 2])),
        )
        line = f"{', '.join(names)} = {', '.join(texts)}"
        apart = [f"{name} = {text}" for name, text in zip(names, texts, strict=True)]
        lines += [line] if len(line) <= 88 else apart
    return lines
