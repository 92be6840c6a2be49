"""Arguments and results in classes: NamedTuples, dataclasses, nodes of their own."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import pytest
from record_trees import Pair, State, arguments, shardings, step
from sweeps import sampled
from test_emitted import run, wrong

import shardwright as sw

MESH = sw.Mesh({"d": 4, "t": 2})


def text(fn: Any, *avals: Any, **sides: Any) -> str:
    program = sw.partition(fn, *avals, mesh=MESH, **sides)
    return sw.emit(program).files("step")["jax_spmd.py"]


@pytest.mark.parametrize("mode", sampled(["as_shardy", "cheapest"], "cheapest"))
def test_they_have_one_devices_values(mode: str) -> None:
    found = run("records", mode, "2", "12")
    assert wrong(found) == {}
    assert set(found) == {"2 plain", "12 folded"}


def test_the_module_has_the_users_trees_at_run_time() -> None:
    made = text(step, *arguments(), in_shardings=shardings(), out_shardings=shardings())
    assert "import Pair" not in made
    assert "    state_layers_0_up = state.layers[0].up\n" in made
    assert "    (pair_0, pair_1) = jax.tree.leaves(pair)\n" in made
    one = '(P(None, "t"), P("t"), None)'
    assert f"IN_SHARDINGS = (\n    ([{one}, {one}], P()),\n" in made
    assert "        return (like(state, results[0]), like(pair, results[1]))\n" in made


def test_shardings_keep_the_users_trees() -> None:
    program = sw.partition(step, *arguments(), mesh=MESH, in_shardings=shardings())
    state, pair = program.in_shardings
    assert (type(state), type(pair), state.name) == (State, Pair, "small")
    assert str(state.layers[1].up) == '[{}, {"t"}]'


def test_classes_that_no_argument_has_come_from_a_template() -> None:
    """They are tuples without one, be it of a class that nothing can import or construct."""

    class Local(NamedTuple):
        x: Any

    class Registered:
        def __init__(self, x: Any) -> None:
            raise TypeError("of no use here")

        @classmethod
        def of(cls, x: Any) -> Registered:
            made = object.__new__(cls)
            made.x = x
            return made

        x: Any

    jax.tree_util.register_pytree_node(
        Registered, lambda node: ((node.x,), None), lambda _, items: Registered.of(*items)
    )
    aval = jax.ShapeDtypeStruct((8,), jnp.float32)
    made = text(lambda x, y: (Local(x * 2), {"b": Registered.of(y.x)}), aval, Registered.of(aval))
    assert "def program(mesh: Mesh, template=None):" in made
    assert '        return (results[0], {"b": like(y, results[1]["b"])})\n' in made
    assert "            return like(template, results)\n" in made
