"""Steps with an optimizer, emitted with and without functions of leaves, and compared.

python tests/leaves_process.py by_trees|by_leaves LAYERS as_shardy|cheapest
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections import Counter
from typing import Any

from cpu_devices import flags

if __name__ == "__main__":  # its tests import it too, and keep their own devices
    os.environ["XLA_FLAGS"] = flags(8)

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

import shardwright as sw
from shardwright.codegen.backends.jax_spmd import user_functions
from shardwright.codegen.partition.local import leaves as module

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


def of(step: Any, layers: int, mode: str) -> dict[str, Any]:
    """Return what holds of a step that is emitted with functions of leaves and without: the number
    of calls, and whether lines, instructions, bits, and the values of one device are right."""
    tree, _ = trees(layers)
    numbers = np.random.default_rng(0)
    own = jax.tree.map(lambda s: numbers.uniform(size=s.shape).astype("f4"), tree)
    given = own, own, own, np.float32(3), numbers.normal(size=(8, 16)).astype("f4")
    short = text(step, layers, mode)
    name = "adam" if step is by_leaves else "leaf_m_v_new"
    body = short.partition(f"\ndef {name}(")[2].partition("\ndef ")[0]
    module.LEAST = user_functions.SHORTEST = 10**6
    long = text(step, layers, mode)
    (kinds, results), (before, wanted) = compiled(short, given), compiled(long, given)
    ours, plain, one = map(jax.tree.leaves, (results, wanted, jax.jit(step)(*given)))
    return {
        "definitions": [made.count(f"\ndef {name}(") for made in (short, long)],
        "calls": short.count(f" = {name}("),
        "types": body.count("f32["),
        "shorter": len(short.splitlines()) < len(long.splitlines()),
        "same instructions": kinds == before,
        "same bits": all(np.array_equal(a, b) for a, b in zip(ours, plain, strict=True)),
        "close to one device": all(
            np.allclose(a, b, rtol=1e-4, atol=1e-6) for a, b in zip(ours, one, strict=True)
        ),
    }


if __name__ == "__main__":
    print(json.dumps(of(globals()[sys.argv[1]], int(sys.argv[2]), sys.argv[3])))
