"""Arguments and results in classes: NamedTuples, dataclasses, nodes of their own."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import pytest
from record_trees import Pair, State, arguments, shardings, step
from sweeps import sampled
from test_emitted import run, wrong

import shardwright as sw

MESH = sw.Mesh({"d": 4, "t": 2})


class Mesh(NamedTuple):
    """A class with a name that modules have another use for."""

    x: Any


def text(fn: Any, *avals: Any, **sides: Any) -> str:
    program = sw.partition(fn, *avals, mesh=MESH, **sides)
    return sw.emit(program).files("step")["jax_spmd.py"]


@pytest.mark.parametrize("mode", sampled(["as_shardy", "cheapest"], "cheapest"))
def test_they_have_one_devices_values(mode: str) -> None:
    found = run("records", mode, "2", "12")
    assert wrong(found) == {}
    assert set(found) == {"2 plain", "12 folded"}


def test_the_module_names_their_fields() -> None:
    made = text(step, *arguments(), in_shardings=shardings(), out_shardings=shardings())
    assert "from record_trees import Pair, State, Weights\n" in made
    assert "    state_layers_0_up = state.layers[0].up\n" in made
    assert '            Weights(up=P(None, "t"), down=P("t"), bias=None),\n' not in made
    assert '        Weights(up=P(None, "t"), down=P("t"), bias=None),\n' in made
    assert "IN_SHARDINGS = (STATE_SHARDINGS, Pair.tree_unflatten(0.5, [P(" in made


def test_shardings_keep_the_users_trees() -> None:
    program = sw.partition(step, *arguments(), mesh=MESH, in_shardings=shardings())
    state, pair = program.in_shardings
    assert (type(state), type(pair), state.name) == (State, Pair, "small")
    assert str(state.layers[1].up) == '[{}, {"t"}]'


def test_what_text_cannot_say() -> None:
    class Local(NamedTuple):
        x: Any

    class Registered:
        def __init__(self, x: Any) -> None:
            self.x = x

    jax.tree_util.register_pytree_node(
        Registered, lambda node: ((node.x,), None), lambda _, items: Registered(*items)
    )
    aval = jax.ShapeDtypeStruct((8,), jnp.float32)
    state = arguments()[0]
    fixed = dataclasses.replace(state, name=float("nan"))
    for node, said in (
        (Local(aval), "at the top of theirs"),
        (Registered(aval), "trees that text can say"),
        (Mesh(aval), "another use for some names"),
        (fixed, "beside its items"),
    ):
        with pytest.raises(sw.InputError, match=said):
            text(lambda x: jax.tree.leaves(x)[-1] * 2, node)
