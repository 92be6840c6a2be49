"""Whole kernels, one of each strategy of each backend, as a person reviews them: what the program
of a module leads to, its constants and index functions too, and nothing else."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import partial
from typing import get_args

import pytest
from gpu_cases import CASES as GPU
from gpu_cases import moves
from places import TESTS

from shardwright.codegen.backends.base import Request
from shardwright.codegen.backends.jax_xla import context as jax_xla
from shardwright.codegen.backends.pallas_tpu import context as pallas_tpu
from shardwright.codegen.backends.pallas_tpu.all_forms import FACTS
from shardwright.codegen.backends.pallas_tpu.strategy import choices
from shardwright.codegen.backends.triton_gpu import context as triton_gpu
from shardwright.codegen.backends.triton_gpu.rows import Form as Rows
from shardwright.codegen.moves import plan
from shardwright.ir import Mesh, Reshard
from shardwright.ir.plan import Plan, direct_of

GOLDEN = TESTS / "golden" / "kernels"
MESH, ROW, CUBE = Mesh({"x": 2, "y": 4}), Mesh({"x": 4}), Mesh({"x": 2, "y": 2, "z": 2})
SIX = Mesh({"x": 2, "y": 3})
MADE_BY = "shardwright emit"


def made(
    source: str,
    target: str,
    shape: tuple[int, ...],
    mesh: Mesh = MESH,
    strategy: str = "direct",
    topology: str | None = None,
    source_split: str = "flat",
) -> Plan:
    sides = mesh.sharding(source), mesh.sharding(target)
    reshard = Reshard(shape, "float32", *sides, source_split=source_split)
    return plan(reshard, strategy, topology=topology)


def of_form(name: str, planned: Plan) -> str:
    """A TPU module in a form, whether or not another is cheaper."""
    direct = direct_of(planned)
    choice = next(choice for choice in choices(direct) if choice.form.name == name)
    return pallas_tpu.printed(Request(planned, MADE_BY), choice)


def of_how(name: str, planned: Plan) -> str:
    """An XLA module whose boxes travel so."""
    stepwise = jax_xla.is_stepwise(planned)
    how = "steps" if stepwise else type(jax_xla.how_of(direct_of(planned))).__name__.lower()
    assert how == name
    return jax_xla.render(Request(planned, MADE_BY))


def of_rows(name: str) -> str:
    """A GPU module whose tiles are copied in such parts."""
    reshard = next(case for case in GPU.values() if moves(case).form == name)
    return triton_gpu.render(Request(plan(reshard), MADE_BY))


ROWS = '[{"x", "y"}, {}]'
TURNED = '[{"x"}, {}]', '[{}, {"x"}]'
PALLAS = {
    "direct": made(*TURNED, (64, 512), ROW),
    "windows": made(*TURNED, (20, 50), ROW),
    "slots": made(*TURNED, (20, 50), ROW),
    "routed": made(*TURNED, (40, 48), ROW, topology="v5e:2x2"),
    "relayed": made(*TURNED, (64, 512), ROW, topology="v5e:2x2"),
    "gathered": made('[{"x"}, {}]', "[{}, {}]", (64, 128), ROW, topology="v5e:2x2"),
    "spread": made(*TURNED, (40, 48), ROW, topology="v5e:2x2"),
}
XLA = {
    "collectives": made('[{"x", "y"}, {}]', '[{"x"}, {"y"}]', (8, 8)),
    "groups": made('[{}, {"x", "y"}]', '[{"y"}, {}]', (8, 8)),
    "fetches": made('[{}, {"x"}]', '[{}, {"y"}]', (8, 8)),
    "rounds": made('[{"x"}, {"y"}]', '[{"y"}, {"x"}]', (12, 12)),
    "ragged": made(*[ROWS] * 2, (1001, 128), topology="v5e:2x4", source_split="nested"),
    "steps": made('[{"x"}, {}], unreduced={"y"}', '[{"y", "x"}, {}]', (8, 1 << 16), SIX, "basis"),
}
TERMS = '[{"x"}, {}], unreduced={"y"}'
TRITON = {
    "reduced": made(TERMS, '[{"x"}, {"y"}]', (8, 24)),
    "shared": made(TERMS, "[{}, {}]", (8, 24), topology="switch:8,latency=1e-12"),
}
RING = made(
    TERMS, '[{"x"}, {"y"}]', (64, 512), topology="torus:8,wrap=1,bandwidth=1e6,latency=1e-12"
)
TWO = made(TERMS, "[{}, {}]", (64, 512), topology="switch:8,latency=1e-12")
KERNELS: dict[str, tuple[frozenset[str], Callable[[], str]]] = {
    **{
        f"pallas_tpu_{name}": (frozenset({"_HOST"}), partial(of_form, name, planned))
        for name, planned in PALLAS.items()
    },
    "pallas_tpu_reduced": (
        frozenset({"_HOST"}),
        partial(pallas_tpu.render, Request(made(TERMS, '[{"x"}, {"y"}]', (16, 512)), MADE_BY)),
    ),
    "pallas_tpu_ring": (frozenset({"_HOST"}), partial(pallas_tpu.render, Request(RING, MADE_BY))),
    "pallas_tpu_in_two": (frozenset({"_HOST"}), partial(pallas_tpu.render, Request(TWO, MADE_BY))),
    **{
        f"jax_xla_{name}": (frozenset({"_HOST"}), partial(of_how, name, planned))
        for name, planned in XLA.items()
    },
    **{
        f"triton_gpu_{name}": (frozenset({"_HOST"}), partial(of_rows, name))
        for name in get_args(Rows)
    },
    **{
        f"triton_gpu_{name}": (
            frozenset({"_HOST"}),
            partial(triton_gpu.render, Request(planned, MADE_BY)),
        )
        for name, planned in TRITON.items()
    },
}
"""By the names of their goldens: what the program of a module is, and its text."""


def defined(node: ast.stmt) -> set[str]:
    """The names that a statement of a module defines."""
    if isinstance(node, ast.FunctionDef):
        return {node.name}
    names = (name for name in ast.walk(node) if isinstance(name, ast.Name))
    return {name.id for name in names if isinstance(name.ctx, ast.Store)}


def led_to(text: str, roots: frozenset[str]) -> str:
    """Those definitions of a module that some lead to, in their order, with the comments above."""
    body = ast.parse(text).body
    homes = {name: node for node in body for name in defined(node)}
    assert roots <= homes.keys()
    found, waiting = set[str](), [*roots]
    while waiting:
        name = waiting.pop()
        if name in homes and name not in found:
            found.add(name)
            loaded = (node for node in ast.walk(homes[name]) if isinstance(node, ast.Name))
            waiting += [node.id for node in loaded]
    lines = text.splitlines()
    kept = ""
    for node in body:
        if defined(node) & found:
            start = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))]) - 1
            while lines[start - 1].startswith("#"):
                start -= 1
            above = "" if not kept else "\n\n" if isinstance(node, ast.FunctionDef) else "\n"
            kept += above + "\n".join(lines[start : node.end_lineno]) + "\n"
    return kept


@pytest.mark.parametrize("name", KERNELS)
def test_golden_kernel(name: str, request: pytest.FixtureRequest) -> None:
    roots, text = KERNELS[name]
    path, kernel = GOLDEN / f"{name}.py.txt", led_to(text(), roots)
    if request.config.getoption("--update-golden"):
        path.write_text(kernel)
    assert kernel == path.read_text()


def test_every_strategy_has_a_golden() -> None:
    assert {*PALLAS, "ring"} == {*FACTS}
    assert set(XLA) == {how.__name__.lower() for how in get_args(jax_xla.How)}
    assert {path.name for path in GOLDEN.iterdir()} == {f"{name}.py.txt" for name in KERNELS}
