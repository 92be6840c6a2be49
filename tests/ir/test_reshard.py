"""Reshards: shape, element type, ranks, splits, and what may stay unreduced."""

from __future__ import annotations

import numpy as np
import pytest
from strategies import exactly, message

from shardwright.ir import DTYPES, SPLITS, InputError, Mesh, Reshard, Sharding

MESH = Mesh({"x": 2, "y": 3})
ROWS, COLUMNS = MESH.sharding('[{"x"}, {"y"}]'), MESH.sharding('[{"y"}, {"x"}]')


def test_a_reshard() -> None:
    reshard = Reshard(shape=(6, 6), dtype="float32", source=ROWS, target=COLUMNS)
    assert (reshard.rank, reshard.itemsize, reshard.nbytes) == (2, 4, 144)
    assert (reshard.source_split, reshard.target_split) == ("flat", "flat")
    assert reshard == Reshard((6, 6), "float32", ROWS, COLUMNS, *SPLITS[:1] * 2)
    assert hash(reshard) == hash(Reshard((6, 6), "float32", ROWS, COLUMNS))


def test_the_shape_becomes_plain_integers() -> None:
    reshard = Reshard(np.array([6, 6]), "int8", ROWS, COLUMNS)  # type: ignore[arg-type]
    assert reshard.shape == (6, 6)
    assert all(type(extent) is int for extent in reshard.shape)


@pytest.mark.parametrize("dtype", DTYPES)
def test_sizes_of_element_types(dtype: str) -> None:
    jnp = pytest.importorskip("jax.numpy")
    assert jnp.dtype(dtype).itemsize == DTYPES[dtype]


def test_bytes_are_counted_in_64_bits() -> None:
    largest = Reshard((2**30, 2**30, 1), "int8", *[MESH.sharding('[{"x"}, {"y"}, {}]')] * 2)
    assert largest.nbytes * 6 < 2**63
    with pytest.raises(InputError) as caught:
        Reshard((2**31, 2**30), "int8", ROWS, COLUMNS)
    assert str(caught.value) == exactly(
        """
        shape: one copy of the tensor per target device must take fewer than 2**63 bytes in all
        got: 2305843009213693952 bytes on 6 devices
        expected: a tensor of at most 1537228672809129301 bytes
        """
    )


@pytest.mark.parametrize("rank", range(9))
def test_ranks(rank: int) -> None:
    sharding = MESH.sharding(f"[{', '.join(['{}'] * rank)}]")
    reshard = Reshard((2,) * rank, "bool", sharding, sharding)
    assert (reshard.rank, reshard.nbytes) == (rank, 2**rank)


def test_a_maximal_sharding_is_of_any_rank() -> None:
    one = Mesh({}, [3]).sharding("[]")
    reshard = Reshard((6, 6), "float32", ROWS, one)
    assert str(reshard.target) == "[{}, {}]"


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ('[{"x"}], unreduced={"y"}', '[{"x"}]'),
        ('[{"x"}], unreduced={"y"}', '[{"x"}], unreduced={"y"}'),
        ('[{}], unreduced={"x", "y"}', '[{"x"}], unreduced={"y"}'),
        ('[{}], unreduced={"y"}', '[{}], unreduced={"y":(1)2}'),
        ('[{}], unreduced={"y":(1)4}', '[{"y":(1)2}], unreduced={"y":(2)2}'),
    ],
)
def test_a_target_may_keep_a_part_unreduced(source: str, target: str) -> None:
    mesh = Mesh({"x": 2, "y": 8})
    reshard = Reshard((4,), "float32", mesh.sharding(source), mesh.sharding(target))
    assert str(reshard.target) == target


def test_unreduced_axes_are_kept_between_meshes_that_both_have_them() -> None:
    source = Mesh({"x": 2, "y": 2}).sharding('[{}], unreduced={"y"}')
    target = Mesh({"y": 2, "z": 4}, range(8, 16)).sharding('[{"z"}], unreduced={"y"}')
    assert Reshard((4,), "float32", source, target).target == target


@pytest.mark.parametrize(
    ("before", "after", "kept", "reduced", "new"),
    [
        # Axis by axis and sub-axis by sub-axis, on axes of one size by name.
        ((8, "x"), (8, "x"), ['"x"'], [], []),
        ((8, '"x":(1)4'), (8, "x"), ['"x":(1)4'], [], ['"x":(4)2']),
        ((8, "x"), (8, '"x":(2)2'), ['"x":(2)2'], ['"x":(1)2', '"x":(4)2'], []),
        ((8, '"x":(1)4'), (8, '"x":(2)4'), ['"x":(2)2'], ['"x":(1)2'], ['"x":(4)2']),
        ((8, "x"), (4, "x"), [], ['"x"'], ['"x"']),
        ((8, '"x":(1)2'), (8, '"x":(2)2'), [], ['"x":(1)2'], ['"x":(2)2']),
        ((1, "x"), (1, "x"), ['"x"'], [], []),
        ((1, ""), (1, "x"), [], [], ['"x"']),
    ],
)
def test_what_becomes_of_unreduced_axes(
    before: tuple[int, str], after: tuple[int, str], kept: list[str], reduced: list[str],
    new: list[str],
) -> None:  # fmt: skip
    def side(size: int, axis: str) -> Sharding:
        named = f'"{axis}"' if axis == "x" else axis
        return Mesh({"x": size}).sharding(f"[{{}}], unreduced={{{named}}}")

    fate = Reshard((8,), "int8", side(*before), side(*after)).fate
    assert [list(map(str, refs)) for refs in (fate.kept, fate.reduced, fate.new)] == [
        kept, reduced, new,
    ]  # fmt: skip


def make(**changed: object) -> Reshard:
    given = {"shape": (6, 6), "dtype": "float32", "source": ROWS, "target": COLUMNS}
    return Reshard(**(given | changed))  # type: ignore[arg-type]


NINE = MESH.sharding(f"[{', '.join(['{}'] * 9)}]")

INVALID = {
    "dtype": (
        {"dtype": "float31"},
        """
        dtype: unknown element type; did you mean float32?
        got: float31
        expected: one of bool, int8, int16, int32, int64, uint8, uint16, uint32, float16, \
bfloat16, float32, float64, float8_e4m3fn, float8_e5m2
        """,
    ),
    "source rank": (
        {"source": MESH.sharding('[{"x"}], replicated={"y"}')},
        """
        source: there must be one dimension sharding for each dimension of the tensor
          [{"x"}], replicated={"y"}
          ^^^^^^^
        got: 1 dimension sharding for a tensor of rank 2
        expected: 2 dimension shardings
        """,
    ),
    "target rank": (
        {"shape": (6,), "source": MESH.sharding('[{"x"}]')},
        """
        target: there must be one dimension sharding for each dimension of the tensor
          [{"y"}, {"x"}]
          ^^^^^^^^^^^^^^
        got: 2 dimension shardings for a tensor of rank 1
        expected: 1 dimension sharding
        """,
    ),
    "zero extent": (
        {"shape": (6, 0)},
        """
        shape: an extent must be an integer of at least 1
        got: 0 for dimension 1
        expected: 1, 2, 3, …
        """,
    ),
    "negative extent": (
        {"shape": (-6, 6)},
        """
        shape: an extent must be an integer of at least 1
        got: -6 for dimension 0
        expected: 1, 2, 3, …
        """,
    ),
    "extent that is no integer": (
        {"shape": (6, 6.0)},
        """
        shape: an extent must be an integer of at least 1
        got: 6.0 for dimension 1
        expected: 1, 2, 3, …
        """,
    ),
    "shape that is a number": (
        {"shape": 6},
        """
        shape: a shape must be a sequence of integers
        got: 6
        expected: extents, for example (6, 6)
        """,
    ),
    "rank 9": (
        {"shape": (1,) * 9, "source": NINE, "target": NINE},
        """
        shape: a tensor may have at most 8 dimensions
        got: 9 dimensions
        expected: 8 or fewer
        """,
    ),
    "source split": (
        {"source_split": "even"},
        """
        source_split: unknown split
        got: even
        expected: one of flat, nested
        """,
    ),
    "target split": (
        {"target_split": ""},
        """
        target_split: unknown split
        got: ''
        expected: one of flat, nested
        """,
    ),
}


@pytest.mark.parametrize("case", INVALID)
def test_invalid(case: str) -> None:
    changed, expected = INVALID[case]
    assert message(lambda: make(**changed)) == exactly(expected)


def test_a_side_on_the_empty_mesh_is_replicated_on_the_devices_of_the_other() -> None:
    empty, mesh = Mesh.parse("<[]>"), Mesh({"x": 2, "y": 2}, (3, 1, 0, 2))
    split = mesh.sharding('[{"x"}, {}]')
    whole = mesh.sharding("[{}, {}]")
    for nowhere in (empty.sharding("[]"), empty.sharding("[{}, {?}]")):
        assert Reshard((4, 4), "int8", split, nowhere).target.mesh == mesh
        assert Reshard((4, 4), "int8", nowhere, split).source.used() == whole.used() == ()
    assert message(lambda: Reshard((4,), "int8", *[empty.sharding("[{}]")] * 2)) == exactly(
        """
        source: one side must have a mesh with devices; the empty mesh has none
        got: <[]> on both sides
        expected: a mesh of devices on either side, for example <[], device_ids=[0]>
        """
    )
