"""The lines of a Triton kernel that measure a tile, as `Moves` groups its dimensions.

The last group is the row, its length counted in units; the group before it numbers the rows; each
group before that is one index a program, `index0`, `index1`, ... Numbers stand where all shards, or
all tiles, agree on one; else the ends that the index functions return.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from shardwright.codegen.backends.triton_gpu.rows import Moves
from shardwright.codegen.emit.python_text import INDENT, WIDTH

# Fields of a listed tile before those of the outer groups: where it is, where it begins in source
# and target, the length and number of its rows, how far apart they are in source and target.
FIELDS = 7


@dataclass(frozen=True)
class Rows:
    """The text that turns a tile into rows. `wide`: offsets are computed in 64 bits."""

    moves: Moves
    wide: bool

    @cached_property
    def axes(self) -> tuple[int, ...]:
        """The first dimension of each group, which names it."""
        return tuple(group[0] for group in self.moves.groups)

    @property
    def outer(self) -> tuple[int, ...]:
        """The groups that are neither rows nor their number."""
        return self.axes[:-2]

    @property
    def program(self) -> tuple[str, ...]:
        """Lines that take the number of a block and of a tile off that of the program."""
        blocks = " * ".join(f"BLOCKS{axis}" for axis in self.axes)
        blocks = f"({blocks})" if len(self.axes) > 1 else blocks
        block = f"tl.program_id(0) % {blocks}"
        block = f"tl.cast({block}, tl.int64)" if self.wide else block
        return f"block = {block}", f"number = tl.program_id(0) // {blocks}"

    @property
    def measure(self) -> tuple[str, ...]:
        """Lines that derive a tile's rows from its ends and those of both shards."""
        *_, row = self.moves.groups
        lines = [f"columns = {self._extent(row, 'tile')} // UNIT"]
        if len(self.axes) == 1:
            lines += ["rows, read_row, write_row = 1, 0, 0"]
        else:
            lines += [f"rows = {_bare(self._extent(self.moves.groups[-2], 'tile'))}"]
            lines += [f"read_row = {self._extent(row, 'source')} // UNIT"]
            lines += [f"write_row = {self._extent(row, 'target')} // UNIT"]
        for place in reversed(range(len(self.outer))):
            axis, following = self.axes[place], self.moves.groups[place + 1]
            for side, name in (("source", "read"), ("target", "write")):
                inner = self._stride(name, place + 1)
                lines.append(f"{name}{axis} = {self._extent(following, side)} * {inner}")
            lines.append(f"width{axis} = {_bare(self._extent(self.moves.groups[place], 'tile'))}")
        return (*lines, *self._begin("read", "from"), *self._begin("write", "to"))

    @property
    def load_outer(self) -> tuple[str, ...]:
        """Lines that load the fields of the outer groups of a listed tile."""
        lines = []
        for place, axis in enumerate(self.outer):
            for field, name in enumerate(("width", "read", "write")):
                at = FIELDS + 3 * place + field
                lines.append(f"{name}{axis} = tl.load(tile_entry + {at})")
        return tuple(lines)

    @property
    def outer_lines(self) -> tuple[str, ...]:
        """Lines that take the index of every outer group off the block."""
        if not self.outer:
            return ()
        blocks = " * ".join(f"BLOCKS{axis}" for axis in self.axes[-2:])
        lines = [f"outer = block // ({blocks})", f"block = block % ({blocks})"]
        for axis in reversed(self.outer):
            first = axis == self.outer[0]
            digit = "outer" if first else f"outer % BLOCKS{axis}"
            lines.append(f"index{axis} = {digit}")
            if not first:
                lines.append(f"outer = outer // BLOCKS{axis}")
            lines.append(f"rows = tl.where(index{axis} < width{axis}, rows, 0)")
            lines += [f"{name} = {name} + index{axis} * {name}{axis}" for name in ("read", "write")]
        return tuple(lines)

    @property
    def hints(self) -> tuple[str, ...]:
        """Lines that tell Triton what divides the values of `measure` that are no numbers."""
        *_, row = self.moves.groups
        names = ["read", "write"]
        names += ["columns"] if self._number(row, "tile") is None else []
        if len(self.axes) > 1:
            sides = (("read_row", "source"), ("write_row", "target"))
            names += [name for name, side in sides if self._number(row, side) is None]
        return self._hinted(tuple(names))

    @property
    def all_hints(self) -> tuple[str, ...]:
        """The same for listed tiles, whose values are all loaded."""
        return self._hinted(("read", "write", "columns", "read_row", "write_row"))

    @property
    def copy_call(self) -> tuple[str, ...]:
        """The call that copies a block of rows."""
        columns = f"BLOCKS{self.axes[-1]}"
        words = "source, out, read, write, read_row, write_row, rows, columns, block"
        names = [*words.split(", "), "LANES", "ROWS", "COLUMNS", columns]
        line = f"copy_rows({', '.join(names)})"
        if len(line) + len(INDENT) <= WIDTH:
            return (line,)
        inner = INDENT + ", ".join(names)
        if len(inner) + len(INDENT) <= WIDTH:
            return ("copy_rows(", inner, ")")
        return ("copy_rows(", *(f"{INDENT}{name}," for name in names), ")")

    def _hinted(self, names: tuple[str, ...]) -> tuple[str, ...]:
        if self.moves.form != "lines":
            return ()
        kind = "tl.int64" if self.wide else "tl.int32"
        told = "# Multiples of 16 bytes, all of these, in shards that begin at such."
        return (told, *(f"{n} = tl.multiple_of(tl.cast({n}, {kind}), LANES)" for n in names))

    def _begin(self, name: str, end: str) -> list[str]:
        """Return where the tile begins: in the source (`from`) or target (`to`) shard."""
        terms = []
        for place, group in enumerate(self.moves.groups):
            axis, *whole = group
            low = f"(lo{axis} - {end}{axis})"
            low = f"tl.cast(lo{axis} - {end}{axis}, tl.int64)" if self.wide else low
            low = " * ".join([low, *(self._span(k, "tile") for k in whole)])
            if place == len(self.axes) - 1:
                terms.append(f"{low} // UNIT")
            else:
                terms.append(f"{low} * {self._stride(name, place)}")
        lines = [f"{name} = {terms[0]}"]
        return [*lines, *(f"{name} = {name} + {term}" for term in terms[1:])]

    def _stride(self, name: str, place: int) -> str:
        """Return what tells how far apart the indices of a group are: the one of rows has a
        name."""
        return f"{name}_row" if place == len(self.axes) - 2 else f"{name}{self.axes[place]}"

    def _extent(self, group: tuple[int, ...], of: str) -> str:
        """Return elements along a group: of a tile, or of either shard."""
        number = self._number(group, of)
        if number is not None:
            return str(number)
        axis, *whole = group
        return " * ".join(
            [self._span(axis, of, self.wide), *(self._span(k, "tile") for k in whole)]
        )

    def _number(self, group: tuple[int, ...], of: str) -> int | None:
        """Return the extent, where it is the same for all."""
        product = 1
        for axis in group:
            extent = self._fixed(axis, of if axis == group[0] else "tile")
            if extent is None:
                return None
            product *= extent
        return product

    def _span(self, axis: int, of: str, wide: bool = False) -> str:
        fixed = self._fixed(axis, of)
        if fixed is not None:
            return str(fixed)
        low, high = {
            "tile": (f"lo{axis}", f"hi{axis}"),
            "source": (f"from{axis}", f"from_end{axis}"),
            "target": (f"to{axis}", f"to_end{axis}"),
        }[of]
        return f"tl.cast({high} - {low}, tl.int64)" if wide else f"({high} - {low})"

    def _fixed(self, axis: int, of: str) -> int | None:
        """Return the extent along one dimension, where all tiles or all shards of a side have
        the same."""
        tiles = self.moves.exchange.dims[axis]
        if of == "tile" and not self.moves.is_whole(axis):
            return None
        side = tiles.target if of == "target" else tiles.source
        return side.size if side.is_even else None


def _bare(text: str) -> str:
    """Return an expression without the brackets around all of it."""
    return text[1:-1] if text.startswith("(") and text.find(")") == len(text) - 1 else text
