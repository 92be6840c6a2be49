"""A kernel's statements stand in its template: of all that Python hands over, a value is an
expression that does nothing but compute, a name, a number, or a comment."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace

import jinja2.meta
import pytest
from gpu_cases import CASES, make
from places import ROOT
from sums import SHARED, in_two, placing, reduction, shared

import shardwright as sw
from shardwright.codegen.backends.matmul_facts import layout_of
from shardwright.codegen.backends.triton_gpu.kernel_text import Named, PullText, PushText
from shardwright.codegen.backends.triton_gpu.matmul.kernel import MatmulKernels
from shardwright.codegen.backends.triton_gpu.matmul.kernel_text import MultiplyText
from shardwright.codegen.backends.triton_gpu.matmul.tiles import tiles_of
from shardwright.codegen.backends.triton_gpu.phases import PullPhase, phases_of
from shardwright.codegen.backends.triton_gpu.pushed import PushKernel
from shardwright.codegen.moves import plan
from shardwright.codegen.moves.matmul.plan import plan_matmul
from shardwright.ir import Mesh
from shardwright.ir.matmul import SIDES

CONDITIONS = 8
"""A template with its frame has no more."""

COMMENTS = ("comment", "comments", "does", "operands")
"""Fields that are words."""

TEMPLATES = ROOT / "templates"
COMPUTE = {"min", "max", "float"}
"""The functions that expressions call."""


def phases() -> Iterator[PullPhase]:
    """Exchanges with kernels of each form: copies, also wide and in pieces, and reductions."""
    wide = make({"x": 2}, (2**17, 2**16), '[{"x"}, {}]', '[{}, {"x"}]', dtype="int8")
    reshards = [*CASES.values(), wide, *map(reduction, range(4)), *map(placing, range(4))]
    plans = [plan(reshard, "direct") for reshard in reshards]
    plans += [*map(in_two, SHARED.values()), *filter(None, map(shared, range(4)))]
    for made in plans:
        yield from phases_of(made)


def texts() -> Iterator[PullText]:
    """The contexts of kernels that pull."""
    yield from (phase.kernel.text for phase in phases())


def pushed() -> Iterator[PushText]:
    """And of those that push, where devices come in another order as well."""
    turned = Mesh({"x": 2, "y": 2}, [3, 1, 0, 2])
    ordered = make({"x": 2, "y": 2}, (6, 5), '[{"x"}, {}]', '[{}, {"y"}]', turned)
    for phase in (*phases(), *phases_of(plan(ordered, "direct"))):
        kernel = PushKernel.of(phase.kernel)
        if kernel is not None:
            yield kernel.text


MATMULS = (
    ("bfloat16", (64, 64, 64), ('[{"x"}, {}]', '[{}, {"x"}]', '[{}, {"x"}]')),
    ("float32", (20, 9, 7), ('[{}, {"x"}]', '[{"x"}, {}]', '[{"x"}, {}]')),
    ("int8", (5, 3, 2), ('[{"x"}, {}]', "[{}, {}]", '[{"x"}, {}]')),
    ("float16", (64, 64, 64), ('[{}, {}], unreduced=max{"x"}', "[{}, {}]", '[{}, {"x"}]')),
    ("float32", (8, 16, 8), ("[{}, {}]", '[{"x"}, {}]', '[{}, {}], unreduced=max{"x"}')),
)
"""Types, extents of i, j and k, and shardings."""


def kernels_of(dtype: str, extents: tuple[int, ...], shardings: tuple[str, ...]) -> MatmulKernels:
    """The kernels of a matmul over four devices."""
    (i, j, k), (lhs, rhs, out) = extents, shardings
    given = sw.Matmul(dtype, ((i, j), lhs), ((j, k), rhs), out, mesh=sw.Mesh({"x": 4}))
    product = plan_matmul(given, listed=0).chosen.multiplication
    layouts = {side: layout_of(given, side) for side in SIDES}
    return MatmulKernels(product, layouts, tiles_of(product, layouts))


def matmul_texts() -> list[MultiplyText]:
    """The contexts of matmuls: operands come, sums leave, both, or nothing."""
    return [kernels_of(*each).text for each in MATMULS]


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
    return all(isinstance(f, ast.Name) and f.id in COMPUTE for f in calls) and not any(
        isinstance(node, flow) for node in nodes
    )


def test_contexts_hold_no_statement() -> None:
    """And each optional part of the templates is in one of them."""
    found = list(texts())
    assert [each for text in found for each in breaches("", text)] == []
    for part in ("wide", "held", "piece", "inside", "reduced"):
        assert {bool(getattr(text, part)) for text in found} == {True, False}, part
    pushes = list(pushed())
    assert [each for text in pushes for each in breaches("", text)] == []
    for part in ("wide", "homes", "held", "piece", "inside"):
        assert {bool(getattr(text, part)) for text in pushes} == {True, False}, part
    matmuls = matmul_texts()
    assert [each for text in matmuls for each in breaches("", text)] == []
    for part in ("moved", "adds", "a_mask", "b_mask", "described", "widens", "pushes", "neutral"):
        assert {bool(getattr(text, part)) for text in matmuls} == {True, False}, part


@pytest.mark.parametrize(
    ("part", "planted"),
    [
        ("sender", "tl.load(peers + receiver)"),
        ("sender", "receiver if receiver < 3 else 0"),
        ("sender", "receiver\n        tl.debug_barrier()"),
        ("inside", "low0 < high0:\n            pass\n        if True"),
        ("dims", (Named("a0", "copy_rows(peers, out)"),)),
    ],
)
def test_a_statement_in_a_context_is_found(part: str, planted: object) -> None:
    text = replace(next(texts()), **{part: planted})  # type: ignore[arg-type]
    assert [each.partition("=")[0] for each in breaches("", text)] == [
        "value" if part == "dims" else part
    ]


@pytest.mark.parametrize(
    ("part", "planted"),
    [
        ("a_mask", "wait(come + part, epoch, state, polls, 1)"),
        ("b_mask", "column < columns)\n        count(come"),
        ("neutral", "0 if terms else 1"),
    ],
)
def test_a_statement_in_the_context_of_a_matmul_is_found(part: str, planted: str) -> None:
    text = replace(matmul_texts()[0], **{part: planted})  # type: ignore[arg-type]
    assert [each.partition("=")[0] for each in breaches("", text)] == [part]


def test_the_kernel_of_a_group_is_text() -> None:
    """Two numbers are put into it, and nothing else chooses what it does."""
    text = (TEMPLATES / "triton_gpu" / "list.py.jinja").read_text()
    assert re.findall(r"\{[{%].*?[}%]\}", text) == [
        "{{ m." + each + " }}" for each in ("count", "positions", "count")
    ]


def test_templates_of_matmuls_print_contexts_alone() -> None:
    """And choose little, all of them together."""
    texts = [path.read_text() for path in (TEMPLATES / "triton_gpu" / "matmul").glob("*.jinja")]
    used = set[str]().union(
        *(jinja2.meta.find_undeclared_variables(jinja2.Environment().parse(each)) for each in texts)
    )
    assert used == {"k", "m"}
    assert len(re.findall(r"\{[%{][^%}]*\b(?:if|elif) ", "".join(texts))) <= CONDITIONS


@pytest.mark.parametrize("name", ["pull", "push", "reduce"])
def test_templates_print_contexts_alone(name: str) -> None:
    """Of a phase they use its names only; and with the frame around them they choose little."""
    text, frame = (
        (TEMPLATES / "triton_gpu" / f"{each}.py.jinja").read_text() for each in (name, "module")
    )
    used = jinja2.meta.find_undeclared_variables(jinja2.Environment().parse(text))
    assert used == {"k", "p"}
    assert {*re.findall(r"\bp\.(\w+)", text)} == {"names"}
    assert "include" not in text
    common = (TEMPLATES / "common" / "module.py.jinja").read_text()
    said = re.findall(r"\{[%{][^%}]*\b(?:if|elif) ", text + frame + common)
    assert len(said) <= CONDITIONS
