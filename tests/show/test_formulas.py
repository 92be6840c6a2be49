"""The layout map and its inverse in symbols, and the proof that they undo each other."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import meshes, shardings

from shardwright.codegen.show.formulas import layout_map
from shardwright.codegen.show.proof import prove_roundtrip
from shardwright.ir import AxisRef, DimSharding, Mesh, Sharding
from shardwright.ir.algebra.index import FloorDiv, Index, evaluate
from shardwright.ir.layout import DimLayout, Layout

XY = Mesh({"x": 2, "y": 3})
XYZ = Mesh({"x": 2, "y": 3, "z": 5})


def every_sharding(mesh: Mesh, rank: int) -> Iterator[Sharding]:
    """Every assignment of ordered subsets of axes to dimensions."""
    for count in range(len(mesh.names) + 1):
        for names in itertools.permutations(mesh.names, count):
            for cuts in itertools.combinations_with_replacement(range(count + 1), rank - 1):
                ends = (0, *cuts, count)
                parts = (names[low:high] for low, high in itertools.pairwise(ends))
                yield Sharding(
                    mesh, tuple(DimSharding(tuple(map(AxisRef, part))) for part in parts)
                )


def formulas(sharding: Sharding, split: str = "flat") -> list[str]:
    symbols = layout_map(sharding, split=split)
    return f"{symbols.forward_text()}\n{symbols.inverse_text()}".split("\n")


@pytest.mark.parametrize(
    ("sharding", "expected"),
    [
        ("[]", ["d(m, n)[] -> t[]", "t[] -> d(*, *)[]"]),
        ("[{}]", ["d(m, n)[k] -> t[k]", "t[i] -> d(*, *)[i]"]),
        (
            '[{}, {"y"}]',
            [
                "d(m, n)[k, l] -> t[k, n * (L ceildiv N) + l]",
                "t[i, j] -> d(*, j floordiv (L ceildiv N))[i, j % (L ceildiv N)]",
            ],
        ),
        (
            '[{"x", "y"}]',
            [
                "d(m, n)[k] -> t[(m * N + n) * (K ceildiv (M * N)) + k]",
                "t[i] -> d(i floordiv (N * (K ceildiv (M * N))), "
                "(i floordiv (K ceildiv (M * N))) % N)[i % (K ceildiv (M * N))]",
            ],
        ),
        (
            '[{"y"}], unreduced={"x"}',
            [
                "sum over m of d(m, n)[k] -> t[n * (K ceildiv N) + k]",
                "t[i] -> sum over m of d(m, i floordiv (K ceildiv N))[i % (K ceildiv N)]",
            ],
        ),
        (
            '[{}, {}, {"x"}]',
            [
                "d(m, n)[k0, k1, k2] -> t[k0, k1, m * (K2 ceildiv M) + k2]",
                "t[i0, i1, i2] -> d(i2 floordiv (K2 ceildiv M), *)[i0, i1, i2 % (K2 ceildiv M)]",
            ],
        ),
    ],
)
def test_formulas(sharding: str, expected: list[str]) -> None:
    assert formulas(XY.sharding(sharding)) == expected


def test_formulas_of_sub_axes() -> None:
    assert formulas(Mesh({"x": 8}).sharding('[{"x":(1)2}, {"x":(4)2}]')) == [
        "d(m)[k, l] -> t[(m floordiv (Mb * Mc)) * (K ceildiv Ma) + k, "
        "(m % Mc) * (L ceildiv Mc) + l]",
        "t[i, j] -> d((i floordiv (K ceildiv Ma)) * Mb * Mc + r * Mc + (j floordiv (L ceildiv Mc)))"
        "[i % (K ceildiv Ma), j % (L ceildiv Mc)] for every r in [0, Mb)",
    ]


def test_formulas_of_a_nested_split() -> None:
    assert formulas(XY.sharding('[{"x", "y"}, {}]'), "nested") == [
        "d(m, n)[k, l] -> t[o1 + o2 + k, l]",
        "    C1 = K ceildiv M",
        "    o1 = min(m * C1, K)",
        "    L1 = min(C1, K - o1)",
        "    C2 = L1 ceildiv N",
        "    o2 = min(n * C2, L1)",
        "t[i, j] -> d(s1, s2)[r2, j]",
        "    C1 = K ceildiv M",
        "    s1 = i floordiv C1",
        "    r1 = i - s1 * C1",
        "    L1 = min(C1, K - s1 * C1)",
        "    C2 = L1 ceildiv N",
        "    s2 = r1 floordiv C2",
        "    r2 = r1 - s2 * C2",
    ]


@st.composite
def placed(draw: st.DrawFn) -> tuple[Sharding, tuple[int, ...], str]:
    mesh = draw(meshes(most_devices=24))
    sharding = draw(shardings(mesh, draw(st.integers(0, 3))))
    shape = tuple(draw(st.integers(1, 9)) for _ in sharding.dims)
    return sharding, shape, draw(st.sampled_from(["flat", "nested"]))


@given(placed())
@settings(max_examples=30, deadline=None)
def test_symbolic_formulas_compute_the_layout(case: tuple[Sharding, tuple[int, ...], str]) -> None:
    """With numbers put in for sizes and coordinates the formulas give the layout's intervals."""
    sharding, shape, split = case
    symbols, layout = layout_map(sharding, None, split), Layout.of(sharding, shape, split)
    numbers = layout_map(sharding, shape, split)
    sizes = dict(zip((dim.extent for dim in symbols.dims), shape, strict=True))
    for axis, own in zip(symbols.axes, numbers.axes, strict=True):
        for (_, digit), (_, number) in zip(axis.pieces, own.pieces, strict=True):
            sizes[digit.size] = int(number.size)
    boxes = layout.boxes()[:, layout.hidden :].tolist()
    strides = [int(axis.stride) for axis in numbers.axes]
    for position, box in enumerate(boxes):
        if any(low >= high for low, high in box):
            continue
        coordinates = [
            position // stride % int(axis.size)
            for stride, axis in zip(strides, numbers.axes, strict=True)
        ]
        values = sizes | dict(zip(symbols.coordinates, coordinates, strict=True))
        values |= dict.fromkeys(symbols.local, 0)
        starts = [int(evaluate(sympy.sympify(e), values)) for e in symbols.to_tensor()]
        assert starts == [low for low, _ in box]


@pytest.mark.parametrize("split", ["flat", "nested"])
@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("mesh", [XY, XYZ], ids=["two axes", "three axes"])
def test_every_roundtrip_is_proved(mesh: Mesh, rank: int, split: str) -> None:
    proofs = {str(s): prove_roundtrip(s, split) for s in every_sharding(mesh, rank)}
    assert [text for text, proof in proofs.items() if not proof.holds] == []
    # Five steps a dimension, one for each of its shard indices, one for each coordinate.
    assert all(len(p.claims) >= 6 * rank + len(mesh.axes) for p in proofs.values())


@pytest.mark.parametrize(
    "sharding",
    [
        '[{"x":(1)2}, {"x":(4)2}]',
        '[{"x":(2)4, "y"}, {"x":(1)2}]',
        '[{"x":(4)2, "y", "x":(1)2}]',
        '[{"y"}], unreduced={"x":(2)2}',
    ],
)
@pytest.mark.parametrize("split", ["flat", "nested"])
def test_roundtrips_of_sub_axes_are_proved(sharding: str, split: str) -> None:
    assert prove_roundtrip(Mesh({"x": 8, "y": 2}).sharding(sharding), split).holds


def test_roundtrip_of_rank_8_is_proved() -> None:
    mesh = Mesh(dict.fromkeys("abcdefgh", 2))
    dims = tuple(DimSharding((AxisRef(name),)) for name in "hgfedcba")
    assert prove_roundtrip(Sharding(mesh, dims)).holds


def test_a_wrong_map_is_not_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    right = DimLayout.locate

    def off_by_one(self: DimLayout, element: object, *rest: object) -> tuple[object, object]:
        shard, local = right(self, element, *rest)  # type: ignore[arg-type]
        return shard, local + 1

    monkeypatch.setattr(DimLayout, "locate", off_by_one)
    proof = prove_roundtrip.__wrapped__(XY.sharding('[{"x"}]'))
    assert str(proof) == (
        "not proved: t after d keeps the local index of dimension 0; "
        "d after t keeps the element of dimension 0; "
        "d after t ends inside a shard of dimension 0"
    )


def test_a_wrong_order_of_axes_is_not_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    import shardwright.codegen.show.proof as proof_module

    right = proof_module.digit_values
    monkeypatch.setattr(
        proof_module, "digit_values", lambda digits, number: right(digits, number)[::-1]
    )
    proof = prove_roundtrip.__wrapped__(XY.sharding('[{"x", "y"}]'))
    assert [claim.statement for claim in proof.claims if not claim.holds] == [
        'd keeps the coordinate along "x"',
        'd keeps the coordinate along "y"',
        "a device of a shard of dimension 0 has its index",
    ]


def test_quotient_of_a_tensor_index_by_the_shard_size_is_a_shard() -> None:
    """The bound behind `i floordiv (K ceildiv M)` needing no `% M`."""
    for extent, parts in itertools.product(range(1, 30), range(1, 12)):
        size = -(-extent // parts)
        assert np.all(np.arange(extent) // size < parts)
    dim = layout_map(XY.sharding('[{"x"}]')).dims[0]
    assert dim.owner(Index("i", dim.extent)).func is FloorDiv
