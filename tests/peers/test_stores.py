"""Layouts learned from the code of vLLM, Megatron-core and transformers are those of
`bench/layers.py`. `make peers` installs them and learns; what was learned stays in `learned/`."""

from __future__ import annotations

import tomllib

import pytest
from places import ROOT
from stores import (
    CASES,
    FOLDER,
    PACKAGES,
    REFUSED,
    TRAINERS,
    expected,
    learn,
    learned,
    loader,
    write,
)
from sweeps import kept, sampled

import shardwright as sw


@pytest.mark.parametrize(("store", "name", "devices"), CASES)
def test_learned_again(store: str, name: str, devices: int, request: pytest.FixtureRequest) -> None:
    """The loader stores every element where the layout says, and what is learned is the golden."""
    package = PACKAGES[store]
    pytest.importorskip(package, reason=f"{package} is not installed: `make peers` runs this")
    found = learn(store, name, devices)
    assert found.findings == ()
    assert sw.compare(found, expected(store, name, devices)).same
    if request.config.getoption("--update-golden"):
        write(store, name, devices, found)
    assert found.stored.buffers == learned(store, name, devices).buffers


@pytest.mark.parametrize(("name", "devices"), REFUSED)
def test_what_vllm_refuses(name: str, devices: int) -> None:
    """The cells of the table that no loader gives."""
    pytest.importorskip("vllm", reason="vllm is not installed: `make peers` runs this")
    kind, text = REFUSED[name, devices]
    with pytest.raises(kind, match=text):
        loader("vllm")(name, 0, devices, {})


@pytest.mark.parametrize(
    "case",
    sampled(CASES, ("vllm", "Llama 3", 4), ("megatron", "Llama 3", 8), ("vllm", "GPT-OSS", 2)),
)
def test_what_was_learned(case: tuple[str, str, int]) -> None:
    """It has every element where `bench/layers.py` has it."""
    assert sw.compare(learned(*case), expected(*case)).same


CELLS = [
    (source, target)
    for source in CASES
    for target in CASES
    if source[2] == TRAINERS and target[0] == "vllm" and source[1] == target[1]
]


def test_how_many_cells() -> None:
    assert f"{len(CELLS)} of the 180 cells" in (ROOT / "docs/learning.md").read_text()


@pytest.mark.parametrize("cell", kept(CELLS, *CELLS[::15]))
def test_cell(cell: tuple[tuple[str, str, int], tuple[str, str, int]]) -> None:
    """From layouts that were learned on both sides, devices receive what they do in the table."""
    source, target = cell
    pairs = [sw.plan(sw.Relayout(side(*source), side(*target))) for side in (learned, expected)]
    figures = [(each.received_max, each.total, each.tensors) for each in pairs]
    assert figures[0] == figures[1]


def test_no_more_than_the_cases() -> None:
    """Nothing is kept that no loader gives."""
    for store in PACKAGES:
        said = tomllib.loads((FOLDER / f"{store}.toml").read_text())
        found = {(store, name, int(n)) for name in said if name != "versions" for n in said[name]}
        assert found == {case for case in CASES if case[0] == store}
