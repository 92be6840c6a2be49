"""Rows of neighbouring shards that windows cover, against their definition."""

from __future__ import annotations

import random

import pytest

from shardwright.codegen.ops.forms.halos import RowWindow

OUTSIDE = -1  # a row that no device sends: zeros


@pytest.mark.parametrize("seed", range(80))
def test_parts_of_shards(seed: int) -> None:
    """The parts, joined, have each shard's rows from its offset on; the first and the last row of
    each part that moves is needed by a shard that it is sent to."""
    rng = random.Random(seed)
    extent, parts = rng.randint(1, 6), rng.randint(2, 6)
    step = rng.choice((extent, rng.randint(1, extent), extent + rng.randint(0, 2)))
    window = RowWindow(rng.randint(-4, 4), step, rng.randint(1, 9), extent, parts)
    whole = range(extent * parts)
    further, first = window.offset
    for shard in range(parts):
        joined = []
        for part in window.halo:
            source = shard + part.hops
            is_there = part.hops == 0 or (source, shard) in part.pairs
            rows = range(source * extent + part.low, source * extent + part.high)
            joined += rows if is_there else [OUTSIDE] * len(rows)
        start = shard * further + first
        taken = joined[start : start + window.length]
        assert taken == [row if row in whole else OUTSIDE for row in window.rows(shard)]
    for part in window.halo:
        for edge in (part.low, part.high - 1) if part.hops and part.pairs else ():
            assert any(source * extent + edge in window.rows(to) for source, to in part.pairs)


def test_rows_beyond_the_last_shard_are_not_sent() -> None:
    """Of eight shards of 63 rows, windows of 72 rows at every 64th row reach 8 rows before and
    after a shard, but the first and the last of these rows only where no shard is."""
    window = RowWindow(first=-8, step=64, length=72, extent=63, parts=8)
    sent = {part.hops: part.high - part.low for part in window.halo if part.pairs}
    assert sent == {-1: 7, 0: 63, 1: 7}
