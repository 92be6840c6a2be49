"""Where the search of `cheapest` starts, that no start is cheaper than what it finds, and its last
step."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import models
import pytest
import random_functions
from sweeps import sampled

import shardwright as sw
from shardwright.codegen.partition.local import cheapest as searched
from shardwright.codegen.partition.local.axes import cut_axes
from shardwright.codegen.partition.local.cheapest import cheapest
from shardwright.codegen.partition.local.communications import communications
from shardwright.codegen.partition.local.costs import Costs
from shardwright.codegen.partition.local.lower import lower
from shardwright.codegen.partition.local.price_search import PriceSearch
from shardwright.codegen.partition.local.prices import Ratings
from shardwright.codegen.partition.local.seeds import seeds
from shardwright.codegen.partition.local.shardy import as_shardy, propagated_choices
from shardwright.codegen.partition.local.steps import LocalProgram
from shardwright.codegen.partition.local.work import computed

MESH = sw.Mesh({"d": 4, "t": 2})
BATCH = '[{"d"}, {?}, {?}]'
WEIGHTS = {
    "tokens": ((2048, 256), '[{"t"}, {"d"}]'),
    "up": ((256, 1024), '[{"d"}, {"t"}]'),
    "down": ((1024, 256), '[{"t"}, {"d"}]'),
}


def partitioned(layers: int, *, constrained: bool = False, mode: str = "cheapest") -> Any:
    """A training step of layers between an embedding and the same weights as a head."""

    def loss(p: Any, ids: Any) -> Any:
        x = p["tokens"][ids]
        x = sw.constrain(x, BATCH) if constrained else x
        for _ in range(layers):
            x = x + jnp.tanh(x @ p["up"]) @ p["down"]
        scores = jax.nn.log_softmax(x @ p["tokens"].T)
        return -jnp.take_along_axis(scores, ids[..., None], -1).mean()

    def step(p: Any, ids: Any) -> Any:
        gradient = jax.grad(loss)(p, ids)
        return jax.tree.map(lambda w, g: w - 0.01 * g, p, gradient)

    avals = {name: jax.ShapeDtypeStruct(shape, "float32") for name, (shape, _) in WEIGHTS.items()}
    given = {name: sharding for name, (_, sharding) in WEIGHTS.items()}
    return sw.partition(
        step,
        *(avals, jax.ShapeDtypeStruct((64, 128), "int32")),
        mesh=MESH,
        in_shardings=(given, '[{"d"}, {}]'),
        out_shardings=given,
        mode=mode,
    )


def received(local: LocalProgram) -> int:
    """The bytes that the busiest device receives."""
    return sum(each.bytes for each in communications(local).values())


def price(local: LocalProgram) -> float:
    """The bytes that the busiest device receives, and its computation in bytes."""
    return received(local) + computed(local)


def without_devices(**axes: int) -> Any:
    kinds = (jax.sharding.AxisType.Auto,) * len(axes)
    return jax.sharding.AbstractMesh(tuple(axes.values()), tuple(axes), axis_types=kinds)


def of_model(strategy: str, mode: str = "cheapest") -> Any:
    """A training step of a transformer layer, sharded in one of the ways of `models`."""
    fn, avals, inputs, outputs, mesh = models.case("layer_step", strategy)
    sides = {"in_shardings": inputs, "out_shardings": outputs}
    return sw.partition(fn, *avals, mesh=mesh, mode=mode, **sides)


def of_random(seed: int) -> Any:
    fn = random_functions.case(seed, True, meshes=(MESH,), formed=0)
    sides = {"in_shardings": fn.inputs, "out_shardings": fn.outputs}
    return sw.partition(fn, *fn.avals, mesh=MESH, mode="cheapest", **sides)


PROGRAMS = {
    **{f"tied-{layers}": partial(partitioned, layers) for layers in (1, 2, 4)},
    **{strategy: partial(of_model, strategy) for strategy in models.MESHES},
    **{f"random-{seed}": partial(of_random, seed) for seed in range(13)},
}


@pytest.mark.parametrize("name", sampled(PROGRAMS, "tied-1", "dp", "random-4"))
def test_no_start_is_cheaper(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither an idea, such as a batch or a sequence split everywhere, nor what propagation makes
    of the given priorities."""
    monkeypatch.setattr(models, "jax_mesh", without_devices)
    made = PROGRAMS[name]()
    found = cheapest(made.program, made.mesh, Ratings())
    axes, whole = cut_axes(found.program, made.mesh), [None] * len(found.program.values)
    costs = Costs(found.program, axes, Ratings())
    layouts = [axes.layout(value.sharding, value.shape) for value in found.program.values]
    known = dict(propagated_choices(found.program, axes, layouts))
    bound = {n: known[op.results[0]] for n, op in enumerate(costs.ops) if op.kind == "constrain"}
    choices = [known]
    for start in seeds(costs, bound):
        start()
        choices.append(costs.choice)
    starts = [lower(found.program, axes, choice, whole) for choice in choices]
    starts.append(as_shardy(made.program, made.mesh, Ratings()))
    assert len(starts) == 11
    assert all(price(found) <= price(each) for each in starts)


MOST = {1: 71_800_000, 4: 136_500_000}
"""The bytes received and computed, by the number of layers."""


@pytest.mark.parametrize("layers", [1, pytest.param(4, marks=pytest.mark.slow)])
def test_no_constraint_is_cheaper(layers: int) -> None:
    """Where tokens are looked up: of a table that is split by columns the propagation makes values
    that are split by features, not by the batch."""
    found = price(partitioned(layers).local)
    assert found < MOST[layers]
    assert 3 * found < 2 * price(partitioned(layers, mode="as_shardy").local)
    assert found <= 1.05 * price(partitioned(layers, constrained=True).local)


def both(seed: int) -> tuple[LocalProgram, LocalProgram]:
    """The plans of a random function in the modes cheapest and as_shardy."""
    program = of_random(seed).program
    return cheapest(program, MESH, Ratings()), as_shardy(program, MESH, Ratings())


@pytest.mark.parametrize("seed", sampled(range(20, 60), 28))
def test_as_shardy_costs_no_less_for_as_many_bytes(seed: int) -> None:
    plan, propagated = both(seed)
    assert price(plan) <= price(propagated) or received(plan) < received(propagated)


def test_a_search_that_forgets_as_shardy_costs_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: its plans do not replace the plan found."""
    monkeypatch.setattr(searched, "propagated_plans", lambda *_: ())
    plan, propagated = both(28)
    assert price(plan) > price(propagated)
    assert received(plan) > received(propagated)


SEEDS = (4, 5, 8, 12)
"""Random functions: in the first two an idea wins, in the others it would receive more."""


def plans_of(seed: int) -> tuple[LocalProgram, LocalProgram]:
    """The plans of a random function without ideas and with them."""
    fn = random_functions.case(seed, True, meshes=(MESH,), formed=0)
    sides = {"in_shardings": fn.inputs, "out_shardings": fn.outputs}
    program = sw.partition(fn, *fn.avals, mesh=MESH, **sides).program
    plain, seeded = (cheapest(program, MESH, Ratings(seeded=each)) for each in (False, True))
    return plain, seeded


def test_an_idea_costs_less_and_receives_no_more() -> None:
    plans = [plans_of(seed) for seed in SEEDS]
    assert all(received(seeded) <= received(plain) for plain, seeded in plans)
    assert all(price(seeded) <= price(plain) for plain, seeded in plans)
    assert any(price(seeded) < price(plain) for plain, seeded in plans)


def test_without_the_rule_an_idea_receives_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: no bytes and no collectives of any plan are counted."""
    monkeypatch.setattr(Costs, "received", 0.0)
    monkeypatch.setattr(searched, "received", lambda local: 0)
    monkeypatch.setattr(searched, "_runs", lambda local: 0)
    plans = [plans_of(seed) for seed in SEEDS]
    assert any(received(seeded) > received(plain) for plain, seeded in plans)


SHARED, REPEATED = 149 * 2**20, 160 * 2**20
"""Costs of a transformer layer's step: at most that with reduce-scatters, so that devices share the
computation behind a sum, and at least that with all-reduces, so that every device repeats it."""


@pytest.mark.parametrize("strategy", ["dp", "fsdp+tp"])
def test_reduce_scatters_share_computation(strategy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under `fsdp+tp` they receive more bytes than all-reduces, but less than `as_shardy`."""
    monkeypatch.setattr(models, "jax_mesh", without_devices)
    found = of_model(strategy).local
    assert price(found) <= SHARED
    assert received(found) <= received(of_model(strategy, "as_shardy").local)


def test_without_the_step_every_device_computes_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "jax_mesh", without_devices)
    monkeypatch.setattr(PriceSearch, "spread", PriceSearch.settle)
    assert price(of_model("dp").local) >= REPEATED


def test_reduce_scatters_receive_no_more_than_as_shardy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the plans of `as_shardy` receive nothing."""
    monkeypatch.setattr(models, "jax_mesh", without_devices)
    own, of_plan = received(of_model("fsdp+tp", "as_shardy").local), searched.received
    monkeypatch.setattr(
        searched, "received", lambda local: of_plan(local) if of_plan(local) != own else 0
    )
    assert price(of_model("fsdp+tp").local) >= REPEATED
