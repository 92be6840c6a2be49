"""What a device may hold: gathered weights are kept or gathered again, within a limit."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

import shardwright as sw

LAYERS, WIDTH = 6, 256
GATHERED = WIDTH * WIDTH * 4 * 7 // 8


def loss(weights: Any, x: Any) -> Any:
    for w in weights:
        x = jnp.tanh(x @ w)
    return (x * x).mean()


def step(**how: Any) -> sw.Partitioned:
    """A step whose weights are split over the devices that split the batch."""
    weights = [jax.ShapeDtypeStruct((WIDTH, WIDTH), jnp.float32)] * LAYERS
    x = jax.ShapeDtypeStruct((512, WIDTH), jnp.float32)
    rows = '[{"d"}, {}]'
    return sw.partition(
        jax.value_and_grad(loss),
        *(weights, x),
        mesh=sw.Mesh({"d": 8}),
        in_shardings=(rows, rows),
        out_shardings=("[]", rows),
        **how,
    )


def gathered(program: sw.Partitioned) -> int:
    return sum(each.bytes for each in program.communications if each.op == "all_gather")


@pytest.mark.parametrize("mode", ["as_shardy", "cheapest"])
def test_weights_are_gathered_once_or_again(mode: str) -> None:
    """The first layer's weights are not needed backward, the last one's are still there."""
    kept, again = (step(mode=mode, gather=gather) for gather in ("keep", "regather"))
    assert gathered(kept) == LAYERS * GATHERED
    assert gathered(again) == (2 * LAYERS - 2) * GATHERED
    text = sw.emit(again).files("step")["jax_spmd.py"]
    assert "lax.all_gather(lax.optimization_barrier(" in text.replace("\n", "").replace("    ", "")
    assert "optimization_barrier" not in sw.emit(kept).files("step")["jax_spmd.py"]


def test_a_limit_chooses_to_gather_again() -> None:
    assert step(memory_limit=3 << 20).bytes_received == step().bytes_received
    limited = step(memory_limit=2 << 20)
    assert limited.bytes_received == step(gather="regather").bytes_received


def test_a_limit_that_no_plan_keeps() -> None:
    with pytest.raises(sw.InputError) as error:
        print(step(mode="cheapest", memory_limit=100_000).local)
    said = str(error.value).splitlines()
    assert said[0].endswith("no plan fits into the memory of a device")
    assert "tests/partition/test_memory.py:" in said[0]
    assert "in the plan that needs least, " in said[1]
    assert said[2].startswith("expected: at most 97.656 KiB, the memory_limit")


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"gather": "never"}, "gather: unknown choice for gathered values"),
        ({"memory_limit": 0}, "memory_limit: the limit must be above zero"),
        ({"memory_limit": "1GiB"}, "memory_limit: the value must be of type int"),
    ],
)
def test_what_cannot_be_asked_for(how: dict[str, Any], said: str) -> None:
    with pytest.raises(sw.InputError, match=said):
        step(**how)
