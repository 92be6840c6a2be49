"""Meshes, and the algebra of axis references against enumeration."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import cut_axes, divisors, exactly, meshes, message, values_of

from shardwright.ir import AxisRef, Digit, InputError, Mesh
from shardwright.ir.axes import can_coexist, contains, merged, overlaps

SIZES = {"x": 12}


def refs_of(name: str, size: int) -> list[AxisRef]:
    """Every axis reference there is on an axis."""
    subs = [(m, k) for m in divisors(size) for k in divisors(size // m) if 1 < k < size]
    return [AxisRef(name), *(AxisRef(name, m, k) for m, k in subs)]


def splittings(size: int) -> list[tuple[int, ...]]:
    """Every way to write a size as a product of factors above 1, in order."""
    if size == 1:
        return [()]
    return [(d, *rest) for d in divisors(size) if d > 1 for rest in splittings(size // d)]


def parts_in(ref: AxisRef, size: int, splitting: tuple[int, ...]) -> set[int] | None:
    """Which factors of a splitting a reference is made of; None if it is not made of factors."""
    borders = [1, *itertools.accumulate(splitting, lambda a, b: a * b)]
    low, high = (1, size) if ref.pre is None or ref.size is None else (ref.pre, ref.pre * ref.size)
    if low not in borders or high not in borders:
        return None
    return set(range(borders.index(low), borders.index(high)))


@pytest.mark.parametrize("size", [2, 8, 12, 36])
def test_the_algebra_of_references_is_that_of_splittings(size: int) -> None:
    for a, b in itertools.product(refs_of("x", size), repeat=2):
        both = [(parts_in(a, size, s), parts_in(b, size, s)) for s in splittings(size)]
        shared = [(p, q) for p, q in both if p is not None and q is not None]
        assert can_coexist(a, b, {"x": size}) == bool(shared)
        for p, q in shared:
            assert overlaps(a, b, {"x": size}) == bool(p & q)
            assert contains(a, b, {"x": size}) == (q <= p)
        if not shared:
            assert not contains(a, b, {"x": size})


def test_references_to_different_axes_are_independent() -> None:
    x, y = AxisRef("x", 1, 2), AxisRef("y", 1, 2)
    sizes = {"x": 4, "y": 4}
    assert can_coexist(x, y, sizes)
    assert not overlaps(x, y, sizes)
    assert not contains(x, y, sizes)


@pytest.mark.parametrize(
    ("refs", "expected"),
    [
        ([AxisRef("x", 1, 2), AxisRef("x", 2, 6)], [AxisRef("x")]),
        ([AxisRef("x", 1, 2), AxisRef("x", 2, 2)], [AxisRef("x", 1, 4)]),
        ([AxisRef("x", 1, 2), AxisRef("x", 2, 2), AxisRef("x", 4, 3)], [AxisRef("x")]),
        ([AxisRef("x", 2, 2), AxisRef("x", 1, 2)], [AxisRef("x", 2, 2), AxisRef("x", 1, 2)]),
        ([AxisRef("x", 1, 2), AxisRef("x", 4, 3)], [AxisRef("x", 1, 2), AxisRef("x", 4, 3)]),
    ],
)
def test_merge(refs: list[AxisRef], expected: list[AxisRef]) -> None:
    assert merged(refs, SIZES) == tuple(expected)


def test_a_full_axis_between_sub_axes_keeps_them_apart() -> None:
    refs = (AxisRef("x", 1, 2), AxisRef("y"), AxisRef("x", 2, 6))
    assert merged(refs, {"x": 12, "y": 2}) == refs


@given(st.data())
def test_a_digit_is_the_middle_of_the_reshaped_axis(data: st.DataObject) -> None:
    mesh = data.draw(meshes())
    positions = np.arange(mesh.size)
    for ref in data.draw(cut_axes(mesh)):
        digit = mesh.digit(ref)
        assert digit.size == mesh.full_size(ref)
        read = positions // digit.stride % digit.size
        np.testing.assert_array_equal(read, values_of(mesh, ref))


@given(st.data())
def test_references_and_what_is_free_of_them_cover_the_mesh_once(data: st.DataObject) -> None:
    mesh = data.draw(meshes())
    cut = data.draw(cut_axes(mesh))
    refs = [ref for ref in cut if data.draw(st.booleans())]
    free = mesh.refs_free_of(refs)
    together = [values_of(mesh, ref) for ref in (*refs, *free)]
    assert len({tuple(column) for column in np.array(together).T}) in (mesh.size, 0)
    sizes = [mesh.full_size(mesh.canonical(ref)) for ref in (*refs, *free)]
    assert int(np.prod([*sizes, 1])) == mesh.size
    assert mesh.ordered(free) == free, "in mesh order and as big as possible"
    assert all(mesh.full_size(ref) > 1 for ref in free)


@given(st.data())
def test_refine_cuts_the_mesh_into_pieces_every_reference_is_made_of(data: st.DataObject) -> None:
    mesh = data.draw(meshes())
    refs = data.draw(cut_axes(mesh))
    pieces = mesh.refine(refs)
    position = np.zeros(mesh.size, dtype=int)
    for piece in pieces:
        position = position * mesh.full_size(piece) + values_of(mesh, piece)
    np.testing.assert_array_equal(position, np.arange(mesh.size))
    for ref in map(mesh.canonical, refs):
        inside = [p for p in pieces if contains(ref, p, mesh.sizes)]
        assert mesh.ordered(inside) == (ref,) or mesh.axis_size(ref.name) == 1


def test_what_is_left_of_an_axis() -> None:
    mesh = Mesh({"x": 8, "one": 1, "y": 2})
    assert mesh.refs_free_of(()) == (AxisRef("x"), AxisRef("y"))
    assert mesh.refs_free_of([AxisRef("x", 2, 2)]) == (
        AxisRef("x", 1, 2),
        AxisRef("x", 4, 2),
        AxisRef("y"),
    )
    assert mesh.refs_free_of([AxisRef("x"), AxisRef("y")]) == ()


def test_digits() -> None:
    mesh = Mesh({"x": 2, "y": 8, "z": 3})
    assert mesh.digit(AxisRef("x")) == Digit(24, 2)
    assert mesh.digit(AxisRef("y")) == Digit(3, 8)
    assert mesh.digit(AxisRef("y", 2, 2)) == Digit(6, 2)


def test_canonical_form_of_a_reference() -> None:
    mesh = Mesh({"x": 4})
    assert mesh.canonical(AxisRef("x", 1, 4)) == AxisRef("x")
    assert mesh.canonical(AxisRef("x", 1, 2)) == AxisRef("x", 1, 2)


def test_device_ids_that_count_up_are_a_range() -> None:
    assert Mesh({"x": 4}, [0, 1, 2, 3]).device_ids == range(4)
    assert Mesh({"x": 4}, np.array([5, 6, 7, 8])).device_ids == range(5, 9)
    assert Mesh({"x": 2}, [1, 0]).device_ids == (1, 0)
    assert Mesh({"x": 2}, range(2, 6, 2)).device_ids == (2, 4)
    assert all(type(i) is int for i in Mesh({"x": 2}, np.array([1, 0])).device_ids)


def test_equality_is_of_axes_and_devices_not_of_names() -> None:
    assert Mesh({"x": 2}, name="a") == Mesh([("x", 2)], [0, 1], name="b")
    assert hash(Mesh({"x": 2}, name="a")) == hash(Mesh({"x": 2}))
    assert Mesh({"x": 2}) != Mesh({"x": 2}, [1, 0])
    assert Mesh({"x": 2, "y": 3}) != Mesh({"y": 3, "x": 2})


def test_properties() -> None:
    mesh = Mesh({"x": 2, "y": 3})
    assert (mesh.size, mesh.names, mesh.axis_size("y")) == (6, ("x", "y"), 3)
    assert mesh.is_iota
    assert not Mesh({"x": 2}, [1, 0]).is_iota
    assert not Mesh({"x": 2}, [1, 2]).is_iota
    assert not mesh.is_maximal
    assert Mesh({}, [3]).is_maximal


@pytest.mark.parametrize(
    ("mesh", "text"),
    [
        (Mesh({"x": 2, "y": 3}), '<["x"=2, "y"=3]>'),
        (Mesh({"x": 2}, [1, 0]), '<["x"=2], device_ids=[1, 0]>'),
        (Mesh({"x": 2}, [4, 5]), '<["x"=2], device_ids=[4, 5]>'),
        (Mesh({"x": 2}, [0, 1]), '<["x"=2]>'),
        (Mesh({"a": 1}), '<["a"=1]>'),
        (Mesh({}, [3]), "<[], device_ids=[3]>"),
        (Mesh({}), "<[]>"),
        (Mesh({}, [0]), "<[], device_ids=[0]>"),
    ],
)
def test_canonical_text(mesh: Mesh, text: str) -> None:
    assert str(mesh) == text


def test_nothing_is_done_device_by_device() -> None:
    """2**60 devices: a loop over them would not end."""
    mesh = Mesh({"x": 2**30, "y": 2**30})
    sharding = mesh.sharding('[{"x"}, {"y":(4)8}]')
    assert mesh.size == 2**60
    assert sharding.parts(1) == 8
    assert mesh.refs_free_of(sharding.used()) == (AxisRef("y", 1, 4), AxisRef("y", 32, 2**25))
    assert str(Mesh.parse(str(mesh))) == '<["x"=1073741824, "y"=1073741824]>'
    assert hash(mesh) == hash(pickle.loads(pickle.dumps(mesh)))


BAD_MESHES = {
    "zero size": (
        lambda: Mesh({"x": 2, "y": 0}),
        """
        an axis size must be an integer of at least 1
        got: 0
        expected: 1, 2, 3, …
        """,
    ),
    "negative size": (
        lambda: Mesh({"x": -2}),
        """
        an axis size must be an integer of at least 1
        got: -2
        expected: 1, 2, 3, …
        """,
    ),
    "size that is no integer": (
        lambda: Mesh({"x": 2.5}),  # type: ignore[dict-item]
        """
        an axis size must be an integer of at least 1
        got: 2.5
        expected: 1, 2, 3, …
        """,
    ),
    "duplicate axis": (
        lambda: Mesh([("a", 2), ("b", 2), ("a", 4)]),
        """
        axis names must be distinct
        got: "a" twice
        expected: a different name
        """,
    ),
    "empty axis name": (
        lambda: Mesh({"": 2}),
        """
        the name of an axis must be printable text without quotes or backslashes
        got: ''
        expected: a name such as "x"
        """,
    ),
    "quote in axis name": (
        lambda: Mesh({'x"': 2}),
        """
        the name of an axis must be printable text without quotes or backslashes
        got: 'x"'
        expected: a name such as "x"
        """,
    ),
    "too few ids": (
        lambda: Mesh({"x": 2, "y": 2}, [0, 1, 2]),
        """
        there must be one device id for each position of the mesh
        got: 3 device ids
        expected: 4, the product of "x"=2, "y"=2
        """,
    ),
    "too many ids, as a range": (
        lambda: Mesh({"x": 2}, range(3)),
        """
        there must be one device id for each position of the mesh
        got: 3 device ids
        expected: 2, the product of "x"=2
        """,
    ),
    "two ids without axes": (
        lambda: Mesh({}, [1, 0]),
        """
        there must be one device id for each position of the mesh
        got: 2 device ids
        expected: 1, because a mesh without axes is one device
        """,
    ),
    "no ids": (
        lambda: Mesh({"x": 2}, []),
        """
        there must be one device id for each position of the mesh
        got: 0 device ids
        expected: 2, the product of "x"=2
        """,
    ),
    "duplicate ids": (
        lambda: Mesh({"x": 3}, [4, 1, 4]),
        """
        device ids must be distinct
        got: 4 twice
        expected: each id only once
        """,
    ),
    "negative id": (
        lambda: Mesh({"x": 2}, [3, -1]),
        """
        a device id must be zero or more
        got: -1
        expected: 0, 1, 2, …
        """,
    ),
    "negative id in a range": (
        lambda: Mesh({"x": 2}, range(-1, 1)),
        """
        a device id must be zero or more
        got: -1
        expected: 0, 1, 2, …
        """,
    ),
    "id that is no integer": (
        lambda: Mesh({"x": 2}, [0, True]),
        """
        a device id must be an integer
        got: True
        expected: 0, 1, 2, …
        """,
    ),
    "mesh name": (
        lambda: Mesh({"x": 2}, name="my mesh"),
        """
        the name of a mesh must be plain
        got: 'my mesh'
        expected: letters, digits, _, $, . or -
        """,
    ),
    "unknown axis": (
        lambda: Mesh({"x": 2, "y": 2}).axis_size("z"),
        """
        an axis must exist in the mesh
        got: "z"
        expected: one of "x", "y"
        """,
    ),
    "unknown axis of a maximal mesh": (
        lambda: Mesh({}).digit(AxisRef("z")),
        """
        an axis must exist in the mesh
        got: "z"
        expected: none: there is nothing to choose from
        """,
    ),
    "pre-size without size": (
        lambda: AxisRef("x", 2),
        """
        a sub-axis must have a pre-size and a size, and a full axis neither
        got: pre=2, size=None
        expected: AxisRef("x", 2, 4) for a sub-axis, or AxisRef("x") for the full axis
        """,
    ),
    "references that cannot coexist": (
        lambda: Mesh({"x": 12}).refine([AxisRef("x", 1, 2), AxisRef("x", 1, 3)]),
        """
        all sub-axes of an axis must fit one factorization of its size
        got: sub-axes with borders at 2 and 3 on "x"=12
        expected: each border a multiple of the previous border
        """,
    ),
}


@pytest.mark.parametrize("case", BAD_MESHES)
def test_invalid(case: str) -> None:
    call, expected = BAD_MESHES[case]
    assert message(call) == exactly(expected)


def test_an_error_survives_pickling() -> None:
    error = InputError("a rule", argument="mesh", got=3, text="x=3", span=(2, 3), where=("axes", 0))
    copy = pickle.loads(pickle.dumps(error))
    assert str(copy) == str(error)
    assert copy.where == error.where


@pytest.mark.parametrize(
    ("text", "span", "lines"),
    [
        ("one\n\ttwo three", (9, 14), ["  \ttwo three", "  \t    ^^^^^"]),
        ("abc", (3, 3), ["  abc", "     ^"]),
        ("abc", (9, 12), ["  abc", "     ^"]),
        ("abc\ndef", (2, 6), ["  abc", "    ^"]),
        ("abc\ndef", None, ["  abc"]),
    ],
)
def test_carets(text: str, span: tuple[int, int] | None, lines: list[str]) -> None:
    assert str(InputError("rule", text=text, span=span)).splitlines() == ["rule", *lines]


def test_long_lines_and_values_are_clipped() -> None:
    text = ", ".join(map(str, range(10_000)))
    at = text.index("5000")
    _, line, carets, got = str(InputError("r", text=text, span=(at, at + 4), got=text)).splitlines()
    assert len(line) <= 102
    assert line[carets.index("^") : carets.rindex("^") + 1] == "5000"
    assert len(got) == len("got: ") + 200
