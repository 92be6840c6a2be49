"""What notebooks show: one line as text, and a picture that loads nothing."""

from __future__ import annotations

import base64
import inspect
import re
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import shardwright as sw

MESH = sw.Mesh({"x": 2, "y": 3})
RESHARD = sw.Reshard((6, 6), "int8", "P('x', 'y')", "P('y', 'x')", mesh=MESH)
STEPPED = sw.Reshard((24, 6), "int8", "P('x', 'y')", "P('y', 'x')", mesh=MESH)
MATMUL = sw.Matmul("bf16", ((16, 8), "P('x', None)"), ((8, 6), "P(None, 'y')"), "P()", mesh=MESH)
QKV = {"q": (12, 4), "k": (6, 4)}
PACKED = sw.Stored("tp=3", QKV, {"qkv": 'stack(0, q[{"tp"}], k[{"tp"}])'}, "int8")
WHOLE = sw.Stored("tp=2", QKV, {"qkv": "stack(0, q, k)"}, "int8")


def load(rank: int, tensors: dict[str, Any]) -> dict[str, Any]:
    return {"w": np.split(tensors["w"], 2)[rank]}


def load_sized(rank: int, tensors: dict[str, Any], n: int) -> dict[str, Any]:
    return load(rank, tensors)


def shown() -> list[Any]:
    plan, relayout = sw.plan(RESHARD), sw.Relayout(PACKED, WHOLE)
    return [
        *(plan, sw.emit(plan), sw.plan(STEPPED, topology="v5e:2x3", strategy="basis")),
        *(sw.plan(MATMUL), sw.emit(sw.plan(MATMUL), backends=("jax_xla",))),
        *(PACKED, relayout, sw.plan(relayout), sw.emit(relayout)),
        sw.learn(load, logical={"w": (4, 4)}, ranks=2),
        sw.learn_sizes(
            load_sized,
            logical=lambda n: {"w": (n, 4)},
            ranks=lambda n: 2,
            sizes=[{"n": 4}, {"n": 8}],
            check={"n": 12},
        ),
    ]


def models() -> list[Any]:
    """A model, its sync, plan and bundle."""
    tensors = sw.Model({"layers.{0..29}.w": (4, 4)}, "int8")
    weights = sw.sync(tensors, sw.Rules("a=2", "_[{a}]"), sw.Rules("b=2", "_[{}, {b}]"))
    return [tensors, weights, weights.plan, sw.emit(weights.plan)]


def program() -> sw.Partitioned:
    jax = pytest.importorskip("jax")
    x = jax.ShapeDtypeStruct((6, 6), "float32")
    shardings = {"in_shardings": ("P('x')", "P(None, 'y')"), "out_shardings": "P()"}
    return sw.partition(lambda a, b: a @ b, x, x, mesh=MESH, **shardings)


def others() -> list[Any]:
    """Objects of the public classes that no picture shows."""
    report = sw.Report("m", "jax_xla", 6, "failed", "device 0\nis wrong")
    axis = sw.AxisRef("x")
    return [
        *(axis, MESH, MESH.sharding("P('x')"), MESH.sharding("P('x')").dims[0], RESHARD, MATMUL),
        *(sw.Rules("a=2", {"a": "_", "*": "_[{a}]"}), sw.compare(PACKED, PACKED), report),
        *(sw.emit(sw.plan(RESHARD)).description("m"), sw.Problem("m", "is gone", "-a\n+b")),
        sw.InputError("a mesh must have devices", argument="mesh", got="x=0", expected="x=2"),
    ]


def test_every_public_class_has_one_line() -> None:
    """Plans, bundles, programs, models and layouts are shown as pictures or tables too."""
    drawn = [*shown(), *models(), program(), sw.emit(program())]
    every = {each for each in (getattr(sw, name) for name in sw.__all__) if inspect.isclass(each)}
    known = {type(each) for each in (*drawn, *others())}
    assert every <= known, every - known
    for value in (*drawn, *others()):
        assert "\n" not in repr(value)
    for value in drawn:
        assert len(repr(value)) < 400, repr(value)
        ElementTree.fromstring(value._repr_html_())
    assert not any("_repr_html_" in dir(type(value)) for value in others())


def test_models_are_tables() -> None:
    tensors, weights, plan, bundle = models()
    assert repr(tensors) == "<Model: 30 tensors, 480 bytes>"
    line = "<ModelPlan: 30 tensors of 1 kind from 2 devices to 2, at most 120 bytes to a device>"
    assert repr(plan) == line
    assert repr(weights) == f"<Sync: {line}>"
    assert repr(bundle) == f"<ModelBundle for triton_gpu, jax_xla: {line}>"
    assert repr(sw.Rules("a=2", "_")) == '<Rules: 1 rule on <["a"=2]>>'
    table = ElementTree.fromstring(sw.html(tensors))
    assert len(table.findall(".//tr")) == 21
    assert table.findtext("p") == "and 10 more"
    for value in (weights, plan, bundle):
        rows = ElementTree.fromstring(sw.html(value)).findall(".//tr")
        assert [each.text for each in rows[1].iter("code")][:3] == ["layers.0.w", "30", "int8 4x4"]


def picture(text: str) -> str:
    """The picture in the HTML; one that is no XML raises an error."""
    (data,) = re.findall(r'src="data:image/svg\+xml;base64,([^"]*)"', text)
    found = base64.b64decode(data).decode()
    ElementTree.fromstring(found)
    return found


def test_each_has_one_line_and_a_picture_or_a_table() -> None:
    for value in shown():
        line, text = repr(value), value._repr_html_()
        assert "\n" not in line
        assert len(line) < 400, line
        assert line.startswith(f"<{type(value).__name__}")
        assert "http" not in text
        assert ("<table>" in text) != ("data:image/svg+xml" in text)
        ElementTree.fromstring(text)


def test_the_picture_is_that_of_show() -> None:
    plan = sw.plan(RESHARD)
    assert picture(sw.html(plan)) == sw.svg(plan)
    assert picture(sw.html(sw.emit(plan))) == sw.svg(plan)


def test_the_bytes_of_a_relayout_stand_in_its_picture() -> None:
    """Rows are senders. Rank 0 of three has 4 rows of q and 2 of k, 4 bytes each."""
    plan = sw.plan(sw.Relayout(PACKED, WHOLE))
    said = re.findall(r">([^<>]+)</tspan>", picture(sw.html(plan)))
    assert said[:6] == ["itself", "24 B", "24 B", "itself", "24 B", "24 B"]


def test_a_program() -> None:
    jax = pytest.importorskip("jax")
    x = jax.ShapeDtypeStruct((6, 6), "float32")
    shardings = {"in_shardings": ("P('x')", "P(None, 'y')"), "out_shardings": "P()"}
    program = sw.partition(lambda a, b: a @ b, x, x, mesh=MESH, **shardings)
    assert repr(program).startswith("<Partitioned: 2 arguments, ")
    assert len(repr(program)) < 120
    assert "dot_general" in picture(sw.html(program)) or "<svg" in picture(sw.html(program))
    # Random keys cannot be padded.
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), 5))
    refused = sw.partition(lambda keys: keys[:2], keys, mesh=MESH, in_shardings=("P('x')",))
    assert "<pre>" in sw.html(refused)


def test_what_has_no_picture() -> None:
    with pytest.raises(sw.InputError, match="got: int"):
        sw.html(3)  # type: ignore[arg-type]
