"""Relayouts too large to run: smaller ones that are cut in the same way."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from kept_workers import KeptWorker
from sweeps import kept

import shardwright as sw
from bench.layers import RECIPES, STORES
from shardwright.codegen.checks.relayout_case import RelayoutCase
from shardwright.codegen.checks.report import Report
from shardwright.codegen.operations.verify import pool
from shardwright.codegen.operations.verify.pool import Runner
from shardwright.codegen.operations.verify.relayout import report_relayout
from shardwright.codegen.operations.verify.relayout_twin import twin
from shardwright.codegen.spec.relayout import RelayoutDescription

TENSORS = {"w": (151936, 8192)}


def vocabulary() -> sw.Relayout:
    """Rows that are padded on four devices, to rows that are not on eight others."""
    source = sw.Stored("tp=4", TENSORS, "w[{tp} sized(38016)]", "bfloat16")
    other = f'<["tp"=8], device_ids={list(range(4, 12))}>'
    return sw.Relayout(source, sw.Stored(other, TENSORS, "w[{tp}]", "bfloat16"))


def test_cuts_fall_where_they_did() -> None:
    smaller = twin(vocabulary())
    assert smaller is not None
    sides = smaller.source, smaller.target
    assert [side.tensors for side in sides] == [{"w": (18992, 2)}] * 2
    assert [str(side.buffers["w"]) for side in sides] == ['w[{"tp"} sized(4752)]', 'w[{"tp"}]']
    rows = {"a": (3, 5), "b": (3, 5)}
    one = sw.Stored("x=2", rows, "stack(0, a[{}, {x}], b[{}, {x}])", "int8")
    assert (
        twin(sw.Relayout(one, sw.Stored("x=2", rows, "stack(1, a[{x}], b[{x}])", "int8"))) is None
    )


@pytest.mark.parametrize("name", kept(RECIPES, "DeepSeek V3"))
def test_layers_have_twins(name: str) -> None:
    recipe = RECIPES[name]
    for by in STORES:
        smaller = twin(sw.Relayout(recipe.stored(by, 8), recipe.stored("vllm", 4)))
        assert smaller is not None
        assert sum(math.prod(shape) for shape in smaller.source.tensors.values()) < 300_000


def reported(relayout: sw.Relayout, folder: Path, fault: str = "") -> Report:
    """The verdict on its module of Triton, with a text after it."""
    description = RelayoutDescription.of(relayout, "rows", ("triton_gpu",))
    sw.emit(relayout, ("triton_gpu",)).write(folder / "rows")
    module = folder / "rows" / "triton_gpu.py"
    module.write_text(module.read_text() + fault)
    with Runner("triton_gpu", 12) as runner:
        return report_relayout(description, "triton_gpu", module, runner)


@pytest.mark.slow
def test_a_vocabulary_is_verified_on_its_twin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "Worker", KeptWorker)
    report = reported(vocabulary(), tmp_path)
    assert (report.verdict, report.detail) == ("ok", "on a twin: w 18992x2")
    report = reported(vocabulary(), tmp_path, "# by hand")
    assert report.verdict == "failed"
    assert report.detail == "too large to run, and differs from a new emission"


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", RECIPES)
def test_layers_are_right(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From Hugging Face and Megatron to vLLM, as modules of Triton move them."""
    monkeypatch.setattr(pool, "Worker", KeptWorker)
    recipe = RECIPES[name]
    for by in STORES[:2]:
        smaller = twin(sw.Relayout(recipe.stored(by, 8), recipe.stored("vllm", 4)))
        assert smaller is not None
        module = sw.emit(smaller, ("triton_gpu",)).write(tmp_path / by)[0].parent / "triton_gpu.py"
        with Runner("triton_gpu", 8) as runner:
            report = runner.run(RelayoutCase.of(smaller, by, "triton_gpu", module))
        assert report.verdict == "ok", report.detail
