"""The shardings of each strategy, and the pipeline as a function beside its stages in turn."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from programs import findings
from sweeps import sampled

import shardwright as sw

BOTH = sw.Mesh({"data": 4, "model": 2})
SHAPES = {"w": (8, 6), "deep": (3, 8, 2), "b": (4,), "odd": (3, 5), "scale": ()}
TREE = {name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in SHAPES.items()}


def texts(found: Any) -> dict[str, str]:
    return {name: str(sharding) for name, sharding in found.items()}


def test_data_parallel_splits_nothing() -> None:
    found = texts(sw.strategies.data_parallel(TREE, BOTH))
    assert found["deep"] == "[{}, {}, {}]"
    assert "data" not in "".join(found.values())


def test_fsdp_splits_the_first_dimension_that_divides() -> None:
    assert texts(sw.strategies.fsdp(TREE, BOTH, "data")) == {
        "w": '[{"data"}, {}]',
        "deep": '[{}, {"data"}, {}]',
        "b": '[{"data"}]',
        "odd": "[{}, {}]",
        "scale": "[]",
    }


def test_tensor_parallel_splits_where_it_is_told_to() -> None:
    dims = {"w": 1, "deep": 2, "odd": 0}
    assert texts(sw.strategies.tensor_parallel(TREE, BOTH, "model", dims)) == {
        "w": '[{}, {"model"}]',
        "deep": '[{}, {}, {"model"}]',
        "b": "[{}]",
        "odd": "[{}, {}]",
        "scale": "[]",
    }
    assert texts(sw.strategies.tensor_parallel(TREE, BOTH, "model"))["b"] == '[{"model"}]'


def test_both_split_other_dimensions_where_they_can() -> None:
    found = texts(sw.strategies.fsdp_tensor_parallel(TREE, BOTH, "data", "model", {"w": 1, "b": 0}))
    assert found["w"] == '[{"data"}, {"model"}]'
    assert found["b"] == '[{"model"}]'  # 4 elements in 8 parts would not be equal
    inside = {"b": jax.ShapeDtypeStruct((16,), jnp.float32)}
    found = texts(sw.strategies.fsdp_tensor_parallel(inside, BOTH, "data", "model"))
    assert found["b"] == '[{"model", "data"}]'


def test_a_pattern_is_of_a_whole_name() -> None:
    tree = {"layers": [{"w": TREE["w"], "new": TREE["w"]}]}
    (found,) = sw.strategies.tensor_parallel(tree, BOTH, "model", {"w": 0})["layers"]
    assert texts(found) == {"w": '[{"model"}, {}]', "new": "[{}, {}]"}


def test_an_axis_must_be_of_the_mesh() -> None:
    with pytest.raises(sw.InputError, match="a strategy must split along axes of the mesh"):
        sw.strategies.fsdp(TREE, BOTH, "stages")
    with pytest.raises(sw.InputError, match="a pipeline must run along an axis of the mesh"):
        sw.strategies.pipeline(stage, BOTH, "stages", 2)


def test_a_dimension_must_be_of_the_leaf() -> None:
    with pytest.raises(sw.InputError, match="this leaf has no such dimension"):
        sw.strategies.tensor_parallel(TREE, BOTH, "model", {"b": 1})


def stage(w: Any, x: Any) -> Any:
    return jnp.tanh(x @ w)


@pytest.mark.parametrize("microbatches", sampled([1, 2, 3, 6], 2))
def test_a_pipeline_is_its_stages_in_turn(microbatches: int) -> None:
    rng = np.random.default_rng(microbatches)
    w = jnp.asarray(rng.standard_normal((4, 5, 5)), jnp.float32)
    x = jnp.asarray(rng.standard_normal((6, 5)), jnp.float32)
    pipe = sw.strategies.pipeline(stage, BOTH, "data", microbatches)

    def in_turn(w: Any, x: Any) -> Any:
        for each in w:
            x = stage(each, x)
        return (x**2).sum()

    ours = jax.value_and_grad(lambda w, x: (pipe(w, x) ** 2).sum(), (0, 1))(w, x)
    one = jax.value_and_grad(in_turn, (0, 1))(w, x)
    for found, expected in zip(jax.tree.leaves(ours), jax.tree.leaves(one), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_the_bubble_is_what_fills_and_drains() -> None:
    pipe = sw.strategies.pipeline(stage, BOTH, "data", 9)
    assert (pipe.stages, pipe.ticks, pipe.bubble) == (4, 12, 0.25)


def test_a_pipeline_says_what_it_cannot_take() -> None:
    pipe = sw.strategies.pipeline(stage, BOTH, "data", 4)
    with pytest.raises(sw.InputError, match="must divide into equal micro-batches"):
        pipe(jnp.zeros((4, 5, 5)), jnp.zeros((6, 5)))
    with pytest.raises(sw.InputError, match="one entry per stage"):
        pipe(jnp.zeros((3, 5, 5)), jnp.zeros((8, 5)))
    with pytest.raises(sw.InputError, match="at least one micro-batch"):
        sw.strategies.pipeline(stage, BOTH, "data", 0)


def test_a_pipeline_permutes_one_shard_a_tick_and_back() -> None:
    """Forward and backward a permute of a micro-batch in every tick, and nothing else in the
    loop of the forward pass."""
    pipe = sw.strategies.pipeline(stage, BOTH, "data", 4)
    avals = (
        jax.ShapeDtypeStruct((4, 8, 8), jnp.float32),
        jax.ShapeDtypeStruct((8, 8), jnp.float32),
    )
    program = sw.partition(
        jax.grad(lambda w, x: (pipe(w, x) ** 2).sum()),
        *avals,
        mesh=BOTH,
        in_shardings=(pipe.shardings(avals[0]), "[{}, {}]"),
        mode="cheapest",
    )
    permutes = [each for each in program.communications if each.op == "permute"]
    microbatch = 2 * 8 * 4
    assert [(each.received, each.times) for each in permutes] == [(microbatch, 7)] * 2
    assert {each.op for each in program.communications if each.times > 1} == {"permute"}


def test_gradients_of_stages_are_summed_over_data_after_the_loop() -> None:
    """Every tick adds to terms; the sums are made once. Stages that loop over layers, too."""

    def layers(w: Any, x: Any) -> Any:
        return jax.lax.scan(lambda x, each: (stage(each, x), None), x, w)[0]

    mesh = sw.Mesh({"stages": 4, "data": 2})
    for made, shape in ((stage, (4, 8, 8)), (jax.checkpoint(layers), (4, 3, 8, 8))):
        pipe = sw.strategies.pipeline(made, mesh, "stages", 4)
        avals = (jax.ShapeDtypeStruct(shape, jnp.float32), jax.ShapeDtypeStruct((16, 8), "float32"))
        program = sw.partition(
            jax.grad(lambda w, x, pipe=pipe: (pipe(w, x) ** 2).sum()),
            *avals,
            mesh=mesh,
            in_shardings=(pipe.shardings(avals[0]), '[{"data"}, {}]'),
            mode="cheapest",
        )
        sums = [each for each in program.communications if "data" in each.axes]
        assert [(each.op, each.times) for each in sums] == [("all_reduce", 1)]
        assert "one all-reduce after the loop instead of 7 in it" in str(sums[0])


@pytest.mark.slow
def test_emitted_pipelines_have_one_devices_gradients() -> None:
    """With stages, data and features split: values, bytes by the HLO, and no sum over the data in
    a loop, of a step and of the gradient of an emitted loss; such sums are found."""
    found = findings("pipeline_process.py", "steps")
    assert "off by" in found.pop("a sum in every turn")
    assert found == {"step": "", "gradient of a loss": ""}


def test_the_bubble_is_in_the_price() -> None:
    """A device computes for as many ticks as there are, each of one micro-batch."""
    computed = {}
    for count in (1, 4, 16):
        pipe = sw.strategies.pipeline(stage, BOTH, "data", count)
        avals = (
            jax.ShapeDtypeStruct((4, 2**15, 2**15), jnp.float32),
            jax.ShapeDtypeStruct((2**20, 2**15), jnp.float32),
        )
        given = (pipe.shardings(avals[0]), "[{}, {}]")
        program = sw.partition(pipe, *avals, mesh=BOTH, in_shardings=given)
        computed[count] = program.computed * (1 - pipe.bubble)
    assert max(computed.values()) < 1.1 * min(computed.values())
