"""A checkpoint group: one jitted call moves all tensors of a checkpoint from one mesh to another.

The config in this folder lists the tensors, their shardings when saved, and the shardings to
restore them in. The call takes a tree of arrays and returns a tree of the same structure. Emit the
group, then run it on eight CPU devices:

    shardwright emit examples/checkpoint/shardwright.toml
    python examples/checkpoint/restore.py
"""

import os

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"

import jax
import numpy as np
from emitted import load
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

checkpoint = load("checkpoint", "jax_xla")
saved_on = jax.make_mesh((8,), ("fsdp",))
wanted_on = jax.make_mesh((2, 4), ("data", "model"))

random = np.random.default_rng(0)
attention = {"qkv": random.normal(size=(32, 96)), "out": random.normal(size=(32, 32))}
mlp = {"up": random.normal(size=(32, 128)), "down": random.normal(size=(128, 32))}
layer = {"attention": attention, "mlp": mlp, "norm": np.ones(32)}
tree = {"embed": random.normal(size=(96, 32)), "layers": {"0": layer}}
tree = {**jax.tree.map(np.float32, tree), "step": np.int32(1000)}


def saved(x):
    """Return an array as loaded from disk: rows split over all devices, scalars on every device."""
    return jax.device_put(x, NamedSharding(saved_on, P("fsdp") if np.ndim(x) else P()))


@jax.jit
def restore(tree):
    return checkpoint.reshard(tree, saved_on, target_mesh=wanted_on)


restored = restore(jax.tree.map(saved, tree))
jax.tree.map(np.testing.assert_array_equal, restored, tree)
up = restored["layers"]["0"]["mlp"]["up"]
assert up.sharding.is_equivalent_to(NamedSharding(wanted_on, P("data", "model")), 2)
print(f"{len(jax.tree.leaves(restored))} arrays are restored")
