"""The closed forms of cuts that review pages of relayouts have, beside every element."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from random_relayouts import drawn

import shardwright as sw
from shardwright.codegen.show import stored_forms
from shardwright.codegen.show.stored_forms import derived
from shardwright.ir.algebra.index import Value
from shardwright.ir.cuts import Cover, Let, Listed, Sized, WindowCut, unnamed


class Ceil:
    """`a | Ceil() | b` is a divided by b, rounded up."""

    def __init__(self, left: int = 0) -> None:
        self.left = left

    def __ror__(self, left: int) -> Ceil:
        return Ceil(left)

    def __or__(self, right: int) -> int:
        return -(-self.left // right)


def value(form: str, **names: object) -> Any:
    """The value of a form in the notation of pages, in which divisions are in parentheses."""
    form = form.replace("floordiv", "//").replace("ceildiv", "| Ceil() |")
    return eval(form, {"__builtins__": {}}, {"min": min, "max": max, "Ceil": Ceil, **names})


@pytest.mark.parametrize(
    "number", [0, 1, *(pytest.param(n, marks=pytest.mark.slow) for n in range(2, 60))]
)
def test_forms(number: int) -> None:
    """Give every device its elements, and every element its shard."""
    for relayout in drawn(number, 3):
        assert "wrong" not in "\n".join(derived(relayout))
        for side in (relayout.source, relayout.target):
            for _, _, _, cut in stored_forms._cuts(side):
                low, high = (end.tolist() for end in cut.cut.intervals)
                interval, owner = stored_forms._interval(cut.cut), stored_forms._owner(cut.cut)
                if interval.startswith("["):
                    for s in range(cut.cut.parts):
                        found = value(f"({interval[1:]}", s=s)
                        assert found == (low[s], high[s]) or low[s] >= high[s], interval
                covers = isinstance(cut.cut, Cover | Listed | WindowCut)
                if not covers and "by " not in owner:
                    for s in range(cut.cut.parts):
                        for i in range(low[s], high[s]):
                            assert value(owner, i=i) == s
                shard = stored_forms._shard(cut, side)
                for p in range(side.mesh.size):
                    if "none" in shard or "..." in shard:
                        continue
                    listed, _, place = shard.partition(" at ")
                    s = value(place or shard, p=p)
                    if place:
                        s = value(listed)[s]
                    assert cut.shard(p) == s


@pytest.mark.parametrize(
    "number", [0, 1, *(pytest.param(n, marks=pytest.mark.slow) for n in range(2, 60))]
)
def test_meetings(number: int) -> None:
    """A target shard meets no source shard beyond those that the form gives."""
    for relayout in drawn(number, 3):
        for _, part, dim, cut in stored_forms._cuts(relayout.target):
            for _, other, at, before in stored_forms._cuts(relayout.source):
                if part.tensor != other.tensor or part.axes[dim] != other.axes[at]:
                    continue
                meet = stored_forms._met(cut, before)
                if not meet or "owner" in meet:
                    continue
                first, _, last = meet.partition(" to ")
                ends = [end.tolist() for end in (*cut.cut.intervals, *before.cut.intervals)]
                for b in range(cut.cut.parts):
                    low, high = value(first, b=b), value(last, b=b)
                    for a in range(before.cut.parts):
                        begin = max(ends[0][b] + cut.start, ends[2][a] + before.start)
                        end = min(ends[1][b] + cut.start, ends[3][a] + before.start)
                        assert begin >= end or low <= a <= high, meet


def test_a_page() -> None:
    """Padded rows, to rows of two tensors in turn."""
    source = sw.Stored("tp=2", {"x": (12, 4)}, "x[{tp} sized(8)]", "int8")
    target = sw.Stored("tp=3", {"x": (12, 4)}, "x[{tp} reversed]", "int8")
    lines = derived(sw.Relayout(source, target))
    rows = [line for line in lines if line.startswith("| x")]
    assert rows == [
        "| x | x, dimension 0 | 12 | p | [s * 8, min(s * 8 + 8, 12)) | i floordiv 8 "
        "| non-empty shards: 2 of 2, end to end |",
        "| x | x, dimension 0 | 12 | 2 - p | [s * 4, s * 4 + 4) | i floordiv 4 "
        "| non-empty shards: 3 of 3, end to end |",
        "| x, dimension 0 | b floordiv 2 to b floordiv 2 | every 8, 2 tiles whose widths "
        "are multiples of 4 |",
    ]
    whole = sw.Stored("tp=2", {"x": (12, 4)}, "x", "int8")
    assert derived(sw.Relayout(whole, whole)) == [
        "Every device has all of every part: no dimension is cut."
    ]


@dataclass(frozen=True)
class LateSized(Sized):
    """A fault: the last element of each shard is said to be the next one's."""

    def owner(self, element: Value, let: Let = unnamed) -> Value:
        return super().owner(element + 1)


def test_a_fault_is_found() -> None:
    assert stored_forms._tiled(LateSized(12, 3, 4)) == "**wrong**"
