"""Large tensors, learned by a sample and checked in pieces: as small ones are, whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from strategies import message
from test_learn import HEADS, LOADERS, cases, check_learned, packed

import shardwright as sw
from shardwright.codegen.learn import pieces, sampled
from shardwright.codegen.learn.again import learn_again
from shardwright.codegen.spec.references import loader

Arrays = dict[str, Any]


@pytest.fixture
def everything_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read few places of each buffer, and compare few rows at a time."""
    monkeypatch.setattr(sampled, "LARGE", 0)
    monkeypatch.setattr(sampled, "SMALL", 0)
    monkeypatch.setattr(sampled, "_FEW", 1)
    monkeypatch.setattr(pieces, "PIECE", 8)


@pytest.mark.parametrize(
    ("load", "logical", "ranks", "expected"), LOADERS, ids=[row[0].__name__ for row in LOADERS]
)
@pytest.mark.usefixtures("everything_is_large")
def test_the_simplest_layout(load: Any, logical: Any, ranks: Any, expected: list[str]) -> None:
    """A sample gives the layout that all elements give."""
    learned = sw.learn(load, logical=logical, ranks=ranks)
    assert learned.sampled
    assert learned.findings == ()
    assert [f"{name} = {each}" for name, each in learned.stored.buffers.items()] == expected
    assert sw.compare(load, learned, logical=logical, ranks=ranks).same


@pytest.mark.slow
@pytest.mark.usefixtures("everything_is_large")
@settings(max_examples=40, deadline=None)
@given(cases)
def test_random_layouts(case: Any) -> None:
    check_learned(case)


@pytest.mark.usefixtures("everything_is_large")
def test_what_no_sample_shows() -> None:
    """One element elsewhere, or scaled: no place of the sample has it, the check in pieces finds
    it, and the buffer has no layout."""

    def load(rank: int, tensors: Arrays) -> Arrays:
        w = tensors["w"][32 * rank : 32 * rank + 32].copy()
        v = tensors["v"][32 * rank : 32 * rank + 32].copy()
        if rank == 1:
            w[17, 13] = w[17, 12]
            v[20, 9] *= 2
        return {"w": w, "v": v, "u": tensors["u"], "s": tensors["s"] * 3}

    logical = {"w": (64, 40), "v": (64, 40), "u": (8, 40), "s": (64,)}
    learned = sw.learn(load, logical=logical, ranks=2)
    assert learned.findings == (
        "s elements 0 to 64 of all ranks hold s elements 0 to 64 times 3, by a sample",
        'w rows 17 to 18 of rank 1 hold values that differ from w[{"rank"}]',
        'v rows 20 to 21 of rank 1 hold values that differ from v[{"rank"}]',
    )
    assert [*learned.stored.buffers] == ["u"]
    said = message(lambda: sw.compare(load, learned.stored, logical=logical)).splitlines()
    assert said[:2] == [
        "found: a large buffer can be compared only if it has a layout",
        "got: s elements 0 to 64 of all ranks hold s elements 0 to 64 times 3, by a sample",
    ]


@pytest.mark.usefixtures("everything_is_large")
def test_two_loaders() -> None:
    def rolled(rank: int, tensors: Arrays) -> Arrays:
        return packed((rank + 2) % 4 if rank % 2 else rank, tensors)

    compared = sw.compare(rolled, packed, logical=HEADS, ranks=4)
    assert str(compared).splitlines()[:2] == [
        "q rows 8 to 16 of rank 1 hold q rows 24 to 32 (qkv rows 0 to 8)",
        "k rows 0 to 4 of rank 1 hold k rows 4 to 8 (qkv rows 8 to 12)",
    ]
    assert sw.compare(packed, packed, logical=HEADS, ranks=4).same


@pytest.mark.usefixtures("everything_is_large")
def test_check_learns_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that moved are named, and a buffer that has no layout any more."""
    said = "import numpy as np\n\ndef load(r, t):\n    w, v = np.split(t['w'], 2), t['v'].copy()\n"
    (tmp_path / "large_one.py").write_text(f"{said}    return {{'w': w[r], 'v': v}}\n")
    more = "    v[3, 5] = v[3, 6]\n    return {'w': w[1 - r], 'v': v}\n"
    (tmp_path / "large_two.py").write_text(said + more)
    monkeypatch.syspath_prepend(tmp_path)
    load = loader("large_one:load", "load", str(tmp_path))
    text = str(sw.learn(load, logical={"w": (64, 40), "v": (8, 40)}, ranks=2))
    path = tmp_path / "it.toml"
    path.write_text(text)
    assert learn_again(path, str(tmp_path)).same
    path.write_text(text.replace("large_one", "large_two"))
    again = learn_again(path, str(tmp_path))
    assert str(again).splitlines() == [
        f"{path}: w rows 0 to 32 of rank 0 hold w rows 32 to 64 (w rows 0 to 32)",
        f"{path}: w rows 32 to 64 of rank 1 hold w rows 0 to 32 (w rows 0 to 32)",
        f"{path}: v rows 3 to 4 of rank 0 hold values that differ from v",
    ]


@pytest.mark.slow
def test_a_large_layer() -> None:
    """Of a real layer a few lines are kept: Qwen 3 8B's fused weights at TP 4, 25 million
    elements of q, k and v."""

    def load(rank: int, tensors: Arrays) -> Arrays:
        q, k, v = (np.split(tensors[name], 4)[rank] for name in "qkv")
        return {"qkv": np.concatenate([q, k, v])}

    logical = {"q": (4096, 4096), "k": (1024, 4096), "v": (1024, 4096)}
    learned = sw.learn(load, logical=logical, ranks="tp=4", dtype="bfloat16")
    assert str(learned.stored.buffers["qkv"]) == 'stack(0, q[{"tp"}], k[{"tp"}], v[{"tp"}])'
    kept = [line for each in learned.held.values() for line in each["qkv"].lines]  # type: ignore[union-attr]
    assert sum(held.size for _, held in kept) < 1_000_000
