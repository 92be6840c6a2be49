"""A module has the small functions that something in it calls, and no others."""

from __future__ import annotations

import ast
import random
from collections.abc import Collection
from dataclasses import replace
from functools import cache

import pytest
from cases import random_reshard

from shardwright.codegen.backends.base import Request
from shardwright.codegen.backends.contract import TRANSFERS
from shardwright.codegen.backends.pallas_tpu import context, helpers
from shardwright.codegen.planner import plan
from shardwright.ir import InputError
from shardwright.ir.plan import DirectPlan, direct_of

FORMS = {"direct", "windows", "slots", "routed", "spread"}


@cache
def planned(seed: int) -> DirectPlan | None:
    """The plan of a random reshard, perhaps large, perhaps for a topology that forwards; None where
    the backend refuses it."""
    rng, reshard = random.Random(seed), random_reshard(seed)
    scale = rng.choice([1, 8, 128])
    shape = (*reshard.shape[:-2], *(scale * extent for extent in reshard.shape[-2:]))
    made = plan(replace(reshard, shape=shape), "direct", topology=rng.choice([None, "v5e:2x4"]))
    try:
        context.refuse(made)
    except InputError:
        return None
    return direct_of(made)


def plans(count: int) -> list[DirectPlan]:
    return [made for made in map(planned, range(count)) if made is not None]


def names(nodes: Collection[ast.AST]) -> list[str]:
    """The names that nodes load, and the texts, which `__all__` has for names."""
    every = [one for node in nodes for one in ast.walk(node)]
    loaded = [one.id for one in every if isinstance(one, ast.Name)]
    return loaded + [str(one.value) for one in every if isinstance(one, ast.Constant)]


def faults(text: str) -> str:
    """What of a module's functions nothing leads to, and what is called and not there."""
    body = ast.parse(text).body
    functions = {node.name: node for node in body if isinstance(node, ast.FunctionDef)}
    rest = [node for node in body if not isinstance(node, ast.FunctionDef)]
    found, waiting = set[str](), [*TRANSFERS, *names(rest)]
    while waiting:
        name = waiting.pop()
        if name in functions and name not in found:
            found.add(name)
            waiting += names([functions[name]])
    unused = sorted(functions.keys() - found)
    every = {
        f"_{name}" for part in (helpers.ARITHMETIC, helpers.RANKS, helpers.WORDS) for name in part
    }
    every |= {"_not", *(f"_{name}" for name in helpers.BOXES)} - {"_negated"}
    missing = sorted(every & {*names(body)} - functions.keys())
    return ", ".join([*(f"{n} unused" for n in unused), *(f"{n} missing" for n in missing)])


@pytest.mark.parametrize("seed", range(60))
def test_what_is_called_is_there_and_nothing_else(seed: int) -> None:
    made = planned(seed)
    if made is not None:
        assert faults(context.render(Request(made, "shardwright emit"))) == ""


def test_all_forms_are_among_them() -> None:
    assert {made.once(context.choice_of).form.name for made in plans(60)} == FORMS


@pytest.mark.parametrize(
    ("name", "calls", "said"),
    [("div", (), "_operand missing"), ("maximum", ("numpy", "viewed"), "_viewed unused")],
)
def test_a_wrong_declaration_is_found(
    name: str, calls: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(helpers.CALLS, name, calls)
    monkeypatch.setitem(helpers.CALLS, "rem", ())
    found = {faults(context.render(Request(made, "shardwright emit"))) for made in plans(10)}
    assert any(said in each for each in found), found
