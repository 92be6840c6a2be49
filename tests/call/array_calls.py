"""`sw.reshard` of arrays on eight CPU devices: random shardings, in a jit and not, with gradients.

Arguments: how many random cases. Prints, for each way that was taken, how often. Exit code 1 and a
traceback where a value, a sharding or a gradient is wrong.
"""

from __future__ import annotations

import collections
import logging
import os
import random
import sys

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import numpy as np
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import shardwright as sw

MESHES = ((2, 4), (8,), (2, 2, 2), (4, 2), (3, 2), (2, 3))
DTYPES = ("float32", "bfloat16", "int8", "float16", "uint32", "bool")


class Ways(logging.Handler):
    """Counts who reshards."""

    def __init__(self) -> None:
        super().__init__()
        self.found: collections.Counter[str] = collections.Counter()

    def emit(self, record: logging.LogRecord) -> None:
        self.found[record.getMessage().split(": ")[1].split(",")[0]] += 1


def random_spec(rng: random.Random, names: tuple[str, ...], rank: int) -> P:
    """Axes given at random to dimensions, or to none."""
    entries: list[list[str]] = [[] for _ in range(rank)]
    for name in rng.sample(names, len(names)):
        if rng.random() < 0.75:
            rng.choice(entries).append(name)
    return P(*(tuple(each) or None for each in entries))


def random_case(rng: random.Random, kind: AxisType) -> tuple:
    """A mesh, an array on it that both shardings divide, and the shardings."""
    sizes = rng.choice(MESHES)
    names = ("x", "y", "z")[: len(sizes)]
    count = int(np.prod(sizes))
    devices = rng.sample(jax.devices(), count)
    mesh = jax.sharding.Mesh(
        np.array(devices).reshape(sizes), names, axis_types=(kind,) * len(sizes)
    )
    rank = rng.randint(1, 3)
    shape = tuple(count * rng.randint(1, 2) for _ in range(rank))
    dtype = rng.choice(DTYPES)
    whole = np.random.default_rng(rng.randrange(2**31)).integers(0, 2, shape).astype(bool)
    if dtype != "bool":
        numbers = np.random.default_rng(rng.randrange(2**31)).integers(0, 100, shape)
        whole = numbers.astype(jax.numpy.dtype(dtype))
    sides = (NamedSharding(mesh, random_spec(rng, names, rank)) for _ in range(2))
    return mesh, whole, *sides


def check(found: jax.Array, whole: np.ndarray, target: NamedSharding) -> None:
    """The values are those, and the sharding is the target's."""
    assert found.sharding.is_equivalent_to(target, whole.ndim), (found.sharding, target)
    assert found.dtype == whole.dtype
    assert (np.asarray(found) == whole).all()
    for shard in found.addressable_shards:
        assert (np.asarray(shard.data) == whole[shard.index]).all(), shard.device


def check_gradient(x: jax.Array, target: NamedSharding, source: NamedSharding) -> None:
    """The gradient of half the squares of the result is the array."""

    def loss(x: jax.Array) -> jax.Array:
        y = sw.reshard(x, target, source=source).astype("float32")
        return (y * y).sum() / 2

    found = jax.jit(jax.grad(loss))(x)
    assert (np.asarray(found) == np.asarray(x)).all()


def main(count: int) -> None:
    """Run cases of both kinds of axes."""
    ways = Ways()
    logging.getLogger("shardwright").addHandler(ways)
    logging.getLogger("shardwright").setLevel(logging.INFO)
    for seed in range(count):
        rng = random.Random(seed)
        kind = AxisType.Explicit if seed % 2 else AxisType.Auto
        mesh, whole, source, target = random_case(rng, kind)
        x = jax.device_put(whole, source)
        check(sw.reshard(x, target), whole, target)
        given = source if kind == AxisType.Auto or seed % 4 == 1 else None
        with jax.set_mesh(mesh):
            moved = jax.jit(lambda x: sw.reshard(x, target, source=given))  # noqa: B023
            check(moved(x), whole, target)
            if whole.dtype == "float32":
                check_gradient(x, target, source)
    print(" ".join(f"{who}={times}" for who, times in sorted(ways.found.items())))


if __name__ == "__main__":
    main(int(sys.argv[1]))
