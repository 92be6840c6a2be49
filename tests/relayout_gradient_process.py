"""Cotangents of a relayout's module, as JAX finds them: MODULE FOLDER. Prints `ok`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from cpu_devices import flags

os.environ["XLA_FLAGS"] = flags(4)

import jax
import jax.numpy as jnp
import numpy as np

from shardwright.codegen.checks.load import load

module = load(Path(sys.argv[1]))
mesh = jax.make_mesh((2, 2), ("dp", "tp"))
numbers = np.random.default_rng(0)
shapes = {"q": (8, 3), "k": (4, 3)}
given = {
    name: jax.device_put(numbers.integers(-4, 5, shapes[name]).astype(np.float32), sharding)
    for name, sharding in module.source_sharding(mesh).items()
}
moved = module.reshard(given, mesh, interpret=True)
weights = {name: numbers.integers(-4, 5, y.shape).astype(np.float32) for name, y in moved.items()}


def loss(buffers):
    results = module.reshard(buffers, mesh, interpret=True)
    return sum((jnp.asarray(weights[name]) * results[name]).sum() for name in results)


stacked, padded = weights["stack"].reshape(4, 6, 3), weights["padded"].reshape(8, 3)
q = np.concatenate([each[:2] + each[4:] for each in stacked])
k = np.concatenate([stacked[0, 2:4] + stacked[1, 2:4], stacked[2, 2:4] + stacked[3, 2:4]])
k += padded[:4]  # the other rows have no element
for gradient in (jax.grad(loss), jax.jit(jax.grad(loss))):
    found = gradient(given)
    for name, expected in (("q", q), ("k", k)):
        for shard in found[name].addressable_shards:  # replicas have the same
            np.testing.assert_array_equal(np.asarray(shard.data), expected[shard.index])
        assert found[name].sharding.is_equivalent_to(given[name].sharding, 2)
print("ok")
