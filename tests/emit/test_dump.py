"""What SHARDWRIGHT_DUMP prints of a reshard."""

from __future__ import annotations

import json

import pytest

import shardwright as sw
from shardwright.ir.dump import VARIABLE


def emitted() -> None:
    mesh = sw.Mesh({"x": 2})
    source, target = mesh.sharding('[{"x"}, {}]'), mesh.sharding('[{}, {"x"}]')
    sw.emit(sw.Reshard((4, 6), "float32", source, target), ("jax_xla",)).files("turned")


def test_a_plan_and_the_contexts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(VARIABLE, "plan,context")
    emitted()
    said = capsys.readouterr().err
    plan, *contexts = said.split("after context:\n")
    assert json.loads(plan.removeprefix("after plan:\n"))["strategy"] == "direct"
    templates = [each.partition("\n")[0] for each in contexts]
    assert "shape='(4, 6)'" in contexts[templates.index("common/jax_module.py.jinja")]


def test_nothing_is_printed_unless_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    emitted()
    assert capsys.readouterr().err == ""


def test_an_unknown_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "plans")
    with pytest.raises(sw.InputError) as raised:
        emitted()
    assert str(raised.value) == (
        "SHARDWRIGHT_DUMP: no such stage; did you mean plan?\ngot: plans\n"
        "expected: one of propagate, edges, even, pad, shift, permute, once, plan, transpose, "
        "tidy, fold, join, context"
    )
