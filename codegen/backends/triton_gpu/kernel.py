"""Derive the expressions of a reshard's kernel: the block of a tile that each program copies, and
the device from which it is read.

A launch fills one target shard. Successive programs copy blocks of different tiles, so that all
links stay busy. Devices begin with different source shards, so they do not all read from the same
one. If possible, a device reads its own tile last. The statements are in
`templates/triton_gpu/pull.py.jinja` or, if terms are reduced, in `reduce.py.jinja`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import astuple, dataclass, replace
from functools import cached_property

import sympy

from shardwright.codegen.backends.lines import FITS, conjunction, pruned
from shardwright.codegen.backends.peers import Peers
from shardwright.codegen.backends.triton_gpu.along import PULLED, Along, Candidates, Words, along
from shardwright.codegen.backends.triton_gpu.kernel_text import (
    DigitText,
    DimText,
    Named,
    PieceText,
    PositionText,
    PullText,
    RowsText,
)
from shardwright.codegen.backends.triton_gpu.reduced import ReducedText
from shardwright.codegen.backends.triton_gpu.rows import Moves
from shardwright.codegen.text.index_functions import Assignment, FunctionBody
from shardwright.codegen.text.python_text import WIDTH, broken
from shardwright.ir.algebra.identities import simplify
from shardwright.ir.algebra.index import Index, Value, floor_div, mod
from shardwright.ir.algebra.printers import TRITON
from shardwright.ir.exchange import Exchange

LOOPED = FITS - 4
"""The most characters of a line in a kernel's loop."""

Terms = list[tuple[Value, Value]]
"""The summands of an offset in elements: (start, stride) along each dimension."""

POSITIONS = {
    "receiver": "position of this device in the target mesh",
    "me": "its position in the source mesh, -1 if it is not in it",
}
"""The comments on kernel parameters that are positions, by name."""


@dataclass(frozen=True)
class Kernel:
    """The kernel of an exchange, as expressions. `some_local`: whether any device already has part
    of its target shard; `wide`: whether offsets exceed 32 bits; `dtype`: the dtype of terms, if the
    kernel reduces them."""

    moves: Moves
    some_local: bool
    wide: bool
    dtype: str = ""

    @property
    def exchange(self) -> Exchange:
        return self.moves.exchange

    @property
    def peers(self) -> Peers:
        return Peers(self.exchange, self.some_local)

    @property
    def hidden(self) -> int:
        """The number of leading dimensions that number terms rather than elements of the tensor."""
        return self.exchange.source.hidden

    @property
    def reduces(self) -> bool:
        """Whether the kernel reduces terms. Every program then reads all terms of its block."""
        return self.exchange.operator is not None

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """The most source shards that a target shard overlaps along each dimension; 1 along hidden
        dimensions, because terms are not separate tiles."""
        met = (dim.max_peers_of_target for dim in self.exchange.dims[self.hidden :])
        return (*(1 for _ in range(self.hidden)), *met)

    @property
    def here(self) -> Index:
        """The position of the device that runs the kernel."""
        return self.peers.receiver

    @property
    def shares(self) -> int:
        """The number of pieces of a tile, which are copied separately."""
        return self.exchange.rule.pieces

    @property
    def copy(self) -> str:
        """The support function that copies a block of rows."""
        return "copy_some_lines" if self.moves.has_ends else "copy_rows"

    @property
    def tiles(self) -> int:
        """The most tiles of a target shard, or pieces of tiles if tiles are cut."""
        return math.prod(self.counts) * self.shares

    @property
    def outer(self) -> tuple[int, ...]:
        """The first dimension of each group of merged dimensions outside the rows, unless every
        tile has only one index along the group."""
        groups = zip(self.moves.groups[:-2], self.moves.widest[:-2], strict=True)
        return tuple(group[0] for group, widest in groups if widest > 1)

    @cached_property
    def text(self) -> PullText:
        body, digits = FunctionBody(), self.digits()
        tiles, owners = self.tiles_along(digits, body)
        sources = tuple(tile.source for tile in tiles)
        holder = simplify(self.exchange.holder(sources, self.peers.receiver, digits[-1]))
        named = [*body.lines, Assignment("sender", holder)]
        room = FITS - 8 - len("held = ")
        held = conjunction(self.peers.held(sources), "&", room) if self.peers.tells_held else ""
        piece = None
        if self.exchange.rule.pieces > 1:
            tiles, piece = self.cut(tiles, digits[-1])
        inside, rows = self.rows(tiles, [])
        moved = (*astuple(rows), *(astuple(piece) if piece else ()))
        *kept, sender = pruned(named, ["sender", held, inside, *map(str, moved)])
        positions = ["receiver", "me"] if self.peers.knows_me else ["receiver"]
        return PullText(
            positions=str(positions).replace("'", '"'),
            parameters=tuple(PositionText(name, POSITIONS[name]) for name in positions),
            wide=self.wide,
            digits=tuple(self.taken()),
            dims=tuple(self.texts(kept, owners)),
            sender=broken_value(sender, 12 if self.reduces else 8),
            held=held,
            me=self.peers.me.name,
            piece=piece,
            inside=inside,
            deeper=4 if inside else 0,
            rows=rows,
            copy=self.copy,
            reduced=ReducedText.of(self.exchange, self.dtype) if self.reduces else None,
        )

    def tiles_along(
        self, digits: tuple[Value, ...], body: FunctionBody, words: Words = PULLED
    ) -> tuple[list[Along], dict[str, int]]:
        """Return the tile along each dimension, given the digits of its number, and the dimension
        of each name that this call adds to `body`."""
        owners = dict[str, int]()
        tiles = [self._hidden(axis) for axis in range(self.hidden)]
        for axis in range(self.hidden, len(self.exchange.dims)):
            known, turn = len(body.lines), self._turn(axis, digits[axis])
            dim, number = self.exchange.dims[axis], axis - self.hidden
            tiles.append(along(dim, number, self.here, turn, body, words))
            owners |= {line.name: axis for line in body.lines[known:]}
        return tiles, owners

    def meets(self, axis: int) -> str:
        """Say in words how many source shards a target shard overlaps along a dimension."""
        dim, count = self.exchange.dims[axis], self.counts[axis]
        every = "" if Candidates.of(dim).full.all() else "up to "
        return "one" if count == 1 else f"{every}{count}"

    def texts(self, assignments: list[Assignment], owners: dict[str, int]) -> Iterator[DimText]:
        """Yield each dimension's assignments, with comments; `owners`: the dimension of each
        name."""
        for axis in dict.fromkeys(owners[each.name] for each in assignments):
            dim, several = self.exchange.dims[axis], self.counts[axis] > 1
            shards = f"source shard{'s' * several} of {dim.source.size}"
            met = f"A target shard of {dim.target.size} meets {self.meets(axis)} {shards}."
            last = " and ends with its own" if several and self._ends_with_own(axis) else ""
            order = [f"Each device starts with a different one{last}."] * several
            values = (each for each in assignments if owners[each.name] == axis)
            yield DimText(
                (met, *order),
                tuple(Named(each.name, broken_value(each, 8)) for each in values),
            )

    def taken(self) -> Iterator[DigitText]:
        """Yield the digits of the loop's index, the least significant first: the number of the
        tile, then the index along each outer dimension."""
        widest = {g[0]: w for g, w in zip(self.moves.groups, self.moves.widest, strict=True)}
        sizes = {"number": self.tiles} if self.tiles > 1 else {}
        sizes |= {f"index{axis - self.hidden}": widest[axis] for axis in self.outer}
        left = "place"
        for name, size in sizes.items():
            yield DigitText(name, left, size)
            left = "block"

    def digits(self) -> tuple[Value, ...]:
        """Return the digits of a tile's number: one per dimension, and a last one for the piece."""
        number, found, weight = Index("number", self.tiles), [], 1
        for count in reversed((*self.counts, self.shares)):
            found.append(mod(floor_div(number, weight), count))
            weight *= count
        return tuple(reversed(found))

    def _turn(self, axis: int, digit: Value) -> Value:
        count = self.counts[axis]
        if count == 1:
            return 0
        own = self.exchange.source.dims[axis].index(self.here)
        return mod(digit + own + int(self._ends_with_own(axis)), count)

    def _ends_with_own(self, axis: int) -> bool:
        """Return whether every device's own shard comes last if the device starts with the next
        one: the number of the first overlapping shard is always a multiple of the number of
        overlapping shards."""
        count = self.counts[axis]
        firsts = Candidates.of(self.exchange.dims[axis]).source[::count]
        return self.exchange.same_order and not (firsts % count).any()

    def _hidden(self, axis: int) -> Along:
        """Return the tile along a hidden dimension: the receiver's own term or, if the kernel
        reduces along it, the loop variable `term`."""
        dim, one = self.exchange.dims[axis], sympy.Integer(1)
        # Of new terms, only the first receives data, from the only source term.
        term: Value = dim.target.index(self.here) if dim.source.parts > 1 else 0 * one
        if self.reduces and axis == 0:
            term = Index("term", dim.source.parts)
        return Along(term, 0 * one, 0 * one, one, one, one, ())

    def cut(self, tiles: list[Along], piece: Value) -> tuple[list[Along], PieceText]:
        """Replace the tile along the cut dimension by its piece. Return the tiles, and the text
        that computes the piece."""
        axis = self.exchange.rule.cut
        tile, most = tiles[axis], self.exchange.dims[axis].max_width + 1
        width: Value = tile.width
        if isinstance(width, Index):
            width = Index(width.name, most)
        start, end = (simplify(end) for end in self.exchange.piece(width, piece))
        starts, stops = Index("start", most), Index("end", most)
        piece_of = replace(
            tile,
            read=tile.read + starts,
            write=tile.write + starts,
            width=stops - starts,
            inside=(*tile.inside, (starts, stops)),
        )
        text = PieceText(
            pieces=self.exchange.rule.pieces,
            number=TRITON.text(piece),
            width=TRITON.text(width),
            start=TRITON.text(start),
            end=TRITON.text(end),
        )
        return [*tiles[:axis], piece_of, *tiles[axis + 1 :]], text

    def rows(self, tiles: list[Along], more: list[str]) -> tuple[str, RowsText]:
        """Return the condition that a tile or piece is not empty ("" if it never is), and the tile
        as rows; `more`: additional tests for the condition."""
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
        read_row, write_row = apart[1] if len(groups) > 1 else (sympy.Integer(0),) * 2
        tests = [f"{TRITON.text(a)} < {TRITON.text(b)}" for a, b in dict.fromkeys(conditions)]
        tests = [*more, *tests]
        room = LOOPED - 4 * (2 if tests else 1)
        rows = RowsText(
            read=_offset(reads, room - len("read=,")),
            write=_offset(writes, room - len("write=,")),
            rows=self._extent(tiles, -2) if len(groups) > 1 else "1",
            columns=self._extent(tiles, -1),
            read_row=TRITON.text(simplify(read_row)),
            write_row=TRITON.text(simplify(write_row)),
            block="block" if self.tiles > 1 or self.outer else "place",
            bits=64 if self.wide else 32,
        )
        room = FITS - 8 - len("if :")
        return conjunction(tests, "&", room) if tests else "", rows

    def _extent(self, tiles: list[Along], place: int) -> str:
        widths = (tiles[k].width for k in self.moves.groups[place])
        return TRITON.text(simplify(math.prod(widths, start=sympy.Integer(1))))


def broken_value(assignment: Assignment, indent: int) -> str:
    """Return the value of an assignment as text, broken into lines that fit at an indentation."""
    return broken(TRITON, assignment.value, WIDTH - indent - len(f"{assignment.name} = "))


def _offset(terms: Terms, room: int) -> str:
    """Return the text `start * stride + ...` of an offset, without zero terms. If it exceeds `room`
    characters, put each term on its own line."""
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
    line = " + ".join(parts) or "0"
    if len(line) <= room:
        return line
    return "\n".join(["(", f"    {parts[0]}", *(f"    + {part}" for part in parts[1:]), ")"])
