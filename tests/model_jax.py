"""Models on forced CPU devices: TOY DEVICES LIMIT DIGEST ..., the verdict on each a line."""

from __future__ import annotations

import os
import sys

from cpu_devices import flags

if __name__ == "__main__":
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["XLA_FLAGS"] = flags(12)

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from toy_models import TOYS, Held, Moved, bits, planned

from shardwright.templates.support import jax_model

PLACES = {
    "3": ([0, 1], [2]),
    "8": ([3, 1, 0, 2], [4, 5, 6, 7]),
    "12": ([*range(8)], [8, 9, 10, 11]),
    "overlapping": ([0, 1, 2, 3], [3, 2, 1, 0]),
}


def main() -> None:
    """Say what each is."""
    for asked in sys.argv[1:]:
        toy, places, limit, fault = asked.split(",")
        model = TOYS[toy](*PLACES[places])
        try:
            print(moved(model, int(limit), fault))
        except (ValueError, RuntimeError) as error:
            print(f"{type(error).__name__}: {error}")


def moved(model: list[Moved], limit: int, fault: str) -> str:
    """Move a model twice, and compare."""
    weights = jax_model.Weights(planned(model, limit).data)
    before, after = bits(model, limit)
    state = arrays(weights, before)
    name = next(iter(state))
    said: list[Any] = []
    if fault == "missing":
        del state[name]
    elif fault == "dtype":
        state[name] = state[name].astype("float32")
    elif fault == "sharding":
        state[name] = jax.device_put(state[name], jax.devices()[0])
    elif fault == "extra":
        state["more"] = state[name]
    elif fault == "changed":
        jax.lax.ppermute = changed(jax.lax.ppermute)
    for _ in range(2):
        said.clear()
        digest = fault in ("digest", "changed")
        progress: Any = 3 if fault == "progress" else lambda *given: said.append(given)
        results = weights(state, progress=progress, digest=digest)
    check(weights, results, after)
    assert said[-1][0] == said[-1][1]
    assert len(said) == len(weights.moves.buckets)
    return f"right, {len(said)} buckets, {weights.unit.cache_info().misses} programs"


def changed(permute: Any) -> Any:
    """A permute that changes a bit of the first element."""
    return lambda x, *given: (
        permute(x, *given).at[0].set(x[0] ^ 1) if x.size > 50 else permute(x, *given)
    )


def arrays(weights: jax_model.Weights, before: Held) -> dict[str, Any]:
    """The arrays of what devices store; ones where buffers are padded."""
    found = {}
    ids = {device: each for each, device in zip(weights.moves.ranks, jax.devices(), strict=False)}
    for name, struct in weights.source_shardings().items():
        local, sharding = struct.sharding.shard_shape(struct.shape), struct.sharding
        shards = []
        for device in sharding.mesh.devices.flat:
            held = before[ids[device]][name]
            padded = np.ones(local, held.dtype)
            padded[tuple(map(slice, held.shape))] = held
            shards.append(jax.device_put(padded.view(struct.dtype), device))
        make = jax.make_array_from_single_device_arrays
        found[name] = make(struct.shape, sharding, shards)
    return found


def check(weights: jax_model.Weights, results: dict[str, Any], after: Held) -> None:
    """Devices have these bits, in arrays as `target_shardings` says."""
    assert {name for each in after.values() for name in each} == {*results}
    ids = {device: each for each, device in zip(weights.moves.ranks, jax.devices(), strict=False)}
    for name, struct in weights.target_shardings().items():
        y = results[name]
        assert (y.shape, y.dtype, y.sharding) == (struct.shape, struct.dtype, struct.sharding)
        for shard in y.addressable_shards:
            wanted = after[ids[shard.device]][name]
            padded = np.zeros(shard.data.shape, wanted.dtype)
            padded[tuple(map(slice, wanted.shape))] = wanted
            got = np.asarray(jnp.asarray(shard.data)).view(wanted.dtype)
            np.testing.assert_array_equal(got, padded, f"{name} of {shard.device}")


if __name__ == "__main__":
    main()
