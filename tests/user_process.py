"""Runs users' functions beside one device on random meshes, in a process of its own.

python tests/user_process.py FIRST LAST [NAME …]: with the seeds from FIRST to before LAST each
function is run on a mesh, with shardings and in a mode of its own; prints what differs as JSON.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import random
import sys
from collections.abc import Iterator
from typing import Any

from cpu_devices import flags

os.environ["XLA_FLAGS"] = flags(8)
os.environ["JAX_PLATFORMS"] = "cpu"

import emitted
import jax
import jax.numpy as jnp
import numpy as np
import user_arrays
import user_cases
import user_flow
from user_cases import UserCase

import shardwright as sw

jax.config.update("jax_disable_most_optimizations", True)

MESHES = ((2,), (4,), (8,), (2, 2), (2, 4), (4, 2), (2, 2, 2))


def sharding(rng: random.Random, shape: tuple[int, ...], sizes: dict[str, int]) -> str | None:
    """A random sharding that divides, some of it open; None: nothing is said."""
    dims: list[list[str]] = [[] for _ in shape]
    for name in rng.sample([*sizes], len(sizes)):
        fits = [
            dim
            for dim, extent in enumerate(shape)
            if extent and extent % math.prod(sizes[n] for n in (*dims[dim], name)) == 0
        ]
        if fits and rng.random() < 0.75:
            dims[rng.choice(fits)].append(name)
    opened = rng.random() < 0.5
    texts = []
    for own in dims:
        items = [*(f'"{name}"' for name in own), *(["?"] if opened and rng.random() < 0.5 else [])]
        texts.append(f"{{{', '.join(items)}}}")
    return None if rng.random() < 0.1 else f"[{', '.join(texts)}]"


def of(rng: random.Random, tree: Any, sizes: dict[str, int]) -> Any:
    def one(leaf: Any) -> str | None:
        is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        return None if is_key else sharding(rng, leaf.shape, sizes)

    return jax.tree.map(one, tree)


def difference(one: Any, ours: Any) -> str:
    """How what any device holds differs: floats by more than rounding, others at all."""
    if jax.tree.map(jnp.shape, one) != jax.tree.map(jnp.shape, ours):
        return "other shapes"
    for own, made in zip(jax.tree.leaves(one), jax.tree.leaves(ours), strict=True):
        if own.dtype != made.dtype:
            return f"{made.dtype}, not {own.dtype}"
        if jnp.issubdtype(own.dtype, jax.dtypes.prng_key):
            own, made = jax.random.key_data(own), jax.random.key_data(made)
        for shard in made.addressable_shards if made.size else ():
            if not _alike(np.asarray(own)[shard.index], np.asarray(shard.data), np.asarray(own)):
                return f"device {shard.device.id} has other values"
    return ""


def _alike(one: Any, ours: Any, whole: Any) -> bool:
    if not jnp.issubdtype(one.dtype, jnp.inexact):
        return np.array_equal(one, ours)
    wide = np.complex128 if np.iscomplexobj(one) else np.float64
    one, ours, whole = (np.asarray(x, wide) for x in (one, ours, whole))
    scale = np.max(np.abs(whole[np.isfinite(whole)]), initial=0)
    eps = float(jnp.finfo(whole.dtype if wide is np.complex128 else np.float32).eps)
    return np.allclose(one, ours, rtol=0, atol=200 * eps * scale, equal_nan=True)


def fault(case: UserCase, rng: random.Random) -> str:
    """What is wrong with a case on a random mesh; the empty string if nothing is."""
    sizes = dict(zip("xyz", rng.choice(MESHES), strict=False))
    mode = rng.choice(("as_shardy", "cheapest"))
    one = jax.jit(case.fn)(*case.given)
    given = of(rng, case.given, sizes)
    made = of(rng, one, sizes) if rng.random() < 0.4 else None
    said = f"{sizes} {given} {made} {mode}: "
    try:
        avals = jax.tree.map(jax.typeof, case.given)
        sides = {"in_shardings": given, "out_shardings": made, "mode": mode}
        program = sw.partition(case.fn, *avals, mesh=sw.Mesh(sizes), **sides)
        on_mesh = jax.make_mesh(tuple(sizes.values()), tuple(sizes))
        ours = jax.block_until_ready(emitted.module_of(program)["program"](on_mesh)(*case.given))
    except Exception as error:  # whatever a case raises is what is wrong with it
        return f"{said}{type(error).__name__}: {error}"[:800]
    found = difference(one, ours)
    return found and said + found


def cases() -> Iterator[tuple[str, UserCase]]:
    for name, case in itertools.chain(user_arrays.cases(), user_flow.cases()):
        yield name, case
        if case.smooth:
            yield f"gradient of {name}", user_cases.gradient(case)


def main(first: int, last: int, *names: str) -> dict[str, str]:
    found = {}
    for name, case in cases():
        for seed in range(first, last) if not names or name in names else ():
            found[f"{name}, seed {seed}"] = fault(case, random.Random(f"{name} {seed}"))
    return found


if __name__ == "__main__":
    print(json.dumps(main(*map(int, sys.argv[1:3]), *sys.argv[3:])))
