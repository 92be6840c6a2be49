"""The functions that update leaves: one for all shapes, and the same program without it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from leaves_process import f32
from programs import findings

import shardwright as sw
from shardwright.codegen.partition.local import leaves as module
from shardwright.codegen.partition.local.steps import made, taken


@pytest.mark.parametrize("mode", ["as_shardy", "cheapest"])
@pytest.mark.parametrize(
    ("step", "layers", "calls"),
    [("by_trees", 3, [5]), pytest.param("by_leaves", 2, [5, 9], marks=pytest.mark.slow)],
)
def test_the_program_is_the_same(step: str, layers: int, calls: list[int], mode: str) -> None:
    """Its compiled instructions and its values, to the bit, with and without functions of leaves;
    within a layer's function too."""
    found = findings("leaves_process.py", step, str(layers), mode)
    assert found.pop("calls") in calls
    assert found == {
        "definitions": [1, 0],
        "types": 0,
        "shorter": True,
        "same instructions": True,
        "same bits": True,
        "close to one device": True,
    }


def local(fn: Any, *avals: Any) -> Any:
    return sw.partition(fn, *avals, mesh=sw.Mesh({"d": 2})).local


def several(update: Any, count: int = 6) -> Any:
    """Return a step that updates this number of leaves of different shapes."""
    leaf = [f32((size + 2,)) for size in range(count)]
    return local(lambda *given: [update(*each) for each in zip(*given, strict=True)], leaf, leaf)


def short(w: Any, g: Any) -> Any:
    return w - 0.1 * g


def long(w: Any, g: Any) -> Any:
    return w - 0.1 * g / (jnp.sqrt(jnp.abs(g * g - jnp.exp(w))) + 1.0)


def test_updates_that_save_little_stay_open() -> None:
    """Short ones, and few; and those whose values are not results."""
    assert [len(each) for each in module.leaves(several(long))] == [6]
    assert [len(each) for each in module.leaves(several(short, 12))] == [0]
    assert [len(each) for each in module.leaves(several(long, 2))] == [0]
    assert [len(each) for each in module.leaves(several(lambda w, g: long(w, g).sum()))] == [0]


def test_updates_of_other_kinds_are_apart() -> None:
    """Those on different lines, and of different dtypes."""

    def step(one: Any, other: Any) -> Any:
        return [long(w, 2.0 * w) for w in one], [long(w, w) for w in other]

    halves = [jax.ShapeDtypeStruct((size,), jnp.bfloat16) for size in range(2, 8)]
    (found,) = module.leaves(local(step, [f32((size,)) for size in range(2, 8)], halves))
    assert sorted(Counter(leaf.key for leaf in found).values()) == [6, 6]


def test_steps_of_an_update_are_made_consecutive() -> None:
    """However updates are interleaved; steps stay after those that they need."""
    program = several(long)
    numbers = np.random.default_rng(0)
    for _ in range(5):
        (found,) = module.leaves(program)
        left = [list(leaf.steps) for leaf in found]
        picks = numbers.permutation([at for at, own in enumerate(left) for _ in own])
        mixed = tuple(left[at].pop(0) for at in picks)
        assert len(mixed) == len(program.body.steps)
        shuffled = replace(program, body=replace(program.body, steps=mixed))
        assert not [*module.consecutive(shuffled.body, found)]
        ordered = module.gathered(shuffled).body
        assert len([*module.consecutive(ordered, found)]) == len(found) == 6
        ready = set(ordered.arguments)
        for step in ordered.steps:
            assert ready.issuperset(taken(step))
            ready.update(made(step))


def test_an_update_that_needs_a_sum_of_its_result_stays_open() -> None:
    def update(w: Any, g: Any) -> Any:
        new = long(w, g)
        return new, new / jnp.sum(new)

    program = several(update)
    (found,) = module.leaves(program)
    assert len(found) == 6
    assert not [*module.consecutive(program.body, found)]
    leaf = [f32((size + 2,)) for size in range(6)]

    def step(ws: Any, gs: Any) -> Any:
        return [update(*each) for each in zip(ws, gs, strict=True)]

    made = sw.emit(sw.partition(step, leaf, leaf, mesh=sw.Mesh({"d": 1}))).files("step")
    assert "def leaf" not in made["jax_spmd.py"]
    scope: dict[str, Any] = {}
    exec(made["jax_spmd.py"].replace("from __future__ import annotations\n", ""), scope)
    given = [[np.linspace(0.1, 1.0, s.size, dtype="f4") for s in leaf]] * 2
    found = scope["program"](jax.make_mesh((1,), ("d",)))(*given)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(step(*given)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)
