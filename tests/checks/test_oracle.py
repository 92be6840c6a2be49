"""The oracle: hand-worked shardings, other definitions, values that tell elements apart."""

from __future__ import annotations

import ast
import math
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from shardwright.codegen.checks.oracle import definition as oracle
from shardwright.codegen.checks.oracle.definition import Placement
from shardwright.codegen.checks.oracle.products import _rounded

X, Y = ("x", None, None), ("y", None, None)
ON_2X3 = (("x", 2), ("y", 3))
FLOATS = ("float8_e4m3fn", "float8_e5m2", "float16", "bfloat16", "float32", "float64")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32")
DTYPES = ("bool", *INTEGERS, *FLOATS)


def counted(*shape: int) -> oracle.Bits:
    """A tensor whose elements are their own numbers."""
    return np.arange(math.prod(shape), dtype=np.uint32).reshape(shape)


def test_a_matrix_on_a_2x3_mesh() -> None:
    placement = Placement(ON_2X3, range(6), ((X,), (Y,)))
    shards = oracle.shards(placement, counted(6, 6))
    np.testing.assert_array_equal(shards[0], [[0, 1], [6, 7], [12, 13]])
    np.testing.assert_array_equal(shards[2], [[4, 5], [10, 11], [16, 17]])
    np.testing.assert_array_equal(shards[5], [[22, 23], [28, 29], [34, 35]])


def test_major_to_minor_order_of_axes() -> None:
    row_major = oracle.shards(Placement(ON_2X3, range(6), ((X, Y),)), counted(6))
    column_major = oracle.shards(Placement(ON_2X3, range(6), ((Y, X),)), counted(6))
    assert {device: int(shard[0]) for device, shard in row_major.items()} == dict(
        enumerate(range(6))
    )
    # Device 1 is (0, 1): y is now major, so it holds shard 1*2 + 0.
    assert [int(column_major[device][0]) for device in range(6)] == [0, 2, 4, 1, 3, 5]


def test_device_ids_name_positions() -> None:
    placement = Placement((("x", 3),), (100, 5, 7), ((X,),))
    shards = oracle.shards(placement, counted(3))
    assert {device: shard.tolist() for device, shard in shards.items()} == {
        100: [0],
        5: [1],
        7: [2],
    }


def test_replicas_hold_the_same() -> None:
    shards = oracle.shards(Placement(ON_2X3, range(6), ((Y,), ())), counted(3, 2))
    for device in range(3):
        np.testing.assert_array_equal(shards[device], [[2 * device, 2 * device + 1]])
        np.testing.assert_array_equal(shards[device + 3], shards[device])


def test_sub_axes_are_the_middle_of_a_reshape() -> None:
    # x of size 8 as [2, 2, 2]: "x":(2)2 is the middle bit of the coordinate.
    placement = Placement((("x", 8),), range(8), ((("x", 2, 2),),))
    shards = oracle.shards(placement, counted(2))
    assert [int(shards[device][0]) for device in range(8)] == [0, 0, 1, 1, 0, 0, 1, 1]
    assert placement.parts() == (2,)


def test_two_sub_axes_of_one_axis_across_dimensions() -> None:
    placement = Placement((("x", 4),), range(4), ((("x", 2, 2),), (("x", 1, 2),)))
    shards = oracle.shards(placement, counted(2, 2))
    assert [int(shards[device][0, 0]) for device in range(4)] == [0, 2, 1, 3]


def test_flat_and_nested_splits_of_5x3_on_2x2() -> None:
    """Flat cuts once into four; nested chunks in two and each chunk in two, as torch does."""
    mesh = (("x", 2), ("y", 2))
    rows = {}
    for split in ("flat", "nested"):
        shards = oracle.shards(Placement(mesh, range(4), ((X, Y), ()), split), counted(5, 3))
        rows[split] = [shard.shape for shard in shards.values()]
    assert rows["flat"] == [(2, 3), (2, 3), (1, 3), (0, 3)]
    assert rows["nested"] == [(2, 3), (1, 3), (1, 3), (1, 3)]


def test_flat_and_nested_differ_on_31_of_64_sizes() -> None:
    differ = [
        extent
        for extent in range(1, 65)
        if oracle.shard_indices(extent, (2, 2), "flat")
        != oracle.shard_indices(extent, (2, 2), "nested")
    ]
    assert len(differ) == 31


@pytest.mark.parametrize("pieces", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("extent", [1, 2, 5, 7, 16])
def test_chunk_is_torch_chunk(extent: int, pieces: int) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    theirs = [chunk.tolist() for chunk in torch.arange(extent).chunk(pieces)]
    ours = [list(chunk) for chunk in oracle.chunk(range(extent), pieces)]
    assert ours == theirs + [[]] * (pieces - len(theirs))  # torch leaves empty chunks out


def test_an_unknown_split_is_refused() -> None:
    with pytest.raises(ValueError, match="split: got: 'even', expected: 'flat' or 'nested'"):
        oracle.shard_indices(4, (2,), "even")


def test_scalars() -> None:
    shards = oracle.shards(Placement((), (3,), ()), counted())
    assert shards[3].shape == ()
    assert int(shards[3]) == 0


def test_padding_follows_every_shard() -> None:
    placement = Placement((("x", 4),), range(4), ((X,),))
    padded = oracle.padded(placement, counted(6), fill=99)
    np.testing.assert_array_equal(padded, [0, 1, 2, 3, 4, 5, 99, 99])
    np.testing.assert_array_equal(oracle.unpadded(placement, (6,), padded), counted(6))
    assert oracle.largest(placement, (6,)) == (2,)
    local = oracle.padded_shard(oracle.shards(placement, counted(6) + 7)[3], (2,))
    np.testing.assert_array_equal(local, [0, 0])


def test_padding_of_a_nested_split_lies_between_shards() -> None:
    placement = Placement((("x", 2), ("y", 2)), range(4), ((X, Y),), "nested")
    padded = oracle.padded(placement, counted(5), fill=9)
    np.testing.assert_array_equal(padded, [0, 1, 2, 9, 3, 9, 4, 9])
    np.testing.assert_array_equal(oracle.unpadded(placement, (5,), padded), counted(5))


@pytest.mark.parametrize("dtype", DTYPES)
def test_no_two_elements_agree_in_all_planes(dtype: str) -> None:
    planes = list(oracle.planes((7, 50), dtype))
    assert all(plane.dtype == oracle.storage(dtype) for plane in planes)
    elements = np.stack([plane.reshape(-1) for plane in planes], axis=1)
    assert len(np.unique(elements, axis=0)) == 350


@pytest.mark.parametrize(("dtype", "count"), [("bool", 9), ("int8", 2), ("float32", 1)])
def test_as_many_planes_as_needed(dtype: str, count: int) -> None:
    assert len(list(oracle.planes((350,), dtype))) == count


@pytest.mark.parametrize("dtype", DTYPES)
def test_one_element_has_a_plane(dtype: str) -> None:
    assert len(list(oracle.planes((), dtype))) == 1


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS])
def test_values_look_like_neither_poison_nor_padding(dtype: str) -> None:
    every = np.arange(min(oracle.capacity(dtype), 1 << 16), dtype=np.uint64)
    last = np.array([oracle.capacity(dtype) - 1], dtype=np.uint64)
    bits = oracle.patterns(dtype, np.concatenate([every, last]))
    ones = np.iinfo(bits.dtype).max
    assert not np.isin(bits, [0, ones, ones >> 1]).any()


@pytest.mark.parametrize("dtype", FLOATS)
def test_floats_are_finite_and_normal(dtype: str) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes (of jax) is not installed")
    native = {"float16", "float32", "float64"}
    number_type = np.dtype(dtype if dtype in native else getattr(ml_dtypes, dtype))
    limits = ml_dtypes.finfo(number_type)
    count = oracle.capacity(dtype)
    numbers = np.concatenate([np.arange(min(count, 1000)), [count - 2, count - 1]])
    values = oracle.patterns(dtype, numbers.astype(np.uint64)).view(number_type)
    assert (np.abs(values.astype(np.float64)) >= float(limits.smallest_normal)).all()
    assert (np.abs(values.astype(np.float64)) <= float(limits.max)).all()


def test_fills_differ() -> None:
    for dtype in DTYPES:
        low, high = oracle.fills(dtype)
        assert low != high


def test_it_imports_numpy_and_nothing_of_ours() -> None:
    tree = ast.parse(Path(oracle.__file__).read_text())
    imported = {
        alias.name if isinstance(node, ast.Import) else str(node.module)
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    standard = {"__future__", "itertools", "math", "collections.abc", "dataclasses"}
    assert imported <= {*standard, "numpy", "numpy.typing"}


def test_random_numbers_are_ones_that_the_dtype_has() -> None:
    """Above 4 a multiple of twice the epsilon may lie between two of them."""
    far = np.array([4.03, -4.05, 5.9609375, 3.99, 0.1])
    found = _rounded(far, "bfloat16")
    assert np.abs(found).max() <= 4
    assert np.array_equal(found, found.astype(jnp.bfloat16).astype(np.float64))
