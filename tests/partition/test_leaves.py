"""The functions that update leaves: one for all shapes, and the same program without it."""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import shardwright as sw
from shardwright.codegen.partition.local import leaves as module
from shardwright.codegen.partition.local.steps import made, taken

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
MESH = sw.Mesh({"d": 4, "t": 2})
SHAPES = {"w": (16, 8), "b": (8,), "scale": (8,), "out": (8, 2, 4)}
SPECS = {"w": P("d", "t"), "b": P("t"), "scale": P("t"), "out": P(None, None, "t")}


def adam(w: Any, g: Any, m: Any, v: Any, count: Any) -> Any:
    m = 0.9 * m + 0.1 * g
    v = 0.999 * v + 0.001 * g * g
    c1, c2 = 1 - 0.9**count, 1 - 0.999**count
    return w - 1e-3 * (m / c1) / (jnp.sqrt(v / c2) + 1e-8), m, v


def loss(params: Any, x: Any) -> Any:
    for layer in params["layers"]:
        y = jnp.tanh(x @ layer["w"] + layer["b"]) * layer["scale"]
        x = x + jnp.einsum("ab,bcd->acd", y, layer["out"]).reshape(x.shape[0], 8) @ layer["w"].T
    return jnp.mean(x @ params["head"])


def by_trees(params: Any, m: Any, v: Any, count: Any, x: Any) -> Any:
    """A step whose optimizer maps over trees, one op at a time."""
    grads = jax.grad(loss)(params, x)
    m = jax.tree.map(lambda a, g: 0.9 * a + 0.1 * g, m, grads)
    v = jax.tree.map(lambda a, g: 0.999 * a + 0.001 * g * g, v, grads)
    c1, c2 = 1 - 0.9**count, 1 - 0.999**count
    new = jax.tree.map(
        lambda w, a, b: w - 1e-3 * (a / c1) / (jnp.sqrt(b / c2) + 1e-8), params, m, v
    )
    return new, m, v


def by_leaves(params: Any, m: Any, v: Any, count: Any, x: Any) -> Any:
    """A step whose optimizer is a function of the user for one leaf."""
    grads = jax.tree.leaves(jax.grad(loss)(params, x))
    leaves, tree = jax.tree.flatten(params)
    rows = zip(leaves, grads, jax.tree.leaves(m), jax.tree.leaves(v), strict=True)
    made = zip(*(adam(*row, count) for row in rows), strict=True)
    return tuple(jax.tree.unflatten(tree, each) for each in made)


def trees(layers: int) -> tuple[Any, Any]:
    """Return the shapes of a tree with this number of layers, and their specs."""
    shapes = {"layers": [SHAPES] * layers, "head": (16, 4)}
    specs = {"layers": [SPECS] * layers, "head": P("t", None)}
    return jax.tree.map(f32, shapes, is_leaf=lambda x: isinstance(x, tuple)), specs


def f32(shape: tuple[int, ...]) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def text(step: Any, layers: int, mode: str) -> str:
    tree, specs = trees(layers)
    made = sw.partition(
        step,
        *(tree, tree, tree, f32(()), f32((8, 16))),
        mesh=MESH,
        mode=mode,
        in_shardings=(specs, specs, specs, P(), P("d")),
        out_shardings=(specs, specs, specs),
    )
    return sw.emit(made).files("step")["jax_spmd.py"]


def compiled(made: str, given: Any) -> tuple[Counter[str], Any]:
    """Return the instructions of a module's compiled program, by kind and type, and its results."""
    scope: dict[str, Any] = {}
    exec(made.replace("from __future__ import annotations\n", ""), scope)
    ready = scope["program"](jax.make_mesh((4, 2), ("d", "t"))).lower(*given).compile()
    found = re.findall(r"^ *(?:ROOT )?%\S+ = (\S+ [\w-]+)\(", ready.as_text(), re.MULTILINE)
    return Counter(found), ready(*given)


@pytest.mark.parametrize("mode", ["as_shardy", "cheapest"])
@pytest.mark.parametrize(
    ("step", "layers", "calls"),
    [(by_trees, 3, (5,)), pytest.param(by_leaves, 2, (5, 9), marks=pytest.mark.slow)],
)
def test_the_program_is_the_same(
    monkeypatch: pytest.MonkeyPatch, step: Any, layers: int, calls: tuple[int, ...], mode: str
) -> None:
    """Its compiled instructions and its values, to the bit, with and without functions of leaves;
    within a layer's function too."""
    tree, _ = trees(layers)
    numbers = np.random.default_rng(0)
    own = jax.tree.map(lambda s: numbers.uniform(size=s.shape).astype("f4"), tree)
    given = own, own, own, np.float32(3), numbers.normal(size=(8, 16)).astype("f4")
    short = text(step, layers, mode)
    name = "adam" if step is by_leaves else "leaf_m_v_new"
    assert short.count(f"\ndef {name}(") == 1
    assert short.count(f" = {name}(") in calls
    assert "f32[" not in short.partition(f"\ndef {name}(")[2].partition("\ndef ")[0]
    monkeypatch.setattr(module, "LEAST", 10**6)
    long = text(step, layers, mode)
    assert f"\ndef {name}(" not in long
    assert len(short.splitlines()) < len(long.splitlines())
    (kinds, results), (before, wanted) = compiled(short, given), compiled(long, given)
    assert kinds == before
    for one, other in zip(jax.tree.leaves(results), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_array_equal(one, other)
    whole = jax.tree.leaves(jax.jit(step)(*given))
    for one, other in zip(jax.tree.leaves(results), whole, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


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
