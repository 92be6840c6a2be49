"""The passes of a program, the dump after one, and the options of its emission."""

from __future__ import annotations

import pytest

import shardwright as sw
from shardwright.codegen.partition.passes import PASSES
from shardwright.ir.dump import PROGRAM, VARIABLE

jax = pytest.importorskip("jax")

PROPAGATED = """\
after propagate:
@mesh = <["d"=2, "t"=2]>
program layers(%x: f32[8,16] [{"d"}, {}], %w: f32[16,16] [{}, {"t"}]) -> ([{"d", ?}, {"t", ?}]) {
"""
PLANNED = """\
after plan:
local program layers {
  argument %0: x f32[4, 16] [{"d"}, {}]
  argument %1: w f32[16, 8] [{}, {"t"}]
  %2: x f32[4, 8] [{"d"}, {"t"}] = slice %0 over "t"
  %7: scan f32[4, 8] [{"d"}, {"t"}] = scan %1, %2
    {
      argument %3: w_2 f32[16, 8] [{}, {"t"}]
      argument %4: x_2 f32[4, 8] [{"d"}, {"t"}]
      %5: x_2 f32[4, 16] [{"d"}, {}] = all_gather %4 over "t", 128 B
      %6: dot_general f32[4, 8] [{"d"}, {"t"}] = dot_general %5, %3
      return %6
    }
  return %7
}

"""


def asked() -> sw.Partitioned:
    def layers(x, w):  # type: ignore[no-untyped-def]
        return jax.lax.scan(lambda x, _: (x @ w, None), x, None, length=3)[0]

    mesh = sw.Mesh({"d": 2, "t": 2})
    shapes = (jax.ShapeDtypeStruct((8, 16), "float32"), jax.ShapeDtypeStruct((16, 16), "float32"))
    return sw.partition(layers, *shapes, mesh=mesh, in_shardings=('[{"d"}, {}]', '[{}, {"t"}]'))


def dumped(names: str, patch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    patch.setenv(VARIABLE, names)
    assert asked().local.body.steps
    return capsys.readouterr().err


def test_a_dump(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert dumped("propagate", monkeypatch, capsys).startswith(PROPAGATED)
    assert dumped("plan", monkeypatch, capsys) == PLANNED


def test_every_pass(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    names = [each.name for each in PASSES]
    assert tuple(names) == PROGRAM
    said = dumped(",".join(names), monkeypatch, capsys)
    assert [line for line in said.splitlines() if line.startswith("after ")] == [
        f"after {name}:" for name in names
    ]
    assert dumped("", monkeypatch, capsys) == ""


def test_an_unknown_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "plon")
    with pytest.raises(sw.InputError) as raised:
        _ = asked().local
    assert str(raised.value) == (
        "SHARDWRIGHT_DUMP: no such stage; did you mean plan?\ngot: plon\n"
        "expected: one of propagate, edges, even, pad, shift, permute, once, plan, transpose, "
        "tidy, fold, join, context"
    )


def test_options_that_programs_lack() -> None:
    with pytest.raises(sw.InputError) as raised:
        sw.emit(asked(), backends=("triton_gpu",))  # type: ignore[call-overload]
    assert str(raised.value) == (
        "backends: a partitioned function takes no backends\ngot: ('triton_gpu',)\n"
        "expected: no backends, or a Reshard"
    )
