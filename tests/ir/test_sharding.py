"""Shardings: invariants, normal form, local shapes, and equal placement on two meshes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import exactly, fields, held_by, meshes, message, shardings, values_of

from shardwright.ir import AxisRef, Digit, DimSharding, Mesh, Sharding
from shardwright.ir.placement import places_equally

SEED_MESH = Mesh({"x": 2, "y": 4, "z": 2})
X, Y, Z = AxisRef("x"), AxisRef("y"), AxisRef("z")


def dims(*axes: tuple[AxisRef, ...]) -> tuple[DimSharding, ...]:
    return tuple(map(DimSharding, axes))


def test_parts_digits_and_used_axes() -> None:
    sharding = Sharding(SEED_MESH, dims((X,), (Z, Y), ()), unreduced=())
    assert [sharding.parts(i) for i in range(3)] == [2, 8, 1]
    assert sharding.digits(1) == (Digit(1, 2), Digit(2, 4))
    assert sharding.used() == (X, Z, Y)
    assert sharding.rank == 3


@pytest.mark.parametrize(
    ("mesh", "text", "shape", "local"),
    [  # the first four are the seed's
        ('<["x"=2, "y"=4, "z"=2]>', '[{"x"}, {"z", "y"}]', (4, 8), (2, 1)),
        ('<["x"=2, "y"=4, "z"=2]>', '[{"x"}, {?}], replicated={"y"}', (4, 8), (2, 8)),
        ('<["x"=2, "y"=8, "z"=2]>', '[{"x"}, {"y":(2)2}]', (4, 8), (2, 4)),
        ('<["x"=8, "y"=2, "z"=3]>', '[{"x"}, {"y"}, {"z"}]', (7, 3, 8), (1, 2, 3)),
        ('<["x"=2]>', "[]", (), ()),
        ("<[], device_ids=[3]>", "[]", (4, 8), (4, 8)),
    ],
)
def test_local_shape(mesh: str, text: str, shape: tuple[int, ...], local: tuple[int, ...]) -> None:
    assert Mesh.parse(mesh).sharding(text).local_shape(shape) == local


@pytest.mark.parametrize(
    ("mesh", "given_text", "canonical"),
    [
        ("x=4", '[{"x":(1)2, "x":(2)2}]', '[{"x"}]'),
        ("x=4", '[{"x":(1)4}]', '[{"x"}]'),
        ("x=8", '[{"x":(1)2, "x":(2)2}]', '[{"x":(1)4}]'),
        ("x=8", '[{"x":(2)2, "x":(1)2}]', '[{"x":(2)2, "x":(1)2}]'),
        ("x=8", '[{"x":(1)2}, {"x":(2)2}]', '[{"x":(1)2}, {"x":(2)2}]'),
        ("x=4,y=2", '[{"x":(1)2, "y", "x":(2)2}]', '[{"x":(1)2, "y", "x":(2)2}]'),
        ("c=2,a=2,b=2", '[], replicated={"a", "c"}', '[], replicated={"c", "a"}'),
        (
            "x=2,y=8",
            '[], replicated={"y":(4)2, "x", "y":(1)2}',
            '[], replicated={"x", "y":(1)2, "y":(4)2}',
        ),
        ("y=8", '[], replicated={"y":(4)2, "y":(1)4}', '[], replicated={"y"}'),
        ("y=8", '[], unreduced={"y":(2)2, "y":(1)2}', '[], unreduced={"y":(1)4}'),
        ("x=2,y=2", '[], unreduced={"y", "x"}', '[], unreduced={"x", "y"}'),
        ("x=1,y=2", '[{"x", "y"}]', '[{"x", "y"}]'),
        ("x=2", '[{"x"}p0], replicated={}', '[{"x"}p0]'),
    ],
)
def test_normal_form(mesh: str, given_text: str, canonical: str) -> None:
    assert str(Mesh.parse(mesh).sharding(given_text)) == canonical


@given(st.data())
def test_the_normal_form_says_the_same(data: st.DataObject) -> None:
    mesh = data.draw(meshes())
    raw_dims, replicated, unreduced = data.draw(fields(mesh))
    sharding = Sharding(mesh, raw_dims, replicated, unreduced)
    before = [dim.axes for dim in raw_dims]
    after = [dim.axes for dim in sharding.dims]
    for refs, normal in zip([*before], [*after], strict=True):
        np.testing.assert_array_equal(index_of(mesh, refs), index_of(mesh, normal))
        assert not any(mergeable(a, b) for a, b in itertools.pairwise(normal))
    for refs, normal in ((replicated, sharding.replicated), (unreduced, sharding.unreduced)):
        in_order = tuple(sorted(normal, key=lambda r: (mesh.names.index(r.name), r.pre or 1)))
        assert in_order == normal
        assert mesh.refs_free_of(refs) == mesh.refs_free_of(normal)
    assert [(d.open, d.priority) for d in raw_dims] == [(d.open, d.priority) for d in sharding.dims]
    again = Sharding(mesh, sharding.dims, sharding.replicated, sharding.unreduced)
    assert again == sharding
    assert hash(again) == hash(sharding)


def index_of(mesh: Mesh, refs: tuple[AxisRef, ...]) -> np.ndarray:
    index = np.zeros(mesh.size, dtype=int)
    for ref in refs:
        index = index * mesh.full_size(ref) + values_of(mesh, ref)
    return index


def mergeable(a: AxisRef, b: AxisRef) -> bool:
    return a.name == b.name and a.pre is not None and a.pre * (a.size or 1) == b.pre


@given(st.data())
def test_parts_are_the_shard_indices(data: st.DataObject) -> None:
    sharding = data.draw(shardings())
    positions = np.arange(sharding.mesh.size)
    for i, dim in enumerate(sharding.dims):
        read = np.zeros_like(positions)
        for digit in sharding.digits(i):
            read = read * digit.size + positions // digit.stride % digit.size
        np.testing.assert_array_equal(read, index_of(sharding.mesh, dim.axes))
        assert set(read.tolist()) == set(range(sharding.parts(i)))


def on(mesh: str, text: str) -> Sharding:
    return Mesh.parse(mesh).sharding(text)


@pytest.mark.parametrize(
    ("a", "b", "shape", "equal"),
    [
        # the seed: mesh_xy is a splitting of mesh_full
        (
            on('<"x"=4, "y"=2>', '[{"x"},{ "y"}]'),
            on('<"devices"=8>', '[{"devices":(1)4}, {"devices":(4)2}]'),
            (4, 4),
            True,
        ),
        # the seed: <@mesh_0, "b"> is <@mesh_1, "z">
        (on("a=4,b=2", '[{"b"}]'), on("x=2,y=2,z=2", '[{"z"}]'), None, True),
        (on("a=4,b=2", '[{"b"}]'), on("x=2,y=2,z=2", '[{"y"}]'), None, False),
        (on("a=4,b=2", '[{"a"}]'), on("x=2,y=2,z=2", '[{"x", "y"}]'), None, True),
        (on("a=4,b=2", '[{"a"}]'), on("x=2,y=2,z=2", '[{"y", "x"}]'), None, False),
        # openness, priority and explicit replication say nothing of the data
        (on("a=2,b=2", '[{"a", ?}p1]'), on("a=2,b=2", '[{"a"}], replicated={"b"}'), None, True),
        # permuted ids: the other axis order undoes the permutation
        (
            on('<["x"=2, "y"=3], device_ids=[0, 3, 1, 4, 2, 5]>', '[{"x", "y"}]'),
            on('<["y"=3, "x"=2], device_ids=[0, 4, 3, 2, 1, 5]>', '[{"x", "y"}]'),
            None,
            True,
        ),
        (on('<["x"=2], device_ids=[1, 0]>', '[{"x"}]'), on("x=2", '[{"x"}]'), None, False),
        (on('<["x"=2], device_ids=[1, 0]>', "[{}]"), on("x=2", "[{}]"), None, True),
        # other devices
        (on('<["x"=2], device_ids=[2, 3]>', '[{"x"}]'), on("x=2", '[{"x"}]'), None, False),
        (on("x=4", "[{}]"), on("x=2", "[{}]"), None, False),
        (on("<[], device_ids=[0]>", "[]"), on("x=1", '[{"x"}, {}]'), (3, 3), True),
        # equal for one shape, not for every shape
        (on("x=4", '[{"x":(1)2}]'), on("x=4", '[{"x":(1)2, "x":(2)2}]'), (1,), False),
        (on("x=4", '[{"x"}, {}]'), on("x=4", '[{}, {"x"}]'), (4, 4), False),
        (on("x=3", '[{"x"}]'), on("x=3", '[{"x"}]'), (1,), True),
        # terms of a sum: the same groups, whatever their order
        (on("x=2,y=2", '[{"x"}], unreduced={"y"}'), on("x=2,y=2", '[{"x"}]'), None, False),
        (
            on("x=2,y=2", '[{"x"}], unreduced={"y"}'),
            on('<["x"=2, "y"=2], device_ids=[1, 0, 2, 3]>', '[{"x"}], unreduced={"y"}'),
            None,
            True,
        ),
        (on("x=2,y=2", '[], unreduced={"y"}'), on("x=2,y=2", '[], unreduced={"x"}'), None, False),
        (on("x=2,y=2", "[]"), on("a=4", "[]"), None, True),
    ],
)
def test_equal_placement(
    a: Sharding, b: Sharding, shape: tuple[int, ...] | None, equal: bool
) -> None:
    assert places_equally(a, b, shape) is equal
    assert places_equally(b, a, shape) is equal


def test_shards_beyond_the_end_are_alike() -> None:
    """One element over 4 parts: device 0 holds it, the empty shards are all the same."""
    in_order, swapped = on("x=4", '[{"x"}]'), on('<["x"=4], device_ids=[0, 2, 1, 3]>', '[{"x"}]')
    assert places_equally(in_order, swapped, (1,))
    assert not places_equally(in_order, swapped, (4,))
    assert not places_equally(in_order, swapped)


@given(st.data())
def test_equal_placement_is_what_the_definition_gives(data: st.DataObject) -> None:
    mesh = data.draw(meshes(most_devices=12))
    other = data.draw(st.sampled_from([mesh, Mesh({"d": mesh.size}, mesh.device_ids)]))
    rank = data.draw(st.integers(0, 3))
    shape = tuple(data.draw(st.integers(1, 9)) for _ in range(rank))
    a, b = (
        Sharding(s.mesh, s.dims, s.replicated)
        for s in (data.draw(shardings(mesh, rank)), data.draw(shardings(other, rank)))
    )
    assert places_equally(a, b, shape) == (held_by(a, shape) == held_by(b, shape))
    if places_equally(a, b):
        assert places_equally(a, b, shape)


def test_a_sharding_on_a_split_mesh_places_equally() -> None:
    """Every sub-axis of a full mesh is an axis of a mesh that is its splitting."""
    full, split = Mesh({"d": 12}), Mesh({"a": 2, "b": 3, "c": 2})
    pieces = {"a": AxisRef("d", 1, 2), "b": AxisRef("d", 2, 3), "c": AxisRef("d", 6, 2)}
    for names in itertools.permutations("abc"):
        one = Sharding(split, dims(tuple(map(AxisRef, names[:2])), (AxisRef(names[2]),)))
        two = Sharding(full, dims((pieces[names[0]], pieces[names[1]]), (pieces[names[2]],)))
        assert places_equally(one, two)


def test_for_rank() -> None:
    maximal = Mesh({}, [3]).sharding("[]")
    assert str(maximal.for_rank(2)) == "[{}, {}]"
    sharding = SEED_MESH.sharding('[{"x"}]')
    assert sharding.for_rank(1) is sharding


@pytest.mark.parametrize(
    ("mesh", "text", "expected"),
    [
        (Mesh({"x": 2}, name="m"), '[{"x", ?}p1]', '#sdy.sharding<@m, [{"x", ?}p1]>'),
        (Mesh({"x": 2}), '[{"x"}]', '#sdy.sharding<mesh<["x"=2]>, [{"x"}]>'),
        (
            Mesh({"x": 2}, [1, 0]),
            '[{}], unreduced={"x"}',
            '#sdy.sharding<mesh<["x"=2], device_ids=[1, 0]>, [{}], unreduced={"x"}>',
        ),
        (Mesh({}, [3]), "[{}, {}]", "#sdy.sharding<mesh<[], device_ids=[3]>, []>"),
    ],
)
def test_to_sdy(mesh: Mesh, text: str, expected: str) -> None:
    assert mesh.sharding(text).to_sdy() == expected


A8 = Mesh({"a": 8, "b": 12})


def a(*refs: AxisRef, **more: tuple[AxisRef, ...]) -> Sharding:
    return Sharding(A8, tuple(DimSharding((ref,)) for ref in refs), **more)


INVALID = {
    "unknown axis": (
        lambda: a(AxisRef("c")),
        """
        an axis must exist in the mesh
        got: "c"
        expected: one of "a", "b"
        """,
    ),
    "unknown axis in replicated": (
        lambda: a(replicated=(AxisRef("c", 1, 2),)),
        """
        an axis must exist in the mesh
        got: "c"
        expected: one of "a", "b"
        """,
    ),
    "axis used twice in two dimensions": (
        lambda: a(AxisRef("a"), AxisRef("a")),
        """
        an axis or sub-axis may be used only once
        got: "a" in dimension 0 and in dimension 1
        expected: "a" in one place only
        """,
    ),
    "axis used twice in one dimension": (
        lambda: Sharding(A8, dims((AxisRef("a"), AxisRef("a")))),
        """
        an axis or sub-axis may be used only once
        got: "a" twice in dimension 0
        expected: "a" in one place only
        """,
    ),
    "sub-axis used and replicated": (
        lambda: a(AxisRef("a", 2, 2), replicated=(AxisRef("a", 2, 2),)),
        """
        an axis or sub-axis may be used only once
        got: "a":(2)2 in dimension 0 and in replicated={…}
        expected: "a":(2)2 in one place only
        """,
    ),
    "axis replicated and unreduced": (
        lambda: a(replicated=(AxisRef("a"),), unreduced=(AxisRef("a"),)),
        """
        an axis or sub-axis may be used only once
        got: "a" in replicated={…} and in unreduced={…}
        expected: "a" in one place only
        """,
    ),
    "axis and its sub-axis": (
        lambda: a(AxisRef("a"), unreduced=(AxisRef("a", 2, 2),)),
        """
        references to one axis must not overlap
        got: "a" in dimension 0 and "a":(2)2 in unreduced={…}
        expected: sub-axes that do not overlap
        """,
    ),
    "overlapping sub-axes": (
        lambda: a(AxisRef("a", 1, 4), AxisRef("a", 2, 4)),
        """
        references to one axis must not overlap
        got: "a":(1)4 in dimension 0 and "a":(2)4 in dimension 1
        expected: sub-axes that do not overlap
        """,
    ),
    "sub-axes that cannot coexist": (
        lambda: a(AxisRef("b", 3, 2), AxisRef("b", 1, 2)),
        """
        all sub-axes of an axis must fit one factorization of its size
        got: "b":(3)2 in dimension 0 and "b":(1)2 in dimension 1
        expected: a pre-size of the later sub-axis that is a multiple of 2, not 3
        """,
    ),
    "pre-size that does not divide": (
        lambda: a(AxisRef("a", 3, 2)),
        """
        the pre-size of a sub-axis must divide its axis
        got: pre-size 3 in "a":(3)2
        expected: a divisor of 8, the size of "a"
        """,
    ),
    "size that does not divide": (
        lambda: a(AxisRef("a", 2, 3)),
        """
        the size of a sub-axis must divide its axis
        got: size 3 in "a":(2)3
        expected: a divisor of 8, the size of "a"
        """,
    ),
    "product that does not divide": (
        lambda: a(AxisRef("a", 4, 4)),
        """
        the pre-size times the size of a sub-axis must divide its axis
        got: 4*4 = 16 in "a":(4)4
        expected: a divisor of 8, the size of "a"
        """,
    ),
    "sub-axis of an axis of size 1": (
        lambda: Sharding(Mesh({"a": 1}), dims((AxisRef("a", 1, 2),))),
        """
        the size of a sub-axis must divide its axis
        got: size 2 in "a":(1)2
        expected: a divisor of 1, the size of "a"
        """,
    ),
    "size 1": (
        lambda: AxisRef("a", 2, 1),
        """
        the size of a sub-axis must be greater than 1
        got: size 1 in "a":(2)1
        expected: 2, 3, 4, …
        """,
    ),
    "pre-size 0": (
        lambda: AxisRef("a", 0, 2),
        """
        the pre-size of a sub-axis must be at least 1
        got: pre-size 0 in "a":(0)2
        expected: 1, 2, 3, …
        """,
    ),
    "negative pre-size": (
        lambda: AxisRef("a", -1, 2),
        """
        the pre-size of a sub-axis must be at least 1
        got: pre-size -1 in "a":(-1)2
        expected: 1, 2, 3, …
        """,
    ),
    "priority on an empty closed dimension": (
        lambda: DimSharding((), False, 3),
        """
        an empty closed dimension cannot have a priority: it would have no effect
        got: {}p3
        expected: {} or {?}p3
        """,
    ),
    "negative priority": (
        lambda: DimSharding((AxisRef("a"),), False, -1),
        """
        a priority must be an integer of zero or more
        got: -1
        expected: p0, p1, p2, …
        """,
    ),
    "priority that is no integer": (
        lambda: DimSharding((AxisRef("a"),), False, 1.5),  # type: ignore[arg-type]
        """
        a priority must be an integer of zero or more
        got: 1.5
        expected: p0, p1, p2, …
        """,
    ),
    "rank": (
        lambda: a(AxisRef("a"), replicated=(AxisRef("b"),)).local_shape((4, 8)),
        """
        there must be one dimension sharding for each dimension of the tensor
          [{"a"}], replicated={"b"}
          ^^^^^^^
        got: 1 dimension sharding for a tensor of rank 2
        expected: 2 dimension shardings
        """,
    ),
    "rank of two shardings": (
        lambda: places_equally(a(AxisRef("a")), a()),
        """
        two shardings of one tensor must have the same rank
        got: 1 and 0 dimensions
        """,
    ),
}


@pytest.mark.parametrize("case", INVALID)
def test_invalid(case: str) -> None:
    call, expected = INVALID[case]
    assert message(call) == exactly(expected)
