"""`sw.reshard` of an array outside of jit, one of two processes under `jax.distributed`.

Arguments: the rank, the port of the first process. Prints who resharded, then "ok".
"""

from __future__ import annotations

import logging
import os
import sys

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import shardwright as sw

WHOLE = np.arange(16 * 24, dtype=np.float32).reshape(16, 24)


def check(source: NamedSharding, target: NamedSharding) -> None:
    """The process has its devices' shards, and the sharding is the one asked for."""
    x = jax.make_array_from_callback(WHOLE.shape, source, lambda index: WHOLE[index])
    y = sw.reshard(x, target)
    assert y.sharding == target
    for shard in y.addressable_shards:
        assert (np.asarray(shard.data) == WHOLE[shard.index]).all()


def main(rank: int, port: int) -> None:
    """Reshard within one mesh, and to one that lists the devices otherwise."""
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"localhost:{port}", num_processes=2, process_id=rank)
    logging.basicConfig(stream=sys.stdout, format="%(message)s")
    logging.getLogger("shardwright").setLevel(logging.INFO)
    devices = np.array(jax.devices())
    mesh, other = (Mesh(d.reshape(2, 4), ("x", "y")) for d in (devices, devices[::-1]))
    check(NamedSharding(mesh, P("x", "y")), NamedSharding(mesh, P("y", "x")))
    check(NamedSharding(mesh, P("x", "y")), NamedSharding(mesh, P(None, "y")))
    check(NamedSharding(mesh, P("x", "y")), NamedSharding(other, P("y", "x")))
    print("ok")
    jax.distributed.shutdown()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
