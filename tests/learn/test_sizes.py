"""Layouts learned at small sizes, and scaled: right at a size that was not used."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from strategies import exactly, message

import shardwright as sw

Arrays = dict[str, Any]


def heads(heads: int, kv: int, tp: int) -> dict[str, tuple[int, int]]:
    return {"q": (4 * heads, 8), "k": (4 * kv, 8), "v": (4 * kv, 8)}


def packed(rank: int, tensors: Arrays, heads: int, kv: int, tp: int) -> Arrays:
    """vLLM's QKV, kv heads repeated where there are more ranks."""
    head = rank * kv // tp
    rows = 4 * max(1, kv // tp)
    k, v = (tensors[name][4 * head : 4 * head + rows] for name in "kv")
    return {"qkv": np.concatenate([np.split(tensors["q"], tp)[rank], k, v])}


def interleaved(rank: int, tensors: Arrays, heads: int, kv: int, tp: int) -> Arrays:
    groups = [tensors[name].reshape(kv, -1, 8) for name in "qkv"]
    held = np.split(np.concatenate(groups, axis=1), tp)[rank]
    return {"qkv": held.reshape(-1, 8)}


SIZES: list[dict[str, int]] = [
    {"heads": 8, "kv": 4, "tp": 2},
    {"heads": 16, "kv": 2, "tp": 4},
    {"heads": 8, "kv": 4, "tp": 4},
]


def learned(load: Any, sizes: Any = SIZES, check: Any = None) -> sw.LearnedSizes:
    return sw.learn_sizes(
        load,
        logical=heads,
        ranks=lambda tp, **_: {"tp": tp},
        sizes=sizes,
        check=check or {"heads": 24, "kv": 4, "tp": 8},
        dtype="bfloat16",
    )


def test_kv_heads() -> None:
    """A real model's layout from three small ones: Llama 3's 64 heads and 8 kv heads at TP 16."""
    family = learned(packed)
    assert str(family) == (
        'qkv = stack(0, q[{"tp":(1){tp}}], k[{"tp":(1){min(kv, tp)}}], '
        'v[{"tp":(1){min(kv, tp)}}])\n'
        "learned at heads=8, kv=4, tp=2; heads=16, kv=2, tp=4; heads=8, kv=4, tp=4; "
        "checked at heads=24, kv=4, tp=8"
    )
    real = family.at(heads=64, kv=8, tp=16, extrapolate=True)
    assert str(real.buffers["qkv"]) == 'stack(0, q[{"tp":(1)16}], k[{"tp":(1)8}], v[{"tp":(1)8}])'
    load = lambda rank, tensors: packed(rank, tensors, 64, 8, 16)  # noqa: E731
    assert sw.compare(load, real).same
    assert family.at(heads=16, kv=2, tp=4).shape("qkv", 3) == (24, 8)
    assert message(lambda: family.at(heads=64, kv=8, tp=16)) == exactly(
        """
        size: the loader did not run at this size
        got: heads=64, kv=8, tp=16
        expected: heads=24, kv=4, tp=8, at which the layout was checked, or extrapolate=True
        """
    )


def test_factors() -> None:
    """Megatron's groups: numbers of rows depend on heads and kv heads."""
    sizes = [
        {"heads": 8, "kv": 4, "tp": 2},
        {"heads": 24, "kv": 8, "tp": 2},
        {"heads": 16, "kv": 16, "tp": 4},
    ]
    family = learned(interleaved, sizes, {"heads": 48, "kv": 12, "tp": 3})
    assert str(family).splitlines()[0] == (
        "qkv = stack(1, q '(i0 i1={4 * heads / kv}) j -> i0 i1 j' [{\"tp\":(1){tp}}], "
        "k '(i0 i1=4) j -> i0 i1 j' [{\"tp\":(1){tp}}], "
        "v '(i0 i1=4) j -> i0 i1 j' [{\"tp\":(1){tp}}])"
    )
    real = family.at(heads=32, kv=8, tp=4, extrapolate=True)
    assert sw.compare(lambda r, t: interleaved(r, t, 32, 8, 4), real).same


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        (lambda rows, tp: -(-rows // tp), 'w[{"tp":(1){tp}} sized({ceil(rows / tp)})]'),
        (
            lambda rows, tp: -(-rows // (16 * tp)) * 16,
            'w[{"tp":(1){tp}} sized({ceil(rows / (16 * tp)) * 16})]',
        ),
    ],
)
def test_padding(stored: Any, expected: str) -> None:
    """Padded vocabularies, and a form that fewer sizes have: at even ones nothing is padded."""

    def load(rank: int, tensors: Arrays, rows: int, tp: int) -> Arrays:
        size = stored(rows, tp)
        whole = np.zeros((size * tp, 2))
        whole[:rows] = tensors["w"]
        return {"w": np.split(whole, tp)[rank]}

    family = sw.learn_sizes(
        load,
        logical=lambda rows, tp: {"w": (rows, 2)},
        ranks=lambda rows, tp: {"tp": tp},
        sizes=[{"rows": 90, "tp": 4}, {"rows": 200, "tp": 3}, {"rows": 131, "tp": 2}],
        check={"rows": 157, "tp": 4},
    )
    assert str(family).splitlines()[0] == f"w = {expected}"


@pytest.mark.parametrize("fault", ["moved", "padding", "none"])
def test_a_large_size_is_checked_in_pieces(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One element of millions that is elsewhere, or padding that is an element, is found."""
    monkeypatch.setattr("shardwright.codegen.learn.pieces.PIECE", 100)
    monkeypatch.setattr("shardwright.codegen.learn.sizes.MOST_SAID", 1000)

    def load(rank: int, tensors: Arrays, rows: int, tp: int) -> Arrays:
        size = -(-rows // (16 * tp)) * 16
        whole = np.zeros((size * tp, 8))
        whole[:rows] = tensors["w"]
        held = np.split(whole, tp)[rank].copy()
        if rows > 500 and rank == 3:
            held[7, [2, 5]] = held[7, [5, 2]] if fault == "moved" else held[7, [2, 5]]
            held[-1, 4] = held[0, 4] if fault == "padding" else 0
        return {"w": held}

    def family() -> sw.LearnedSizes:
        return sw.learn_sizes(
            load,
            logical=lambda rows, tp: {"w": (rows, 8)},
            ranks=lambda rows, tp: {"tp": tp},
            sizes=[{"rows": 90, "tp": 4}, {"rows": 200, "tp": 3}, {"rows": 131, "tp": 2}],
            check={"rows": 509, "tp": 4},
        )

    if fault == "none":
        assert family().at(rows=509, tp=4).shape("w", 3) == (128, 8)
        return
    place = "w of rank 3" if fault == "moved" else "the padding of w of rank 3"
    assert message(family).splitlines()[1] == (
        'got: w = w[{"tp":(1)4} sized(128)] at rows=509, tp=4; '
        f"the loader stores something else: {place}"
    )


def test_refused() -> None:
    def odd(rank: int, tensors: Arrays, heads: int, kv: int, tp: int) -> Arrays:
        return packed(tp - 1 - rank if tp == 8 else rank, tensors, heads, kv, tp)

    assert message(lambda: learned(odd)).splitlines()[:2] == [
        "check: the learned layout does not hold at the size `check`",
        'got: qkv = stack(0, q[{"tp":(1)8}], k[{"tp":(1)4}], v[{"tp":(1)4}]) '
        'at heads=24, kv=4, tp=8; the loader stores stack(0, q[{"tp"} reversed], '
        'k[{"tp":(1)4} reversed], v[{"tp":(1)4} reversed])',
    ]

    few = message(lambda: learned(packed, SIZES[:2])).splitlines()
    assert few == [
        "check: the learned layout does not hold at the size `check`",
        'got: qkv = stack(0, q[{"tp":(1)8}], k[{"tp":(1)2}], v[{"tp":(1)2}]) '
        "at heads=24, kv=4, tp=8; the loader stores "
        'stack(0, q[{"tp"}], k[{"tp":(1)4}], v[{"tp":(1)4}])',
        "expected: more sizes to learn from",
    ]

    def other(rank: int, tensors: Arrays, heads: int, kv: int, tp: int) -> Arrays:
        return packed(tp - 1 - rank if tp == 4 else rank, tensors, heads, kv, tp)

    assert message(lambda: learned(other)).startswith(
        "sizes: the layouts at all sizes must have the same form\ngot: qkv = stack("
    )
    assert message(lambda: learned(packed, SIZES[:1])) == exactly(
        """
        sizes: a layout must be learned at two or more sizes, and checked at a different one
        got: heads=8, kv=4, tp=2
        expected: values of heads, kv, tp other than heads=24, kv=4, tp=8
        """
    )
