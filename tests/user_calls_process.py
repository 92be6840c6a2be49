"""A program that calls the user's functions several times, emitted with and without functions for
them, and compared.

python tests/user_calls_process.py as_shardy|cheapest
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from typing import Any

from cpu_devices import flags

if __name__ == "__main__":  # its tests import it too, and keep their own devices
    os.environ["XLA_FLAGS"] = flags(8)

import jax
import jax.numpy as jnp
import numpy as np
from leaves_process import compiled
from random_calls import norm, rotated, squash

import shardwright as sw
from shardwright.codegen.backends.jax_spmd.user_functions import UserFunctions

MESH = sw.Mesh({"d": 4, "t": 2})


def layers(params: Any, x: Any) -> Any:
    """Different layers, so that none of them is a function."""
    x = x + rotated(norm(x, params["first"]) @ params["in"])
    x = x * rotated(norm(x, params["second"], eps=1e-3))
    return squash(norm(x, params["third"])) + jnp.sin(squash(x))


def step(params: Any, x: Any) -> Any:
    """The value and the gradients of the layers."""

    def loss(params: Any) -> Any:
        return jnp.mean(layers(params, x) ** 2)

    return jax.value_and_grad(loss)(params)


def avals() -> tuple[Any, Any]:
    """Return the types of the arguments."""
    row = jax.ShapeDtypeStruct((16,), jnp.float32)
    square = jax.ShapeDtypeStruct((16, 16), jnp.float32)
    scales = dict.fromkeys(("first", "second", "third"), row)
    return scales | {"in": square}, jax.ShapeDtypeStruct((32, 16), jnp.float32)


def text(fn: Any, given: Any, **more: Any) -> str:
    """Return the module of a function whose last argument is split along `d`."""
    specs = (*(None for _ in given[1:]), MESH.sharding('[{"d"}, {}]'))
    made = sw.partition(fn, *given, mesh=MESH, in_shardings=specs, **more)
    return sw.emit(made).files("step")["jax_spmd.py"]


def without(make: Callable[[], str]) -> str:
    """Return the text that `make` returns if no call of the user's functions is kept."""
    find = UserFunctions.find
    UserFunctions.find = lambda *_: None  # type: ignore[method-assign]
    try:
        return make()
    finally:
        UserFunctions.find = find  # type: ignore[method-assign]


def calls(made: str) -> dict[str, int]:
    """Return how often each function of a module is called, without the program itself."""
    names = re.findall(r"^def (\w+)", made, re.MULTILINE)
    found = {name: len(re.findall(rf" = {name}\(", made)) for name in names}
    return {name: count for name, count in found.items() if count}


def of(mode: str) -> dict[str, Any]:
    """Return the calls of the step, and whether instructions and values are the same without."""
    given = jax.tree.map(
        lambda s: np.random.default_rng(0).uniform(0.1, 1, size=s.shape).astype("f4"), avals()
    )
    short = text(step, avals(), mode=mode)
    long = without(lambda: text(step, avals(), mode=mode))
    (kinds, results), (before, wanted) = compiled(short, given), compiled(long, given)
    ours, plain, one = map(jax.tree.leaves, (results, wanted, jax.jit(step)(*given)))
    return {
        "calls": calls(short),
        "calls without": calls(long),
        "same instructions": kinds == before,
        "same bits": all(np.array_equal(a, b) for a, b in zip(ours, plain, strict=True)),
        "close to one device": all(
            np.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in zip(ours, one, strict=True)
        ),
    }


if __name__ == "__main__":
    print(json.dumps(of(sys.argv[1])))
