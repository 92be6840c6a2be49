"""Layouts learned from loaders: what is learned has every element, and what is not is named."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from layouts import buffers, meshes
from strategies import exactly, message

import shardwright as sw

HEADS = {"q": (32, 16), "k": (8, 16), "v": (8, 16)}
Arrays = dict[str, Any]


def packed(rank: int, tensors: Arrays) -> Arrays:
    """vLLM's QKV, TP 4, two kv heads of four rows."""
    q, k, v = (tensors[name] for name in "qkv")
    head = slice(4 * (rank // 2), 4 * (rank // 2) + 4)
    return {"qkv": np.concatenate([q[8 * rank : 8 * rank + 8], k[head], v[head]])}


def flat(rank: int, tensors: Arrays) -> Arrays:
    """FSDP over the fused weight."""
    return {"w": np.concatenate([*tensors.values()])[10 * rank : 10 * rank + 10]}


def padded(rank: int, tensors: Arrays) -> Arrays:
    whole = np.zeros((12, 4))
    whole[:10] = tensors["w"]
    return {"w": whole[3 * rank : 3 * rank + 3]}


def zigzag(rank: int, tensors: Arrays) -> Arrays:
    chunks = np.split(tensors["x"], 8, axis=1)
    return {"x": np.concatenate([chunks[rank], chunks[7 - rank]], axis=1)}


def striped(rank: int, tensors: Arrays) -> Arrays:
    return {"x": tensors["x"][rank::4]}


def transposed(rank: int, tensors: Arrays) -> Arrays:
    return {"w": tensors["w"].T[3 * rank : 3 * rank + 3]}


def interleaved(rank: int, tensors: Arrays) -> Arrays:
    """Megatron's QKV: for each of four groups its heads of q, then k, then v."""
    groups = [tensors[name].reshape(4, -1, 16) for name in "qkv"]
    held = np.concatenate(groups, axis=1)[2 * rank : 2 * rank + 2]
    return {"linear_qkv": held.reshape(-1, 16)}


def slots(rank: int, tensors: Arrays) -> Arrays:
    """Expert slots by a table, one of them redundant."""
    return {"w": np.stack([tensors["w"][e] for e in ([0, 1, 3], [2, 3, 0])[rank]])}


def fused(rank: int, tensors: Arrays) -> Arrays:
    """A checkpoint's fused QKV, cut part by part."""
    w, r = tensors["qkv"], rank
    parts = w[8 * r : 8 * r + 8], w[32 + 2 * r : 34 + 2 * r], w[40 + 2 * r : 42 + 2 * r]
    return {"qkv": np.concatenate(parts)}


def split(rank: int, tensors: Arrays) -> Arrays:
    return {"w": np.array_split(tensors["w"], 4, axis=1)[rank], "b": tensors["b"]}


def blocks(rank: int, tensors: Arrays) -> Arrays:
    """A weight in shards of 192 columns, and the scales of the blocks of 128 that they touch."""
    low, high = 192 * rank, 192 * rank + 192
    return {"w": tensors["w"][low:high], "s": tensors["s"][low // 128 : -(-high // 128)]}


def stages(rank: int, tensors: Arrays) -> Arrays:
    return {"a": tensors["a"]} if rank == 0 else {"b": tensors["b"]}


def shuffled(rank: int, tensors: Arrays) -> Arrays:
    return {"w": tensors["w"][[[3, 0, 2], [1, 5, 4]][rank]]}


LOADERS: list[tuple[Callable[[int, Arrays], Arrays], dict[str, Any], Any, list[str]]] = [
    (packed, HEADS, "tp=4", ['qkv = stack(0, q[{"tp"}], k[{"tp":(1)2}], v[{"tp":(1)2}])']),
    (flat, HEADS, "fsdp=5", ['w = cut(0, {"fsdp"}, stack(0, q, k, v))']),
    (padded, {"w": (10, 4)}, "tp=4", ['w = w[{"tp"} sized(3)]']),
    (
        zigzag,
        {"x": (2, 64)},
        "cp=4",
        ['x = stack(1, x[{}, 0:32 {"cp"}], x[{}, {"cp"} into(8) reversed])'],
    ),
    (striped, {"x": (16, 3)}, "cp=4", ["x = x '(i0 i1=4) j -> i1 i0 j' [{\"cp\"}]"]),
    (transposed, {"w": (8, 6)}, range(2), ["w = w 'i j -> j i' [{\"rank\"}]"]),
    (
        interleaved,
        HEADS,
        "tp=2",
        [
            "linear_qkv = stack(1, q '(i0 i1=8) j -> i0 i1 j' [{\"tp\"}], "
            "k '(i0 i1=2) j -> i0 i1 j' [{\"tp\"}], v '(i0 i1=2) j -> i0 i1 j' [{\"tp\"}])"
        ],
    ),
    (
        slots,
        {"w": (4, 6, 5)},
        "ep=2",
        ['w = stack(0, w[{"ep"}], w[{"ep"} into(4) table(3, 0)])'],
    ),
    (
        fused,
        {"qkv": (48, 4)},
        "tp=4",
        ['qkv = stack(0, qkv[0:32 {"tp"}], qkv[32:40 {"tp"}], qkv[40:48 {"tp"}])'],
    ),
    (split, {"w": (10, 6), "b": ()}, "tp=4", ['w = w[{}, {"tp"} balanced]', "b = b"]),
    (
        blocks,
        {"w": (768, 2), "s": (6, 1)},
        "tp=4",
        ['w = w[{"tp"}]', 's = s[{"tp"} cover(128, 768)]'],
    ),
    (
        stages,
        {"a": (3, 2), "b": (3, 4)},
        "pp=2",
        ['a = a[{"pp"} listed(0, 3, 3)]', 'b = b[{"pp"} listed(0, 0, 3)]'],
    ),
    (
        shuffled,
        {"w": (6, 2)},
        "tp=2",
        [
            'w = stack(0, w[{"tp"} into(6) table(3, 1)], w[{"tp"} into(6) table(0, 5)], '
            'w[{"tp"} into(6) table(2, 4)])'
        ],
    ),
]


@pytest.mark.parametrize(
    ("load", "logical", "ranks", "expected"), LOADERS, ids=[row[0].__name__ for row in LOADERS]
)
def test_the_simplest_layout(load: Any, logical: Any, ranks: Any, expected: list[str]) -> None:
    """A loader's layout is found as people would write it, and differs nowhere from the loader."""
    learned = sw.learn(load, logical=logical, ranks=ranks)
    assert learned.findings == ()
    assert [f"{name} = {each}" for name, each in learned.stored.buffers.items()] == expected
    assert sw.Stored.parse(str(learned)) == learned.stored
    assert f'from = "{load.__module__}:{load.__name__}"' in str(learned)


@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "float8_e4m3fn", "int8", "uint8"])
def test_narrow_types(dtype: str) -> None:
    """Several passes of numbers that the type has exactly: no value is rounded on its way."""
    import ml_dtypes

    found = getattr(ml_dtypes, dtype, None) or np.dtype(dtype)
    passes = []

    def narrow(rank: int, tensors: Arrays) -> Arrays:
        cast = {name: each.astype(found).astype(np.float64) for name, each in tensors.items()}
        assert all(np.array_equal(cast[name], each) for name, each in tensors.items())
        passes.append(rank)
        return packed(rank, cast)

    learned = sw.learn(narrow, logical=HEADS, ranks="tp=4", dtype=dtype)
    assert str(learned.layouts["qkv"]) == LOADERS[0][3][0].removeprefix("qkv = ")
    digits = {"float64": 1, "bfloat16": 2, "float8_e4m3fn": 4, "int8": 3, "uint8": 3}[dtype]
    assert passes.count(0) == 2 * 2 * digits  # rounds, dimensions


def test_torch_tensors() -> None:
    """A loader gets tensors of the kind and type that it is learned with; meta ones have values."""
    import torch

    logical = {
        name: torch.empty(shape, dtype=torch.bfloat16, device="meta")
        for name, shape in HEADS.items()
    }

    def load(rank: int, tensors: Arrays) -> Arrays:
        assert {each.dtype for each in tensors.values()} == {torch.bfloat16}
        return {name: each.chunk(4)[rank] for name, each in tensors.items()}

    learned = sw.learn(load, logical=logical, ranks=range(4))
    assert learned.stored.dtype == "bfloat16"
    assert "torch" in learned.versions
    assert str(learned.stored.buffers["k"]) == 'k[{"rank"}]'


def test_what_is_computed() -> None:
    """Values that are scaled, raised, summed or out of order are named, and the rest is learned."""

    def load(rank: int, tensors: Arrays) -> Arrays:
        w, norm = tensors["w"], tensors["norm"]
        scattered = w[:4].copy()
        scattered[1, [0, 2]] = scattered[1, [2, 0]]
        return {
            "w": w[4 * rank : 4 * rank + 4],
            "norm": norm * 2 + 1,
            "mean": w.mean(axis=0),
            "scattered": scattered,
        }

    learned = sw.learn(load, logical={"w": (8, 3), "norm": (8,)}, ranks=range(2))
    assert learned.findings == (
        "norm elements 0 to 8 of all ranks hold norm elements 0 to 8 times 2 plus 1",
        "mean elements 0 to 3 of all ranks hold computed values",
        "scattered rows 1 to 2 of all ranks hold w columns 2, 1, 0",
    )
    assert learned.stored == sw.Stored("rank=2", {"w": (8, 3)}, 'w[{"rank"}]', "float32")
    mixed = sw.learn(
        lambda rank, tensors: {
            "w": tensors["w"] if rank else tensors["w"][None],
            "zero": np.zeros(3),
            "whole": tensors["w"],
        },
        logical={"w": (8, 3)},
        ranks=2,
    )
    assert mixed.findings == (
        "the number of dimensions of w differs between ranks: (1, 8, 3) on rank 0 and (8, 3) "
        "on rank 1",
        "zero of all ranks holds values of no tensor",
    )
    assert tomllib.loads(str(learned))["learned"]["findings"] == list(learned.findings)
    padded = sw.learn(
        lambda rank, tensors: {"w": np.pad(tensors["w"][rank::2], ((0, 3 + rank), (0, 0)))},
        logical={"w": (7, 3)},
        ranks=2,
    )
    assert padded.findings == (
        "w of all ranks holds padding, and elements in an order that no layout with padding has; "
        "load them without padding to learn their order",
    )
    missing = sw.learn(
        lambda rank, tensors: {"w": tensors["w"][2 * rank : 2 * rank + 2]},
        logical={"w": (9, 2)},
        ranks=4,
    )
    assert message(lambda: missing.stored) == exactly(
        """
        load: no buffer of the loader has a layout
        got: w rows 8 to 9 are on no rank
        expected: a loader that moves elements unchanged
        """
    )


def test_two_loaders() -> None:
    def rolled(rank: int, tensors: Arrays) -> Arrays:
        return packed((rank + 2) % 4 if rank % 2 else rank, tensors)

    compared = sw.compare(rolled, packed, logical=HEADS, ranks=4)
    assert str(compared).splitlines() == [
        "q rows 8 to 16 of rank 1 hold q rows 24 to 32 (qkv rows 0 to 8)",
        "k rows 0 to 4 of rank 1 hold k rows 4 to 8 (qkv rows 8 to 12)",
        "v rows 0 to 4 of rank 1 hold v rows 4 to 8 (qkv rows 12 to 16)",
        "q rows 24 to 32 of rank 3 hold q rows 8 to 16 (qkv rows 0 to 8)",
        "k rows 4 to 8 of rank 3 hold k rows 0 to 4 (qkv rows 8 to 12)",
        "v rows 4 to 8 of rank 3 hold v rows 0 to 4 (qkv rows 12 to 16)",
    ]
    assert sw.compare(packed, packed, logical=HEADS, ranks=4).same
    learned = sw.learn(packed, logical=HEADS, ranks=4)
    assert sw.compare(learned, packed).same
    assert sw.compare(learned, learned.stored).same

    def dequantised(scale: int) -> Callable[[int, Arrays], Arrays]:
        return lambda rank, tensors: {"w": tensors["w"] * tensors["s"] * scale}

    assert sw.compare(
        dequantised(1), dequantised(1), logical={"w": (4, 2), "s": (4, 1)}, ranks=1
    ).same
    assert str(
        sw.compare(dequantised(3), dequantised(1), logical={"w": (4, 2), "s": (4, 1)}, ranks=1)
    ) == ("computed values of rank 0 hold other computed values (w rows 0 to 4)")


def check_learned(case: tuple[sw.Mesh, tuple[dict[str, Any], Any]]) -> None:
    """A loader that stores as a layout says gives no alarm, and a layout is learned that stores the
    same; only padding beside padding may have none."""
    mesh, (shapes, layout) = case
    rest = {name: f"{name}[]" for name in shapes}
    stored = sw.Stored(mesh, shapes, {"it": layout, **rest}, "float32")
    learned = sw.learn(
        lambda rank, tensors: stored.shards(tensors)[rank], logical=shapes, ranks=mesh
    )
    if not learned.sampled or {*stored.buffers} == {*learned.layouts}:
        assert sw.compare(learned, stored).same, str(stored)
    numbers = {
        name: 1 + np.arange(math.prod(shape)).reshape(shape) for name, shape in shapes.items()
    }
    held = [each.shards(numbers) for each in (learned.stored, stored)]
    padded = "sized" in str(layout) and learned.findings
    if any(each["it"].any() for each in held[1].values()) and not padded:
        assert learned.findings == (), str(stored)
        for device, arrays in held[1].items():
            np.testing.assert_array_equal(
                held[0][device]["it"].reshape(-1), arrays["it"].reshape(-1), str(stored)
            )


cases = meshes().flatmap(lambda mesh: st.tuples(st.just(mesh), buffers(mesh)))


@settings(max_examples=3, deadline=None)
@given(cases)
def test_random_layouts(case: Any) -> None:
    check_learned(case)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(cases)
def test_two_hundred_right_converters(case: Any) -> None:
    check_learned(case)


def test_refused() -> None:
    def learned(load: Any = packed, logical: Any = HEADS, ranks: Any = 4, **more: Any) -> Any:
        return lambda: sw.learn(load, logical=logical, ranks=ranks, **more)

    assert message(learned(logical=(8, 6))) == exactly(
        """
        logical: the logical tensors must be given by name
        got: (8, 6)
        expected: shapes, arrays or tensors, for example {"q": (32, 16), "k": (8, 16)}
        """
    )
    assert message(learned(ranks=["a"])) == exactly(
        """
        ranks: ranks must be a count, a sequence of ranks or a mesh
        got: ['a']
        expected: 8, range(8), or 'dp=2,tp=4'
        """
    )
    assert message(learned("packed")) == exactly(
        """
        load: a loader must be a function
        got: 'packed'
        expected: load(rank, tensors), which returns arrays by the names of buffers
        """
    )
    assert message(learned(lambda rank, tensors: np.ones((1, 1)))) == exactly(
        """
        load: a loader must return a dict from buffer names to arrays
        got: array([[1.]]) on rank 0
        expected: a dict, for example {"qkv": array}
        """
    )
    assert message(learned(lambda rank, tensors: {"q": "none"})) == exactly(
        """
        load, buffer 'q': a buffer must be an array, or a tensor that has values
        got: 'none'
        expected: a numpy or jax array, or a torch tensor
        """
    )
    assert message(learned(lambda rank, tensors: {})) == exactly(
        """
        load: a loader must return a dict from buffer names to arrays
        got: no buffer on any rank
        expected: a dict, for example {"qkv": array}
        """
    )
    assert message(
        lambda: sw.compare(packed, lambda rank, tensors: {1: 0}, logical=HEADS, ranks=4)
    ).startswith("expected: a loader must return a dict from buffer names")
    assert message(learned(lambda rank, tensors: {"q": np.zeros(3, np.float16)})) == exactly(
        """
        load, buffer 'q': dtype must be the narrowest element type that the loader converts to
        got: a buffer of float16, which rounds the loader's tensors
        expected: dtype="float16", on the command line --dtype float16
        """
    )
    assert message(learned(lambda rank, tensors: {"q": tensors["q"] * 1j})) == exactly(
        """
        load, buffer 'q': a buffer must have real values
        got: complex128
        expected: two buffers, of its real and its imaginary parts
        """
    )
    assert message(learned(logical={"q": (10**9, 10**6)})).startswith(
        "logical: the tensors that a loader gets must fit in this machine's memory\ngot: 7,450,581 "
    )
    runs: list[int] = []

    def other(rank: int, tensors: Arrays) -> Arrays:
        runs.append(rank)
        return {"q": tensors["q"][: len(runs)]}

    assert message(learned(other)) == exactly(
        """
        load: a loader must return the same buffers whatever the values
        got: q of rank 0: (1, 16), then (2, 16)
        expected: one shape for each rank and buffer
        """
    )
    assert message(learned(dtype="bool")) == exactly(
        """
        dtype: booleans cannot tell elements apart
        got: bool
        expected: tensors of int8 or wider for the loader
        """
    )
    mixed = {"q": np.zeros((4, 2), np.float16), "k": np.zeros((4, 2), np.float32)}
    assert message(learned(logical=mixed)) == exactly(
        """
        dtype: tensors of several element types need `dtype`, the type that the loader stores
        got: float16, float32
        expected: the narrowest type that the loader converts to, such as dtype='float16'
        """
    )
    assert message(lambda: sw.compare(packed, packed)) == exactly(
        """
        logical: comparing two loaders requires logical tensors and ranks
        got: none
        expected: logical={"q": (32, 16)}, ranks=range(4)
        """
    )
    with pytest.raises(KeyError) as raised:
        sw.learn(packed, logical={"q": (4, 2)}, ranks=1)
    assert raised.value.__notes__ == ["while the loader ran for rank 0 on tensors of test numbers"]
