"""How a GPU moves tiles: groups, units, forms and blocks, against what tiles are."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from cases import describe, random_reshard
from gpu_cases import CASES, FORMS, make, moves

from shardwright.codegen.backends.triton_gpu.phases import in_place
from shardwright.codegen.backends.triton_gpu.rows import (
    BLOCK_BYTES,
    BLOCK_UNITS,
    IDLE,
    LINE,
    ROW_BYTES,
    THREADS,
    Moves,
    block_shape,
)
from shardwright.codegen.moves import plan
from shardwright.ir import Mesh, Reshard

SWEEP = [*CASES.values(), *map(random_reshard, range(150))]


def runs(box: np.ndarray, extents: list[int], itemsize: int) -> set[tuple[int, int]]:
    """The maximal runs of bytes, half-open, that a box takes of a contiguous shard."""
    flat = np.arange(math.prod(extents)).reshape(extents)
    inside = np.sort(flat[tuple(slice(low, high) for low, high in box)].ravel())
    breaks = np.flatnonzero(np.diff(inside) != 1) + 1
    return {(int(r[0]) * itemsize, (int(r[-1]) + 1) * itemsize) for r in np.split(inside, breaks)}


def local_runs(reshard: Reshard, made: Moves) -> list[tuple[list[int], set[tuple[int, int]]]]:
    """For each transfer and side the extents of the shard and the runs that the tile takes."""
    transfers, found = plan(reshard).transfers(), []
    layouts = made.exchange.source, made.exchange.target
    sides = (transfers.sender, transfers.source), (transfers.receiver, transfers.target)
    for layout, (devices, boxes) in zip(layouts, sides, strict=True):
        ends = dict(zip(layout.mesh.device_ids, layout.boxes().tolist(), strict=True))
        for device, box in zip(devices.tolist(), boxes, strict=True):
            extents = [high - low for low, high in ends[device]]
            found.append((extents, runs(box, extents, made.itemsize)))
    return found


def test_units_divide_every_run() -> None:
    """And `lines` says that all runs begin and end at multiples of 16 bytes."""
    seen = set()
    for reshard in SWEEP:
        made = moves(reshard)
        step = LINE if made.form == "lines" else made.unit
        assert step % made.itemsize == 0
        for _, found in local_runs(reshard, made):
            ends = [end for run in found for end in run]
            assert not any(end % step for end in ends), describe(reshard)
        seen.add((made.form, made.unit))
    assert {unit for _, unit in seen} == {1, 2, 4, 8}


def test_a_row_of_a_group_is_a_run() -> None:
    """Merged dimensions leave no gap: a tile has at most as many runs as it has rows."""
    for reshard in SWEEP:
        made = moves(reshard)
        transfers = plan(reshard).transfers()
        widths = transfers.tensor[:, :, 1] - transfers.tensor[:, :, 0]
        rows = [axis for group in made.groups[:-1] for axis in group]
        expected = np.prod(widths[:, rows], axis=1).tolist() * 2
        found = [len(found) for _, found in local_runs(reshard, made)]
        assert all(a <= b for a, b in zip(found, expected, strict=True)), describe(reshard)


def test_tiles_that_are_one_run_are_exchanged_in_place() -> None:
    """At an end, where all are: against the runs of each. None where a device exchanges nothing."""
    seen = set()
    for reshard in SWEEP:
        made = moves(reshard)
        ends = in_place(made.exchange)
        transfers = plan(reshard).transfers()
        pairs = np.stack([transfers.sender, transfers.receiver])[:, ~transfers.is_local]
        found = [len(found) == 1 for _, found in local_runs(reshard, made)]
        halves = found[: len(transfers)], found[len(transfers) :]
        whole = tuple(end for end, of in zip(("source", "target"), halves, strict=True) if all(of))
        is_busy = np.isin(made.exchange.ranks, pairs).all()
        assert ends == (whole if is_busy else ()), describe(reshard)
        seen.add((ends, bool(is_busy)))
    assert len(seen) == 5


@pytest.mark.parametrize("name", CASES)
def test_forms(name: str) -> None:
    made = moves(CASES[name])
    assert made.form == FORMS[name]
    assert (made.lanes > 1) == (made.form != "units")
    share = made.line_share
    assert {"lines": share == 1, "mixed": 0 < share < 1, "units": share == 0}[made.form]


@pytest.mark.parametrize(
    ("name", "groups"),
    [
        ("flat", ((0, 1),)),
        ("columns", ((0,), (1,))),
        ("heads", ((0,), (1, 2))),
        ("outer", ((0, 1), (2,), (3,))),
        ("planes", ((0,), (1,), (2,))),
    ],
)
def test_groups(name: str, groups: tuple[tuple[int, ...], ...]) -> None:
    """In "outer" both sides cut the second dimension alike, so that every tile has all of it."""
    assert moves(CASES[name]).groups == groups


def test_a_whole_shard_is_one_row() -> None:
    mesh = Mesh({"x": 2, "y": 2}, [3, 2, 1, 0])
    moved = make({"x": 2, "y": 2}, (6, 5, 8), '[{"x"}, {}, {"y"}]', '[{"x"}, {}, {"y"}]', mesh)
    assert moves(moved).groups == ((0, 1, 2),)
    assert moves(moved).blocks(1) == (1,)


def test_a_dimension_cut_into_pieces_does_not_merge() -> None:
    shared = make({"x": 4, "y": 2}, (3, 64), '[{"x"}, {}]', '[{"y"}, {}]')
    rule = plan(shared).exchange.rule
    assert rule.pieces > 1
    assert all(rule.cut == group[0] for group in moves(shared).groups if rule.cut in group)


@pytest.mark.parametrize(
    ("rows", "units", "unit", "lanes", "block"),
    [
        (1, 65536, 8, 2, (1, 1024)),  # a flat move: whole blocks of 8 KiB
        (1024, 512, 8, 2, (2, 512)),
        (6283, 192, 8, 2, (16, 64)),  # 192 is three times 64: 256 would leave a quarter idle
        (40, 1000, 8, 2, (1, 1024)),  # 24 of 1024 idle are few
        (4, 4, 8, 2, (128, 4)),  # every thread of 256 has two units to move at once
        (1, 3, 8, 2, (1, 512)),
        (1024, 250, 4, 1, (8, 256)),
        (9, 3, 1, 1, (16, 4)),
        (1, 5000, 1, 1, (1, 1024)),  # 2048 would leave 1144 idle
        (3, 1, 2, 1, (4, 1)),
    ],
)
def test_block_shapes(rows: int, units: int, unit: int, lanes: int, block: tuple[int, int]) -> None:
    assert block_shape(rows, units, unit, lanes) == block


def test_the_rule_of_block_shapes() -> None:
    extents = (1, 2, 3, 5, 31, 64, 192, 257, 1000, 4097, 10**6)
    for rows, units, unit in itertools.product(extents, extents, (1, 2, 4, 8)):
        for lanes in (1, LINE // unit):
            height, width = block_shape(rows, units, unit, lanes)
            area = height * width
            assert math.log2(height) % 1 == math.log2(width) % 1 == 0
            assert area <= BLOCK_UNITS * max(1, lanes // 4 * 2)
            assert area * unit <= max(BLOCK_BYTES, THREADS * LINE)
            assert lanes == 1 or area >= THREADS * lanes
            assert rows > 1 or height == 1
            if -units % width * IDLE > units and width * unit > ROW_BYTES:
                assert width < 2 * units or lanes > 1


def test_blocks_cover_the_largest_tile() -> None:
    for reshard in SWEEP:
        made = moves(reshard)
        for elements in (1, made.unit_elements):
            *outer, row = made.blocks(elements)
            height, width = made.block
            assert row * width * elements >= made.widest[-1]
            if outer:
                assert outer[-1] * height >= made.widest[-2]
                assert tuple(outer[:-1]) == made.widest[:-2]
