"""A kernel's statements stand in its template: of all that Python hands over, a value is an
expression that does nothing but compute, a name, a number, or a comment."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import Any

import pytest
from lone import alone, alone_in_form
from places import ROOT

from shardwright.codegen.backends.pallas_tpu import kernel_text, uniform
from shardwright.codegen.backends.pallas_tpu.kernel_forms.windows import WindowsText
from shardwright.codegen.backends.pallas_tpu.routed.strategy import ForwardingForm
from shardwright.codegen.backends.pallas_tpu.strategy import choices
from shardwright.codegen.moves import plan
from shardwright.codegen.operations.emit.modules import parts
from shardwright.codegen.text.templates import render
from shardwright.ir import Mesh, Reshard
from shardwright.ir.plan import direct_of

CONDITIONS = 8
"""A template with what it includes has no more."""

COMMENTS = (
    *("source", "target", "tile_bytes", "shard_bytes", "move_bytes", "whole_bytes"),
    *("slot_bytes", "slots_bytes"),
    *("widest_tile", "outgoing_tiles", "incoming_tiles", "source_extents", "target_extents"),
    *("about_slot", "about_offsets", "about_moves"),
)
"""Fields that are words."""

COMPUTE = {"div", "rem", "minimum", "maximum", "floor_to", "multiple", "pl.ds", "slice"}
"""The functions that expressions call: of numbers, and of ranges of these."""

TEMPLATES = ROOT / "templates" / "pallas_tpu"
PRINTING = (kernel_text, uniform)
"""The modules that render templates."""

FOUR, EIGHT, MANY = Mesh({"x": 4}), Mesh({"x": 2, "y": 4}), Mesh({"x": 32})
OTHERS, FOURS = Mesh({"x": 4}, range(4, 8)), Mesh({"x": 2, "y": 2})
ROWS = '[{"x", "y"}, {}]'


def between(shape: tuple[int, ...], source: str, target: str, mesh: Mesh) -> Reshard:
    return Reshard(shape, "float32", mesh.sharding(source), mesh.sharding(target))


CASES = {
    "each sends to all": between((64, 512), '[{"x"}, {}]', '[{}, {"x"}]', FOUR),
    "some hold a tile": between((1024, 1024), '[{"x"}, {"y"}]', '[{"y"}, {"x"}]', EIGHT),
    "whole shards": between((1024, 512), '[{"x", "y"}, {}]', '[{"y", "x"}, {}]', EIGHT),
    "nothing is sent": between((512, 1024), '[{"x"}, {}]', '[{"x"}, {}]', FOUR),
    "replicas share": between((1024, 512), '[{"y"}, {}]', '[{}, {"y"}]', EIGHT),
    "a slice": between((1024, 512), "[{}, {}]", '[{"x"}, {}]', EIGHT),
    "thin": between((160, 160), '[{"x", "y"}, {}]', '[{}, {"x", "y"}]', EIGHT),
    "thin, replicas share": between((160, 160), '[{"y"}, {}]', '[{}, {"y"}]', EIGHT),
    "thin, to many": between((320, 320), '[{"x"}, {}]', '[{}, {"x"}]', MANY),
    "thin, to others": Reshard(
        (160, 160), "float32", FOUR.sharding('[{"x"}, {}]'), OTHERS.sharding('[{}, {"x"}]')
    ),
    "anywhere": between((1025, 2047), '[{"x"}, {"y"}]', '[{"y"}, {"x"}]', EIGHT),
    "anywhere, a vector": between((5001,), '[{"x"}]', '[{"y"}]', EIGHT),
    "anywhere, nested": Reshard(
        (201, 300), "float32", FOURS.sharding(ROWS), FOURS.sharding(ROWS), source_split="nested"
    ),
    "more than are written out": between((1024, 4096), '[{"x"}, {}]', '[{}, {"x"}]', MANY),
}
FORWARDED = {
    "slots and tiles": between((512, 1024), ROWS, '[{}, {"x", "y"}]', EIGHT),
    "some send": between((129, 130), '[{"x"}, {"y"}]', '[{"y"}, {"x"}]', EIGHT),
    "shards": between((64, 128), '[{"x"}, {}]', "[{}, {}]", FOUR),
    "a vector": between((1 << 16,), '[{"x", "y"}]', '[{"y", "x"}]', EIGHT),
    "large": between((8192, 4096), ROWS, '[{}, {"x", "y"}]', EIGHT),
}
"""Over a v5e, in every form that forwards."""


@cache
def contexts() -> list[tuple[str, Any]]:
    """The name of the template and the context of each kernel."""
    found: list[tuple[str, Any]] = []

    def kept(template: str, context: object) -> str:
        found.append((template, context))
        return render(template, context)

    with pytest.MonkeyPatch.context() as patch:
        for module in PRINTING:
            patch.setattr(module, "render", kept)
        for reshard in CASES.values():
            alone(plan(reshard, "direct"), "pallas_tpu")
        parts(plan(CASES["each sends to all"]), "pallas_tpu", "", features=("start",))
        for reshard in FORWARDED.values():
            topology = "v5e:2x2" if reshard.source.mesh.size == 4 else "v5e:2x4"
            made = direct_of(plan(reshard, "direct", topology=topology))
            for choice in choices(made):
                if isinstance(choice.form, ForwardingForm):
                    alone_in_form(made, choice)
    return found


def breaches(name: str, value: object) -> Iterator[str]:
    """The values, of all that a context holds, that are more than they may be."""
    if is_dataclass(value):
        for field in fields(value):
            yield from breaches(field.name, getattr(value, field.name))
    elif isinstance(value, tuple):
        for each in value:
            yield from breaches(name, each)
    elif isinstance(value, str) and value and not is_plain(name, value):
        yield f"{name}={value}"
    elif not isinstance(value, str | bool | int | None):
        yield f"{name}: {type(value).__name__}"


def is_plain(name: str, text: str) -> bool:
    """Whether a text is a comment, or an expression without control flow that calls nothing but
    functions of numbers."""
    if name in COMMENTS:
        return "\n" not in text
    try:
        nodes = list(ast.walk(ast.parse(text, mode="eval")))
    except SyntaxError:
        return False
    calls = (node.func for node in nodes if isinstance(node, ast.Call))
    flow = ast.IfExp | ast.comprehension | ast.Lambda | ast.NamedExpr | ast.BoolOp
    return all(ast.unparse(f) in COMPUTE for f in calls) and not any(
        isinstance(node, flow) for node in nodes
    )


def test_contexts_hold_no_statement() -> None:
    """And each optional part of the templates is in one of them."""
    found = contexts()
    assert [each for _, context in found for each in breaches("", context)] == []
    uniforms = [context for _, context in found if isinstance(context, uniform.UniformText)]
    assert {bool(context.rounds.listed) for context in uniforms} == {True, False}
    assert {template for template, _ in found} == {
        f"pallas_tpu/{each}.py.jinja"
        for each in (
            *("uniform", "started", "kept", "direct", "thin", "slots", "windows"),
            *("routed", "gathered", "relayed"),
        )
    }
    forwards = [context.forward for _, context in found if hasattr(context, "forward")]
    assert {each.shared for each in forwards} == {each.chunks > 1 for each in forwards}
    assert {bool(each.lines) for each in forwards} == {True, False}
    moving = [context.moving for _, context in found if hasattr(context, "moving")]
    assert {(each.sends, each.keeps) for each in moving} >= {
        (True, True),
        (True, False),
        (False, True),
    }
    windows = [each for _, each in found if isinstance(each, WindowsText)]
    assert {each.apart for each in windows} == {True, False}
    assert any(each.nested for each in windows)


@pytest.mark.parametrize(
    ("part", "planted"),
    [
        ("in_x", "(0, wait_for(y, sent))"),
        ("sender", "sender if me else receiver"),
        ("in_y", "(0, 0)\n        barrier()"),
    ],
)
def test_a_statement_in_a_context_is_found(part: str, planted: str) -> None:
    _, first = next(each for each in contexts() if each[0].endswith("uniform.py.jinja"))
    context = replace(first, **{part: planted})
    assert [each.partition("=")[0] for each in breaches("", context)] == [part]


@pytest.mark.parametrize("path", sorted(TEMPLATES.glob("*.jinja")), ids=lambda path: path.name)
def test_templates_choose_little(path: Any) -> None:
    """With what each imports and includes."""
    text = path.read_text()
    for other in re.findall(r'(?:from|include) "pallas_tpu/(.*?)"', text):
        text += (TEMPLATES / other).read_text()
    assert len(re.findall(r"\{[%{][^%}]*\b(?:if|elif) ", text)) <= CONDITIONS
