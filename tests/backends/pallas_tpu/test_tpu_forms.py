"""The forms of the TPU kernel: figures against brute force, memory layouts, proofs at emission."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import pytest
from cases import all_pairs, describe, random_reshard

from shardwright.codegen.backends.pallas_tpu.direct import Direct
from shardwright.codegen.backends.pallas_tpu.figures import least_traffic, width
from shardwright.codegen.backends.pallas_tpu.memory import default_view, padded_elements, tile_rows
from shardwright.codegen.backends.pallas_tpu.pieces import Sums
from shardwright.codegen.backends.pallas_tpu.proofs import check
from shardwright.codegen.backends.pallas_tpu.slots import Slots
from shardwright.codegen.backends.pallas_tpu.strategy import FormChoice, candidates, cheapest
from shardwright.codegen.backends.pallas_tpu.windows import Windows
from shardwright.codegen.moves import plan
from shardwright.codegen.text.context import as_vectors
from shardwright.ir import Mesh, Reshard
from shardwright.ir.dtypes import DTYPES
from shardwright.ir.errors import InternalError
from shardwright.ir.exchange import Exchange

MESH = Mesh({"x": 2, "y": 4})


def transpose(shape: tuple[int, ...], dtype: str = "float32") -> Reshard:
    """A matrix from rows by columns to columns by rows."""
    return Reshard(shape, dtype, MESH.sharding('[{"x"}, {"y"}]'), MESH.sharding('[{"y"}, {"x"}]'))


def exchange_of(reshard: Reshard) -> Exchange:
    return as_vectors(plan(reshard).exchange)


def chosen(reshard: Reshard) -> FormChoice:
    return cheapest(tuple(candidates(exchange_of(reshard), DTYPES[reshard.dtype])))


REPLICATED = Reshard((37, 53), "int8", MESH.sharding('[{"x"}, {}]'), MESH.sharding('[{}, {"y"}]'))
SAMPLE = (
    *(random_reshard(seed) for seed in range(40)),
    *all_pairs({"x": 2, "y": 3}, (7, 11))[::5],
    REPLICATED,
)


@pytest.mark.parametrize("reshard", SAMPLE, ids=describe)
def test_sums_are_those_over_the_transfers(reshard: Reshard) -> None:
    """Volumes and rounded volumes, remote and local, without enumerating and with it."""
    moved = plan(reshard).transfers()
    sums = Sums(exchange_of(reshard))
    widths = moved.tensor[:, :, 1] - moved.tensor[:, :, 0]
    remote = moved.sender != moved.receiver
    for unit in (1, 3, 8):
        volume = (-(-widths // unit) * unit).prod(axis=1, dtype=np.int64)

        def rounded(pieces: object, _: int, unit: int = unit) -> np.ndarray:
            return -(-pieces.width // unit) * unit  # type: ignore[attr-defined, no-any-return]

        if unit == 1 or reshard.shape:
            assert sums.remote(rounded) == volume[remote].sum()
        if plan(reshard).exchange.rule.pieces == 1 and reshard.shape:
            assert sums.local(rounded) == volume[~remote].sum()
    assert sums.local(width) == widths[~remote].prod(axis=1, dtype=np.int64).sum()


@pytest.mark.parametrize("reshard", SAMPLE, ids=describe)
def test_every_form_of_every_reshard_is_proved(reshard: Reshard) -> None:
    exchange, itemsize = exchange_of(reshard), DTYPES[reshard.dtype]
    least = least_traffic(Sums(exchange), itemsize)
    for choice in candidates(exchange, itemsize):
        check(choice.form, exchange)
        assert choice.figures.wire_bytes >= choice.figures.exact_bytes
        assert choice.figures.hbm_bytes >= least
        assert choice.figures.vmem_bytes <= 16 * 2**20


@pytest.mark.parametrize("reshard", SAMPLE[::7], ids=describe)
def test_the_least_traffic_writes_shards_whole(reshard: Reshard) -> None:
    """Every transfer read, and every array of a target shard written, whose padding is zero."""
    made = plan(reshard)
    widths = np.diff(made.transfers().tensor, axis=2)
    target = made.exchange.target
    elements = (
        int(widths.prod(axis=(1, 2)).sum()) + math.prod(target.local_shape) * target.mesh.size
    )
    assert least_traffic(Sums(exchange_of(reshard)), 2) == 2 * elements


def test_shards_that_are_mostly_padding_are_written_too() -> None:
    """One row over four devices: three of four arrays are padding."""
    source, target = MESH.sharding('[{}, {"y"}, {}]'), MESH.sharding('[{"y"}, {}, {"x"}]')
    choice = chosen(Reshard((1, 371, 17047), "int16", source, target))
    assert isinstance(choice.form, Windows)
    assert choice.figures.hbm_factor <= 2


def test_aligned_tiles_go_straight() -> None:
    """Nothing is padded, nothing is read or written twice."""
    choice = chosen(transpose((1024, 2048), "bfloat16"))
    assert isinstance(choice.form, Direct)
    assert choice.form.view == (0, 1)
    assert choice.figures.wire_padding == 1
    assert choice.figures.hbm_factor == 1


def test_unaligned_tiles_go_through_windows() -> None:
    """Within the targets: HBM at most 3 times the least, 5 % of padding on the wire."""
    choice = chosen(transpose((10007, 10009)))
    assert isinstance(choice.form, Windows)
    assert choice.figures.wire_padding <= 1.05
    assert choice.figures.hbm_factor <= 3
    shard = 4 * math.prod(exchange_of(transpose((10007, 10009))).target.local_shape)
    assert shard < choice.figures.staging_bytes <= 1.05 * shard


def test_thin_tiles_go_in_slots() -> None:
    """40x40 on 256 devices: 4 % of padding, where windows would have 3.2 times the bytes."""
    mesh = Mesh({"x": 256})
    reshard = Reshard(
        (10007, 10009), "float32", mesh.sharding('[{"x"}, {}]'), mesh.sharding('[{}, {"x"}]')
    )
    choice = chosen(reshard)
    assert isinstance(choice.form, Slots)
    assert choice.figures.wire_padding <= 1.05
    every = candidates(exchange_of(reshard), 4)
    windows = min(c.figures.wire_padding for c in every if isinstance(c.form, Windows))
    assert windows > 3


def test_thin_last_dimensions_are_not_padded_to_lanes() -> None:
    """XLA keeps such a shard with its long dimension along the lanes, and so does the kernel."""
    reshard = Reshard(
        (40000, 512, 3),
        "float32",
        MESH.sharding('[{"x"}, {}, {}]'),
        MESH.sharding('[{"y"}, {}, {}]'),
    )
    choice = chosen(reshard)
    assert choice.form.view == default_view((20000, 512, 3), 4)
    assert choice.figures.wire_padding < 1.01


Edit = Callable[[Windows], Windows]


def _with(axis: int, **changes: object) -> Edit:
    def edit(form: Windows) -> Windows:
        dims = list(form.dims)
        dims[axis] = dataclasses.replace(dims[axis], **changes)  # type: ignore[arg-type]
        return dataclasses.replace(form, dims=tuple(dims))

    return edit


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (_with(0, step=0), "windows form, dimension 0: two tiles overlap"),
        (_with(0, stage=8), "windows form, dimension 0, staging area: a window reaches beyond 8"),
        (_with(1, unit=256), "windows form, dimension 1: not all multiples of 256"),
        (
            _with(1, window=128),
            "windows form, dimension 1, sender, window: a window reaches beyond 128",
        ),
        (_with(1, blocks=1), "windows form, dimension 1: too few blocks"),
        (_with(1, chunk=128), "windows form, dimension 1: too few chunks"),
        (_with(0, meet=1), "windows form, dimension 0: a block needs more source shards"),
        (
            _with(1, rolled=False),
            "windows form, dimension 1, sender: a tile that must be shifted is",
        ),
    ],
)
def test_wrong_windows_fail_emission(edit: Edit, message: str) -> None:
    mesh = Mesh({"x": 2, "y": 3})
    reshard = Reshard(
        (1001, 2003), "float32", mesh.sharding('[{"x"}, {"y"}]'), mesh.sharding('[{"y"}, {"x"}]')
    )
    exchange = exchange_of(reshard)
    form = chosen(reshard).form
    assert isinstance(form, Windows)
    check(form, exchange)
    with pytest.raises(InternalError) as caught:
        check(edit(form), exchange)
    assert str(caught.value).startswith(message)


def test_pieces_that_start_within_a_block_are_shifted() -> None:
    """Aligned tiles of one source shard, cut among holders at multiples of 8 but not of a block."""
    source, target = MESH.sharding('[{"x"}, {}]'), MESH.sharding('[{"y":(2)2}, {}]')
    exchange = exchange_of(Reshard((223, 767), "int8", source, target))
    assert exchange.rule.pieces > 1
    form = next(c.form for c in candidates(exchange, 1) if isinstance(c.form, Windows))
    assert form.rolled == (0,)
    with pytest.raises(InternalError, match="own: a tile that must be shifted is not"):
        check(_with(0, rolled=False)(form), exchange)


def test_large_windows_fit_the_smallest_memory() -> None:
    """Vectors, rows of few elements and few rows, of every width of element."""
    for shape in ((32_650_947,), (33, 94, 12, 13), (256, 8, 1831), (5, 2_000_000), (2_000_000, 5)):
        sides = (
            MESH.sharding("[" + ", ".join(["{}"] * (len(shape) - 1) + ['{"x", "y"}']) + "]"),
            MESH.sharding("[" + ", ".join(["{}"] * (len(shape) - 1) + ['{"y", "x"}']) + "]"),
        )
        for dtype in ("int8", "bfloat16", "float32", "int64"):
            exchange = exchange_of(Reshard(shape, dtype, *sides))
            for choice in candidates(exchange, DTYPES[dtype]):
                check(choice.form, exchange)
                assert choice.figures.vmem_bytes <= 16 * 2**20


def test_a_false_divisor_fails_emission() -> None:
    exchange = exchange_of(transpose((1024, 2048)))
    form = chosen(transpose((1024, 2048))).form
    assert isinstance(form, Direct)
    with pytest.raises(InternalError, match="dimension 0: not all multiples of 384"):
        check(dataclasses.replace(form, divisors=(384, 512)), exchange)


def test_tilings() -> None:
    """What the TPU compiler reports of arrays of so many rows."""
    rows = (1, 2, 3, 4, 5, 8, 9, 31, 32, 33, 64)
    assert [tile_rows(r, 4) for r in rows] == [1, 2, 4, 4, 8, 8, 8, 8, 8, 8, 8]
    assert [tile_rows(r, 2) for r in rows] == [2, 2, 4, 4, 8, 8, 8, 8, 8, 8, 8]
    assert [tile_rows(r, 1) for r in rows] == [4, 4, 4, 4, 8, 8, 8, 8, 32, 8, 32]
    assert padded_elements((3, 5, 130), (1, 0, 2), 4) == 5 * 4 * 256
    assert padded_elements((1025,), (0,), 1) == 2048
