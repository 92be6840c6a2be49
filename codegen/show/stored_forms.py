"""The closed forms of a relayout's cuts, as tables: shards, elements, owners, intersections."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from shardwright.codegen.show.notation import text
from shardwright.ir.algebra.identities import simplify
from shardwright.ir.algebra.index import Index, Value
from shardwright.ir.cuts import Balanced, Cover, Cut, Listed, Nested, Sized, WindowCut
from shardwright.ir.dim_cuts import BoundCut
from shardwright.ir.layout import read_digits
from shardwright.ir.parts import BoundPart
from shardwright.ir.relayout import Relayout
from shardwright.ir.stored import Stored
from shardwright.ir.tiles import period, tiles_per_period

MOST_SHOWN, MOST_WORDS, MOST_MEETINGS = 8, 120, 24
"""Maximum sizes of the tables: entries of a list in a form, characters of a form, and rows of
intersections."""

LETTERS = """\
p is the position of a device in its mesh, s a shard, i an element of the stored dimension of K
elements, counted from the part's first element."""
MEETINGS = """\
Target shard b with elements [lo, hi) meets the source shards from the owner of lo to that of
hi - 1. Two cuts with shards of S and T repeat every S * T / g elements, the least common multiple,
where g = gcd(S, T). That period has S / g + T / g boundaries. One of them belongs to both cuts if
the cuts' offsets agree modulo g; g then divides every width but the last."""
REASONS: dict[type[Cut], str] = {
    Sized: "Shards of one size S begin S elements apart, and the dimension begins a elements into "
    "shard 0: so shard s begins at s * S - a, and i is in shard (i + a) floordiv S.",
    Balanced: "A balanced cut of K = q * N + r has r shards of q + 1, then N - r of q. Below "
    "element r * (q + 1), i floordiv (q + 1) counts shards, and from there (i - r) floordiv q, as "
    "each of the first r has one element more; the other one is never larger.",
    Nested: "A nested cut is a flat cut whose shards are cut again.",
    Listed: "With listed boundaries, the shard of i is the number of inner boundaries that are "
    "at most i.",
    Cover: "A shard has the blocks of B that a cut's shard [lo, hi) touches: lo floordiv B to "
    "below hi ceildiv B. A block may be in several.",
    WindowCut: "A part of a dimension that is cut as a whole has the cut's shards, less its "
    "offset.",
}
"""Why the forms of each cut are correct; the tests of `ir/cuts.py` check them on every element."""


def derived(relayout: Relayout) -> list[str]:
    """Derive a relayout's boxes from its cuts, as lines of Markdown."""
    sides = relayout.source.in_bytes, relayout.target.in_bytes
    kinds = {type(cut.cut) for side in sides for *_, cut in _cuts(side)}
    if not kinds:
        return ["Every device has all of every part: no dimension is cut."]
    lines = [f"{LETTERS}\n"]
    for name, side in zip(("source", "target"), sides, strict=True):
        lines += _forms_of(name, side)
    lines += [REASONS[kind] for kind in REASONS if kind in kinds]
    return [*lines, "", *_meetings(*sides)]


def _cuts(side: Stored) -> Iterator[tuple[str, BoundPart, int, BoundCut]]:
    for name, buffer in side.bound.items():
        for part in buffer.parts:
            for dim, cut in enumerate(part.cuts):
                if cut.digits or cut.table or cut.start or not isinstance(cut.cut, Sized):
                    yield name, part, dim, cut


def _forms_of(name: str, side: Stored) -> list[str]:
    rows = [
        f"| {buffer} | {part.tensor}, dimension {dim} | {cut.cut.extent:,} | {_shard(cut, side)} "
        f"| {_interval(cut.cut)} | {_owner(cut.cut)} | {_tiled(cut.cut)} |"
        for buffer, part, dim, cut in _cuts(side)
    ]
    if not rows:
        return [f"In the {name} no dimension is cut.", ""]
    heads = f"| {name} | part | K | s of device p | elements of s | s of element i | checked |"
    return [heads, "|---|---|---:|---|---|---|---|", *dict.fromkeys(rows), ""]


def _shard(cut: BoundCut, side: Stored) -> str:
    """Return the index of a device's shard as a form in `p`, the device's mesh position."""
    place = read_digits(cut.digits, Index("p", side.mesh.size))
    if cut.table is not None:
        named = [str(shard) if shard >= 0 else "none" for shard in cut.table[:MOST_SHOWN]]
        more = ", ..." * (len(cut.table) > MOST_SHOWN)
        return f"[{', '.join(named)}{more}] at {_said(place)}"
    return _said(cut.cut.parts - 1 - place if cut.reversed else place)


@lru_cache(maxsize=1024)
def _interval(cut: Cut) -> str:
    if isinstance(cut, Listed):
        return f"between {_shown(cut.bounds)}"
    low, high = cut.interval(Index("s", cut.parts))
    found = f"[{_said(low)}, {_said(high)})"
    return found if len(found) <= MOST_WORDS else _by_rule(cut)


@lru_cache(maxsize=1024)
def _owner(cut: Cut) -> str:
    if isinstance(cut, Listed):
        return "inner boundaries <= i"
    found = _said(cut.owner(Index("i", cut.extent)))
    return found if len(found) <= MOST_WORDS else _by_rule(cut)


def _by_rule(cut: Cut) -> str:
    return f"by chunks of {_shown(cut.levels)}" if isinstance(cut, Nested) else "by the rule below"


def _shown(numbers: tuple[int, ...]) -> str:
    return ", ".join(map(str, numbers[:MOST_SHOWN])) + ", ..." * (len(numbers) > MOST_SHOWN)


def _tiled(cut: Cut) -> str:
    """Check a cut numerically, and return the result: its shards adjoin, and each owns its first
    and last element."""
    low, high = cut.intervals
    held = low < high
    numbers = np.flatnonzero(held)
    ends = [*low[held].tolist(), *(high[held] - 1).tolist()]
    owners = np.array([cut.owner(end) for end in ends]).reshape(2, -1)
    if isinstance(cut, Cover) or (isinstance(cut, WindowCut) and isinstance(cut.whole, Cover)):
        return "may overlap"
    apart = bool((low[held][1:] == high[held][:-1]).all())
    same = bool((owners == numbers).all())
    if not (apart and same):
        return "**wrong**"
    return f"non-empty shards: {len(numbers)} of {cut.parts}, end to end"


def _said(value: Value) -> str:
    return text(simplify(value))


def _meetings(source: Stored, target: Stored) -> list[str]:
    """List the source shards that intersect each target shard, and state the number of elements
    after which both cuts repeat."""
    rows: list[str] = []
    pairs = itertools.product(_cuts(target), _cuts(source))
    for (_, part, dim, cut), (_, other, at, before) in pairs:
        if part.tensor != other.tensor or part.axes[dim] != other.axes[at]:
            continue
        meet = _met(cut, before)
        if meet:
            rows.append(f"| {part.tensor}, dimension {dim} | {meet} | {_period(cut, before)} |")
    if not rows:
        return [
            "No dimension is cut on both sides: a target shard meets every source shard along it."
        ]
    rows = [*dict.fromkeys(rows)]
    more = [f"\nThese are {MOST_MEETINGS} of {len(rows)}."] * (len(rows) > MOST_MEETINGS)
    heads = "| target part | shards of the source that b meets | repeats |"
    return [f"{MEETINGS}\n", heads, "|---|---|---|", *rows[:MOST_MEETINGS], *more]


def _met(cut: BoundCut, before: BoundCut) -> str:
    shift = cut.start - before.start
    if shift >= before.cut.extent or -shift >= cut.cut.extent:
        return ""
    if isinstance(cut.cut, Listed) or isinstance(before.cut, Listed):
        return "from the owner of lo to that of hi - 1"
    low, high = cut.cut.interval(Index("b", cut.cut.parts))
    first, last = before.cut.owners(low + shift, high + shift)
    found = f"{_said(first)} to {_said(last)}"
    return found if len(found) <= MOST_WORDS else "from the owner of lo to that of hi - 1"


def _period(cut: BoundCut, before: BoundCut) -> str:
    found = []
    for each in (before, cut):
        if each.cut.step is None:
            return "do not"
        given = each.cut.extent, each.cut.parts, each.cut.step
        found.append(Sized(*given, each.cut.phase - each.start))
    every, tiles = period(*found), tiles_per_period(*found)
    common = math.gcd(found[0].size, found[1].size)
    agree = (found[0].offset - found[1].offset) % common == 0
    widths = f"whose widths are multiples of {common:,}" if agree else "whose offsets do not agree"
    return f"every {every:,}, {tiles:,} tile{'s' * (tiles != 1)} {widths}"
