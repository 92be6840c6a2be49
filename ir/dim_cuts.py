"""Cut one stored dimension of a part, and find the shard that each device stores.

`DimCut` is the cut as written (`ir/parts.py` has the text form). `BoundCut` is the cut on a mesh,
with closed forms that depend on a mesh position.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from shardwright.ir.algebra.index import Value, maximum, minimum, pick
from shardwright.ir.axes import AxisRef
from shardwright.ir.cuts import Balanced, Cover, Cut, Listed, Nested, Pair, Sized, flat
from shardwright.ir.errors import InputError, placed
from shardwright.ir.layout import merge_digits, read_digits
from shardwright.ir.mesh import Digit, Mesh

Rule = Literal["flat", "sized", "balanced", "nested", "listed", "cover"]
RULES: tuple[Rule, ...] = get_args(Rule)
_COUNTS = {"flat": (0, 0), "sized": (1, 2), "balanced": (0, 0), "nested": (0, 0), "cover": (2, 3)}


@dataclass(frozen=True)
class DimCut:
    """One stored dimension of a part: the axes that cut it, the rule of the cut, and the shard
    at each position along the axes. `str` returns its text."""

    axes: tuple[AxisRef, ...] = ()  # major to minor
    rule: Rule = "flat"
    numbers: tuple[int, ...] = ()  # the arguments of the rule, in the order of its text
    into: int | None = None  # the number of shards; None: one per position along the axes
    reversed: bool = False  # whether position c has shard `shards - 1 - c`
    table: tuple[int | None, ...] | None = None  # the shard at each position; None: no shard
    window: tuple[int, int] | None = None  # the half-open range that is stored; None: everything

    def __post_init__(self) -> None:
        least, most = _COUNTS.get(self.rule, (2, len(self.numbers)))
        if not least <= len(self.numbers) <= most:
            raise InputError(
                f"{self.rule} does not take this many numbers",
                got=f"{len(self.numbers)} numbers",
                expected=_NUMBERS[self.rule],
                where=("rule",),
            )
        if self.rule == "listed":
            self._check_bounds()
        elif self.numbers and (
            min(self.numbers[:1] + self.numbers[2:]) < 1 or min(self.numbers) < 0
        ):
            raise InputError(
                f"the numbers of {self.rule} are too small",
                got=", ".join(map(str, self.numbers)),
                expected=_NUMBERS[self.rule],
                where=("rule",),
            )
        if self.reversed and self.table is not None:
            raise InputError(
                "a cut with a table must not be reversed: the table already orders the shards",
                got=self,
                expected="either reversed or a table",
                where=("table",),
            )
        if self.rule == "nested" and self.into is not None:
            raise InputError(
                "a nested cut must not have `into`: it makes one shard per position of its axes",
                got=f"into({self.into})",
                expected="nested without into",
                where=("into",),
            )

    def _check_bounds(self) -> None:
        ascend = all(a <= b for a, b in zip(self.numbers, self.numbers[1:], strict=False))
        if self.numbers[0] != 0 or not ascend:
            raise InputError(
                "boundaries must ascend from 0",
                got=", ".join(map(str, self.numbers)),
                expected=_NUMBERS["listed"],
                where=("rule",),
            )

    @property
    def is_whole(self) -> bool:
        """Whether every device has the whole dimension."""
        return self == DimCut()

    def bind(self, extent: int, mesh: Mesh) -> BoundCut:
        """Return the cut of a dimension of `extent` elements on a mesh. Raise InputError if the cut
        does not fit the extent or the mesh."""
        start, stop = self.window or (0, extent)
        if not 0 <= start < stop <= extent:
            raise InputError(
                "a range must lie within its dimension",
                got=f"{start}:{stop} of {extent} elements",
                expected=f"a range within 0:{extent}",
                where=("window",),
            )
        axes = self.digits(mesh)
        positions = math.prod(digit.size for digit in axes)
        cut = self._cut(stop - start, positions, tuple(digit.size for digit in axes))
        table = self._table(positions, cut.parts)
        pads = self.numbers[0] if self.rule == "sized" and len(self.numbers) == 1 else None
        return BoundCut(start, merge_digits(axes), cut, self.reversed, table, pads)

    def digits(self, mesh: Mesh) -> tuple[Digit, ...]:
        """Return the digits of a mesh position along the axes, major to minor."""
        found = []
        for place, ref in enumerate(self.axes):
            with placed("axes", place):
                found.append(mesh.digit(mesh.canonical(ref)))
        return tuple(found)

    def _cut(self, extent: int, positions: int, levels: tuple[int, ...]) -> Cut:
        listed = len(self.numbers) - 1 if self.rule == "listed" else positions
        parts = listed if self.into is None else self.into
        if parts < positions and self.table is None:
            raise InputError(
                "there must be a shard for each position along the axes",
                got=f"{parts} shards for {positions} positions",
                expected=f"at least {positions} shards, or a table",
                where=("into",) if self.into is not None else ("rule",),
            )
        match self.rule:
            case "flat":
                return flat(extent, parts)
            case "balanced":
                return Balanced(extent, parts)
            case "nested":
                return Nested(extent, parts, levels or (1,))
            case "sized":
                size, offset = (*self.numbers, 0)[:2]
                return Sized(extent, parts, size, offset)
            case "listed":
                self._check(
                    "listed", "the last boundary must be the extent", self.numbers[-1], extent
                )
                self._check(
                    "into", "`into` must be the number of ranges between boundaries", parts, listed
                )
                return Listed(extent, parts, self.numbers)
            case "cover":
                block, covered, *sizes = self.numbers
                inner = Sized(covered, parts, *sizes) if sizes else flat(covered, parts)
                self._check(
                    "cover",
                    "the extent must equal the number of blocks",
                    extent,
                    -(-covered // block),
                )
                return Cover(extent, parts, block, inner)

    @staticmethod
    def _check(place: str, rule: str, got: int, expected: int) -> None:
        if got != expected:
            where = ("into",) if place == "into" else ("rule",)
            raise InputError(rule, got=got, expected=str(expected), where=where)

    def _table(self, positions: int, shards: int) -> tuple[int, ...] | None:
        if self.table is None:
            return None
        if len(self.table) != positions:
            raise InputError(
                "a table must have one entry for each position along the axes",
                got=f"{len(self.table)} entries",
                expected=str(positions),
                where=("table",),
            )
        for place, shard in enumerate(self.table):
            if shard is not None and not 0 <= shard < shards:
                raise InputError(
                    "each entry of a table must be the number of a shard",
                    got=f"{shard} at position {place}",
                    expected=f"0 to {shards - 1}, or - for none; into(N) makes N shards",
                    where=("table", place),
                )
        return tuple(-1 if shard is None else shard for shard in self.table)

    def __str__(self) -> str:
        words = [f"{{{', '.join(map(str, self.axes))}}}"]
        if self.window is not None:
            words.insert(0, "{}:{}".format(*self.window))
        if self.rule != "flat":
            words.append(_called(self.rule, self.numbers))
        if self.into is not None:
            words.append(_called("into", (self.into,)))
        if self.reversed:
            words.append("reversed")
        if self.table is not None:
            words.append(_called("table", tuple("-" if s is None else s for s in self.table)))
        return " ".join(words)


_NUMBERS = {
    "flat": "no numbers",
    "sized": "sized(S) or sized(S, a), with S at least 1 and a at least 0",
    "balanced": "balanced, without numbers",
    "nested": "nested, without numbers",
    "listed": "listed(0, …, K), with ascending numbers",
    "cover": "cover(B, K) or cover(B, K, S): blocks of B, of K elements in shards of S",
}


def _called(name: str, arguments: tuple[object, ...]) -> str:
    return f"{name}({', '.join(map(str, arguments))})" if arguments else name


@dataclass(frozen=True)
class BoundCut:
    """A cut of one dimension on a mesh. Its methods are closed forms of a mesh position."""

    start: int  # the first stored element of the dimension
    digits: tuple[Digit, ...]  # the digits along the axes, major to minor, which number the shards
    cut: Cut
    reversed: bool = False
    table: tuple[int, ...] | None = None  # the shard at each position along the axes; -1: none
    pads: int | None = None  # the number of elements that every device stores, padding included

    def shard(self, position: Value) -> Value:
        """Return the index of the shard at a mesh position, or -1 if there is none."""
        place = read_digits(self.digits, position)
        if self.table is not None:
            return pick(self.table, place)
        return self.cut.parts - 1 - place if self.reversed else place

    def interval(self, position: Value) -> Pair:
        """Return the half-open range of elements that the device at a mesh position stores."""
        shard = self.shard(position)
        if self.table is None or min(self.table) >= 0:
            low, high = self.cut.interval(shard)
        else:
            low, high = self.cut.interval(maximum(shard, 0))
            high = low + (high - low) * minimum(shard + 1, 1)
        return low + self.start, high + self.start
