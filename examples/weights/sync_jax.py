"""RL weight sync in JAX, in two processes of three devices each.

The trainer has devices 0 to 3, on both processes. The server has the devices of its mesh in the
config: two others (`disjoint`), or two of the trainer's and one more (`overlapping`). All arrays of
a pytree move in one exchange, without a gather. Emit, then run the script, which starts both
processes:

    shardwright emit examples/weights/disjoint.toml
    python examples/weights/sync_jax.py disjoint

    shardwright emit examples/weights/overlapping.toml
    python examples/weights/sync_jax.py overlapping
"""

import importlib
import os
import socket
import subprocess
import sys

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=3"

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding

SHAPES = {"embed": (50, 24), "wq": (24, 24), "wo": (24, 24), "w1": (64, 24), "w2": (24, 64)}
SERVER = {"disjoint": [4, 5], "overlapping": [2, 3, 4]}


def main(name: str, process: int, port: int) -> None:
    """Move the weights, and check the shards on this process's devices."""
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"localhost:{port}", num_processes=2, process_id=process)
    devices = np.array(jax.devices())
    trainer = Mesh(devices[:4].reshape(2, 2), ("fsdp", "tp"))
    server = Mesh(devices[SERVER[name]], ("tp",))
    weights = importlib.import_module(name).load("weights", "jax_xla")
    whole = tensors()
    trained = jax.tree.map(placed, whole, nested(weights.source_sharding(trainer)))
    served = weights.reshard(trained, trainer, target_mesh=server)
    found = sum(jax.tree.leaves(jax.tree.map(checked, served, whole)))
    print(f"process {process}: {found} shards of the server are right")
    jax.distributed.shutdown()


def tensors() -> dict[str, object]:
    """Return the whole arrays as a tree, the same in both processes."""
    random = np.random.default_rng(0)
    drawn = {key: random.normal(size=shape).astype("f4") for key, shape in SHAPES.items()}
    norm = random.normal(size=24).astype("f4")
    return {"embed": drawn.pop("embed"), "layer0": {**drawn, "norm": norm}}


def nested(shardings: dict[str, NamedSharding]) -> dict[str, object]:
    """Return a group's shardings, which it lists by name, as a tree like that of the weights."""
    layer = {key: shardings[f"layer0_{key}"] for key in ("wq", "wo", "w1", "w2", "norm")}
    return {"embed": shardings["embed"], "layer0": layer}


def placed(x: np.ndarray, sharding: NamedSharding) -> jax.Array:
    """Return an array over all processes, made from the shards on this process's devices."""
    return jax.make_array_from_callback(x.shape, sharding, lambda index: x[index])


def checked(y: jax.Array, whole: np.ndarray) -> int:
    """Compare the shards of this process with the whole array, and return their number. If an
    extent does not divide evenly, the last shards are padded."""
    padded = np.pad(whole, [(0, n - k) for n, k in zip(y.shape, whole.shape, strict=True)])
    for shard in y.addressable_shards:
        np.testing.assert_array_equal(shard.data, padded[shard.index])
    return len(y.addressable_shards)


def start(name: str) -> int:
    """Start both processes; return the larger of their exit statuses."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    words = [sys.executable, __file__, name]
    both = [subprocess.Popen([*words, number, port]) for number in ("0", "1")]
    return max(process.wait() for process in both)


if __name__ == "__main__":
    if len(sys.argv) == 2:
        sys.exit(start(sys.argv[1]))
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
