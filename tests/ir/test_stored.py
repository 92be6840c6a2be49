"""Stored layouts: closed forms against the oracle, texts that parse back, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from layouts import buffers, dim_cuts, meshes, numbers_of
from strategies import exactly, message

import shardwright as sw
from shardwright.codegen.checks.oracle.layouts import numbered
from shardwright.ir import Mesh
from shardwright.ir.algebra.index import Index, evaluate
from shardwright.ir.parts import BoundCut
from shardwright.ir.stored import Stored
from shardwright.ir.text.layout_text import parse_layout


def check_buffers(stored: Stored, name: str) -> None:
    """What a device has by the closed forms is what it has by the definition."""
    found = stored.shards(numbered(stored.tensors), fill=-1)
    for device, expected in numbers_of(stored, name).items():
        if expected.size == 0:
            assert found[device][name].size == 0
            continue
        assert stored.shape(name, device) == expected.shape
        np.testing.assert_array_equal(found[device][name], expected)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Mesh, dict[str, tuple[int, ...]], object]:
    mesh = draw(meshes())
    return (mesh, *draw(buffers(mesh)))


Case = tuple[Mesh, dict[str, tuple[int, ...]], object]


@settings(max_examples=25, deadline=None)
@given(cases())
def test_random_layouts(case: Case) -> None:
    check_layout(case)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(cases())
def test_more_random_layouts(case: Case) -> None:
    check_layout(case)


def check_layout(case: Case) -> None:
    """Every element is where the definition has it; an element that is nowhere is refused."""
    mesh, shapes, layout = case
    whole = {name: parse_layout(name) for name in shapes}
    stored = Stored(mesh, shapes, {"it": layout, **whole}, "int8")
    check_buffers(stored, "it")
    assert parse_layout(str(layout)) == layout
    assert Stored.parse(str(stored)) == stored
    numbers = numbers_of(stored, "it").values()
    held = {int(number) for each in numbers for number in each.reshape(-1)} - {-1}
    if len(held) == sum(map(np.prod, shapes.values())):
        Stored(mesh, shapes, {"it": layout}, "int8")
    else:
        with pytest.raises(
            sw.InputError, match="every element of a tensor must be on at least one device"
        ):
            Stored(mesh, shapes, {"it": layout}, "int8")


@st.composite
def bound(draw: st.DrawFn) -> tuple[BoundCut, int]:
    mesh = draw(meshes())
    extent = draw(st.integers(3, 14))
    cut = draw(dim_cuts(extent, draw(st.permutations(mesh.names)), mesh))
    return cut.bind(extent, mesh), mesh.size


@settings(max_examples=15, deadline=None)
@given(bound())
def test_intervals_of_positions_are_closed_forms(case: tuple[BoundCut, int]) -> None:
    """Over integers, arrays and expressions alike."""
    cut, size = case
    each = [cut.interval(position) for position in range(size)]
    positions, position = np.arange(size), Index("p", size)
    for end, array, expression in zip(
        zip(*each, strict=True), cut.interval(positions), cut.interval(position), strict=True
    ):
        assert (array + 0 * positions).tolist() == list(end)
        assert (evaluate(expression, {position: positions}) + 0 * positions).tolist() == list(end)


def test_the_oracle_sees_a_planted_fault() -> None:
    """A stack whose parts are taken in another order, and an owner off by one."""
    stored = Stored("tp=2", {"q": (4, 2), "k": (4, 2)}, "stack(0, q[{tp}], k[{tp}])", "int8")
    check_buffers(stored, "buffer")
    whole = stored.bound["buffer"]
    first, second = whole.parts
    wrong_cut = replace(first.cuts[0], reversed=True)
    for parts in ((second, first), (replace(first, cuts=(wrong_cut, first.cuts[1])), second)):
        stored.bound["buffer"] = replace(whole, parts=parts)
        with pytest.raises(AssertionError):
            check_buffers(stored, "buffer")


HEADS = {"q": (32, 16), "k": (8, 16), "v": (8, 16)}


def rows(stored: Stored, device: int) -> list[tuple[str, int, int]]:
    """What the rows of a device's only buffer are."""
    (buffer,) = stored.bound.values()
    position = stored.mesh.device_ids.index(device)
    return [(part.tensor, *part.box(position)[0]) for part in buffer.parts]


def test_a_packed_qkv_as_vllm_loads_it() -> None:
    """TP 4, 2 kv heads, as `QKVParallelLinear` does it (vllm 0.32)."""
    layout = sw.stack(0, q="tp", k='"tp":(1)2', v='"tp":(1)2')
    stored = sw.Stored("tp=4", HEADS, layout, "bfloat16")
    assert str(layout) == 'stack(0, q[{"tp"}], k[{"tp":(1)2}], v[{"tp":(1)2}])'
    assert rows(stored, 0) == [("q", 0, 8), ("k", 0, 4), ("v", 0, 4)]
    assert rows(stored, 3) == [("q", 24, 32), ("k", 4, 8), ("v", 4, 8)]
    assert stored.shape("buffer", 3) == (16, 16)


def test_one_cut_through_a_stack() -> None:
    """48 rows over 5: q ends and k begins within a shard."""
    stored = sw.Stored("fsdp=5", HEADS, sw.cut(0, "fsdp", sw.stack(0, "q", "k", "v")), "bfloat16")
    assert rows(stored, 3) == [("q", 30, 32), ("k", 0, 8), ("v", 0, 0)]
    assert [stored.shape("buffer", d)[0] for d in range(5)] == [10, 10, 10, 10, 8]


def test_a_padded_vocabulary() -> None:
    stored = sw.Stored("tp=4", {"w": (10, 2)}, sw.cut(0, "tp", size=4), "float32")
    assert [high - low for _, low, high in (rows(stored, d)[0] for d in range(4))] == [4, 4, 2, 0]
    assert {stored.shape("w", d) for d in range(4)} == {(4, 2)}


def test_a_zigzag_sequence() -> None:
    stored = sw.Stored(
        "cp=4",
        {"x": (2, 64)},
        "stack(1, x[{}, {cp} into(8)], x[{}, {cp} into(8) reversed])",
        "int8",
    )
    box = [part.box(1)[1] for part in stored.bound["buffer"].parts]
    assert box == [(8, 16), (48, 56)]


def test_shardings_are_layouts() -> None:
    """Shardy's text, P and placements, on the mesh; two axes of placements cut chunk by chunk."""
    for text, layout in (
        ('[{"x"}, {}]', 'w[{"x"}]'),
        ("P(None, ('x', 'y'))", 'w[{}, {"x", "y"}]'),
        ("(Shard(0), Shard(0))", 'w[{"x", "y"} nested]'),
    ):
        assert str(sw.Stored("x=2,y=2", {"w": (5, 6)}, {"w": text}, "int8").buffers["w"]) == layout


REFUSED: list[tuple[Callable[[], object], str]] = [
    (
        lambda: sw.Stored("tp=2", HEADS, "stack(0, q[{tp}], k[{tp}])", "int8"),
        """
        v: every element of a tensor must be on at least one device
        got: elements 0 to 8 of dimension 0 of v on no device
        expected: shards, parts or table entries that include them
        """,
    ),
    (
        lambda: sw.Stored("tp=2", {"w": (10, 2)}, {"w": "w[{tp} sized(4)]"}, "int8"),
        """
        w: every element of a tensor must be on at least one device
          w[{"tp"} sized(4)]
            ^^^^^^^^^^^^^^^
        got: elements 8 to 10 of dimension 0 of w on no device
        expected: shards, parts or table entries that include them
        """,
    ),
    (
        lambda: sw.Stored("tp=2", HEADS, "stack(0, q[{tp}], k, v[{}, {tp}])", "int8"),
        """
        buffer: parts of a stack must have equal extents except along dimension 0
          stack(0, q[{tp}], k, v[{}, {tp}])
                               ^^^^^^^^^^^
        got: (8, 8) of v on device 0
        expected: extents like those of (16, 16) of q
        """,
    ),
    (
        lambda: sw.Stored(
            "tp=2", HEADS, {"qkv": "stack(0, q[{tp}], k, v)"}, "int8", shapes={"qkv": (24, 16)}
        ),
        """
        qkv: the parts of a buffer must fill the shape given for it
          stack(0, q[{"tp"}], k, v)
          ^^^^^^^^^^^^^^^^^^^^^^^^^
        got: (32, 16) on device 0
        expected: (24, 16)
        """,
    ),
    (
        lambda: sw.Stored("ep=2", {"w": (4,)}, "w[{ep} balanced nested]", "int8"),
        """
        layout: a cut may have only one rule
          w[{ep} balanced nested]
                          ^^^^^^
        got: balanced and nested
        expected: only one of them
        """,
    ),
    (
        lambda: sw.Stored("ep=2", {"w": (4,)}, "w[{ep} into(2) into(4)]", "int8"),
        """
        layout: into may be given only once
          w[{ep} into(2) into(4)]
                         ^^^^^^^
        got: into twice
        expected: only one of them
        """,
    ),
    (
        lambda: sw.Stored("ep=4", {"w": (3, 2)}, "w[{ep} into(3) table(0, 1, 7, -)]", "int8"),
        """
        w: each entry of a table must be the number of a shard
          w[{ep} into(3) table(0, 1, 7, -)]
                                     ^
        got: 7 at position 2
        expected: 0 to 2, or - for none; into(N) makes N shards
        """,
    ),
    (
        lambda: sw.Stored("tp=2", {"w": (10, 2)}, "w '(g=4 r) c -> r g c'", "int8"),
        """
        w: the factors of a dimension must multiply to its extent
          w '(g=4 r) c -> r g c'
            ^^^^^^^^^^^^^^^^^^^^
        got: (g=4 r) for dimension 0 of extent 10
        expected: sizes whose product is 10; one size may be omitted
        """,
    ),
    (
        lambda: sw.Stored("tp=2", {"w": (10, 2)}, "w[{tq}]", "int8"),
        """
        w: an axis must exist in the mesh
          w[{tq}]
             ^^
        got: "tq"
        expected: "tp"
        """,
    ),
    (
        lambda: sw.Stored("tp=2", {"w": (10, 2)}, "w[{tp} listed(0, 4, 9)]", "int8"),
        """
        w: the last boundary must be the extent
          w[{tp} listed(0, 4, 9)]
                 ^^^^^^^^^^^^^^^
        got: 9
        expected: 10
        """,
    ),
    (
        lambda: sw.Stored("tp=2", {"w": (10, 2)}, "w[{tp}, {tp}]", "int8"),
        """
        w: an axis may cut only one dimension of a part
          w[{tp}, {tp}]
                   ^^
        got: "tp" and "tp"
        expected: axes that do not overlap
        """,
    ),
    (
        lambda: sw.Stored("x=2", {"w": (4,)}, {"w": '[{}], unreduced={"x"}'}, "int8"),
        """
        w: the sharding of a stored layout must not have partial sums
        got: [{}], unreduced={"x"}
        expected: a sharding without unreduced axes
        """,
    ),
    (
        lambda: sw.Stored("tp=2", {"w": (4, 6)}, "w[{}, {tp}]", "int4"),
        """
        w: two elements of the last dimension share a byte, which must not be split
          w[{}, {"tp"}]
                ^^^^^^
        got: elements 0 to 3 of dimension 1 of w on device 0
        expected: a cut before an element with an even index
        """,
    ),
    (
        lambda: sw.Stored("tp=2", {"w": (4, 12)}, "w[{}, {tp} sized(7)]", "float4_e2m1fn"),
        """
        w: two elements of the last dimension share a byte, which must not be split
          w[{}, {"tp"} sized(7)]
                ^^^^^^^^^^^^^^^
        got: elements 0 to 7 of dimension 1 of w on device 0
        expected: a cut before an element with an even index
        """,
    ),
    (
        lambda: sw.Stored(
            "tp=2", {"w": (4, 8), "u": (4, 2)}, "cut(1, {tp}, stack(1, w, u))", "int4"
        ),
        """
        buffer: two elements of the last dimension share a byte, which must not be split
          cut(1, {"tp"}, stack(1, w, u))
                 ^^^^^^
        got: elements 0 to 5 of dimension 1 of w on device 0
        expected: a cut before an element with an even index
        """,
    ),
    (
        lambda: sw.Stored("tp=2", {"w": (4, 8)}, "w 'i o -> o i'", "int4"),
        """
        w: the last factor of packed elements must be even, and stored last
          w 'i o -> o i'
            ^^^^^^^^^^^^
        got: i o -> o i
        expected: o as the last factor on the right, with an even size
        """,
    ),
    (
        lambda: sw.Stored("tp=2", {"w": (4, 7)}, "w", "int4"),
        """
        tensors: two elements of the last dimension share a byte, which must not be split
        got: w of shape (4, 7)
        expected: an even last extent
        """,
    ),
    (
        lambda: sw.Stored("tp=2", {"w": (4,)}, "w[{tp} table(0, 1, 0)]", "int8"),
        """
        w: a table must have one entry for each position along the axes
          w[{tp} table(0, 1, 0)]
                 ^^^^^^^^^^^^^^
        got: 3 entries
        expected: 2
        """,
    ),
    (
        lambda: sw.stack(0, q="tp sized"),
        """
        q: sized does not take this many numbers
          tp sized
             ^^^^^
        got: 0 numbers
        expected: sized(S) or sized(S, a), with S at least 1 and a at least 0
        """,
    ),
]


def test_packed_elements_are_bytes() -> None:
    """Cuts at even elements are cuts of bytes, whatever their rule."""
    for layout, halved in (
        ("w[{}, {a} sized(6, 2)]", "w[{}, {a} sized(3, 1)]"),
        ("w[{}, {a} listed(0, 2, 12)]", "w[{}, {a} listed(0, 1, 6)]"),
        ("w[{}, 4:12 {a} into(4) reversed]", "w[{}, 2:6 {a} into(4) reversed]"),
        ("w 'i (g=3 c=4) -> g i c' [{a} balanced]", "w 'i (g=3 c=2) -> g i c' [{a} balanced]"),
        ("stack(1, w[{}, {a}], w)", "stack(1, w[{}, {a}], w)"),
    ):
        both = {"it": parse_layout(layout), "rest": "w"}
        stored = sw.Stored("a=2", {"w": (4, 12)}, both, "int4")
        expected = str(parse_layout(halved))
        assert (str(stored.in_bytes.buffers["it"]), stored.in_bytes.dtype) == (expected, "uint8")
        assert sw.Stored.parse(str(stored)) == stored


@pytest.mark.parametrize(("call", "said"), REFUSED)
def test_refused(call: Callable[[], object], said: str) -> None:
    assert message(call) == exactly(said)
