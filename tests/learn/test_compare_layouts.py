"""Two layouts, or a loader and a layout: every place that differs is named, and no other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import ok, run
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from layouts import buffers, meshes, numbers_of
from strategies import exactly, message

import shardwright as sw
from shardwright.ir.parts import Stack
from shardwright.ir.stored import Stored

HEADS = {"q": (32, 16), "k": (8, 16), "v": (8, 16)}
SERVER = sw.Stored(
    "tp=4", HEADS, {"qkv": sw.stack(0, q="tp", k='"tp":(1)2', v='"tp":(1)2')}, "bfloat16"
)


def said(found: Any, expected: sw.Stored = SERVER) -> list[str]:
    return str(sw.compare(found, expected)).splitlines()


def test_kv_heads_on_the_wrong_ranks() -> None:
    """sgl-project/sglang#23744: kv heads 0, 1, 0, 1 where ranks need 0, 0, 1, 1."""
    wrong = sw.stack(0, q="tp", k='"tp":(2)2', v='"tp":(2)2')
    assert said(sw.Stored("tp=4", HEADS, {"qkv": wrong}, "bfloat16")) == [
        "k rows 0 to 4 of rank 1 hold k rows 4 to 8 (qkv rows 8 to 12)",
        "v rows 0 to 4 of rank 1 hold v rows 4 to 8 (qkv rows 12 to 16)",
        "k rows 4 to 8 of rank 2 hold k rows 0 to 4 (qkv rows 8 to 12)",
        "v rows 4 to 8 of rank 2 hold v rows 0 to 4 (qkv rows 12 to 16)",
    ]


def loaded(rank: int, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A loader as servers have it, right for these heads."""
    q, k, v = (tensors[name] for name in "qkv")
    head = slice(4 * (rank // 2), 4 * (rank // 2) + 4)
    return {"qkv": np.concatenate([q[8 * rank : 8 * rank + 8], k[head], v[head]])}


def test_a_loader() -> None:
    """A right one gives no alarm, of which each fault is named."""

    def rolled(rank: int, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {"qkv": np.roll(loaded(rank, tensors)["qkv"], 4, axis=0)}

    def scaled(rank: int, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        held = loaded(rank, tensors)["qkv"]
        held[8:12] *= 2
        return {"qkv": held}

    def reversed_columns(rank: int, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        held = loaded(rank, tensors)["qkv"]
        held[12:] = held[12:, ::-1]
        return {"qkv": held}

    def short(rank: int, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        held = loaded(rank, tensors)["qkv"]
        held[15] = 0
        return {"qkv": held[:, :12] if rank == 2 else held}

    assert sw.compare(loaded, SERVER).same
    assert str(sw.compare(loaded, SERVER)) == "no difference"
    assert said(rolled)[:3] == [
        "q rows 0 to 4 of rank 0 hold v rows 0 to 4 (qkv rows 0 to 4)",
        "q rows 4 to 8 of rank 0 hold q rows 0 to 4 (qkv rows 4 to 8)",
        "k rows 0 to 4 of rank 0 hold q rows 4 to 8 (qkv rows 8 to 12)",
    ]
    assert said(scaled)[3] == (
        "k rows 4 to 8 of rank 3 hold k rows 4 to 8 times 2 (qkv rows 8 to 12)"
    )
    assert said(reversed_columns)[0] == (
        "v columns 0 to 16 of rank 0 hold the same in a different order: "
        "15, 14, 13, 12, 11, 10, 9, 8, … (qkv rows 12 to 16)"
    )
    assert said(short)[:1] == ["v rows 3 to 4 of rank 0 hold padding (qkv rows 15 to 16)"]
    assert said(short)[2] == "qkv of rank 2 has shape (16, 12), expected (16, 16)"


def test_a_large_vocabulary() -> None:
    """151,936 rows padded by another multiple: shapes and rows, without walking the elements."""
    shape = {"w": (151_936, 8192)}
    trainer, server = (
        sw.Stored("tp=4", shape, {"w": sw.cut(0, "tp", size=size)}, "bfloat16")
        for size in (37_984, 38_016)
    )
    assert said(trainer, server)[:2] == [
        "w of rank 0 has shape (37984, 8192), expected (38016, 8192)",
        "w of rank 1 has shape (37984, 8192), expected (38016, 8192)",
    ]
    assert said(trainer, server)[2] == (
        "w rows 38016 to 76000 of rank 1 hold w rows 37984 to 75968 (w rows 0 to 37984)"
    )


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Stored, Stored]:
    """Two layouts of a buffer whose shapes are alike: parts of one are in the order of the other,
    or owners are reversed."""
    mesh = draw(meshes())
    shapes, layout = draw(buffers(mesh))
    assume(len({*mesh.device_ids}) > 1 and isinstance(layout, Stack))
    assert isinstance(layout, Stack)
    parts = draw(st.sampled_from([layout.parts, layout.parts[::-1]]))
    other = Stack(layout.dim, parts, layout.cut)
    order = draw(st.sampled_from([mesh.device_ids, mesh.device_ids[::-1]]))
    rest = {name: f"{name}[]" for name in shapes}
    return (
        Stored(mesh, shapes, {"it": layout, **rest}, "int8"),
        Stored(sw.Mesh(mesh.axes, order), shapes, {"it": other, **rest}, "int8"),
    )


@settings(max_examples=15, deadline=None)
@given(pairs())
def test_random_layouts(pair: tuple[Stored, Stored]) -> None:
    check_pair(pair)


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(pairs())
def test_more_random_layouts(pair: tuple[Stored, Stored]) -> None:
    check_pair(pair)


def check_pair(pair: tuple[Stored, Stored]) -> None:
    """What differs by the oracle lies in the ranges that are named, which begin and end with it,
    whether both are layouts or one is a loader."""
    found, expected = pair
    arrays = [numbers_of(each, "it") for each in pair]
    dim = expected.bound["it"].dim
    for comparison in (
        sw.compare(found, expected),
        sw.compare(lambda rank, tensors: found.shards(tensors)[rank], expected),
    ):
        ranges: dict[int, list[range]] = {}
        for each in comparison.differences:
            assert each.buffer == "it"
            if each.range is not None:
                ranges.setdefault(each.device, []).append(range(*each.range))
        for device, array in arrays[0].items():
            other = arrays[1][device]
            if array.shape != other.shape:
                assert any(d.range is None and d.device == device for d in comparison.differences)
                continue
            axes = tuple(axis for axis in range(array.ndim) if axis != dim)
            differ = np.flatnonzero((array != other).any(axis=axes))
            named = {row for each in ranges.get(device, []) for row in each}
            assert {*differ.tolist()} <= named
            ends = {end for each in ranges.get(device, []) for end in (each[0], each[-1])}
            assert ends <= {*differ.tolist()}


def test_refused() -> None:
    other = sw.Stored("tp=4", {**HEADS, "k": (4, 16)}, "stack(0, q, k, v)", "bfloat16")
    elsewhere = sw.Stored("tp=2", HEADS, "stack(0, q, k, v)", "bfloat16")
    assert message(lambda: sw.compare(other, SERVER)) == exactly(
        """
        found: both layouts must have the same tensors
        got: k (4, 16)
        expected: k (8, 16)
        """
    )
    assert message(lambda: sw.compare(elsewhere, SERVER)) == exactly(
        """
        found: both sides must be on the same devices
        got: 0, 1
        expected: 0, 1, 2, 3
        """
    )
    assert message(lambda: sw.compare(lambda *_: {}, SERVER)) == exactly(
        """
        found: both sides must have the same buffers
        got: none
        expected: qkv
        """
    )


def test_the_command(tmp_path: Path) -> None:
    """Exit code 1 and the ranges where layouts differ; the bytes between them on request."""
    wrong = sw.stack(0, q="tp", k='"tp":(2)2', v='"tp":(1)2')
    (tmp_path / "server.toml").write_text(str(SERVER))
    (tmp_path / "wrong.toml").write_text(str(sw.Stored("tp=4", HEADS, {"qkv": wrong}, "bfloat16")))
    server, other = (str(tmp_path / name) for name in ("server.toml", "wrong.toml"))
    assert ok("compare", server, server) == "no difference\n"
    assert ok("compare", server, server, "--quiet") == ""
    assert ok("compare", other, server, "--bytes").startswith(
        "received by the busiest device 128 bytes"
    )
    done = run("compare", other, server)
    assert done.code == 1
    assert "k rows 0 to 4 of rank 1 hold k rows 4 to 8 (qkv rows 8 to 12)" in done.out
    (tmp_path / "wrong.toml").write_text("mesh = 'tp=4'")
    assert message(lambda: Stored.read(other)) == exactly(
        f"""
        {other}: a stored layout must have the keys mesh, dtype, tensors and buffers
        got: mesh
        expected: mesh, dtype, and the tables tensors and buffers, as str(sw.Stored(…)) has them
        """
    )
    assert message(lambda: Stored.read(tmp_path / "none.toml")).splitlines()[1:2] == [
        "got: No such file or directory"
    ]
    assert message(lambda: Stored.parse("mesh = ")).startswith("text: the text must be TOML")
