"""A reshard inside a jitted JAX function: a module is emitted for two NamedShardings and called
under `jax.jit`.

An 8 x 12 array is split over both axes of a 2 x 4 mesh, and must be resharded with the axes
swapped. The gradient of the call is the reverse reshard, which is emitted too. Runs on eight CPU
devices:

    python examples/jax_reshard.py
"""

import os
from pathlib import Path

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import shardwright as sw

mesh = jax.make_mesh((2, 4), ("x", "y"))
before, after = NamedSharding(mesh, P("x", "y")), NamedSharding(mesh, P("y", "x"))

reshard = sw.Reshard((8, 12), jnp.float32, before, after)
bundle = sw.emit(reshard, backends=("jax_xla",), gradient=True)
bundle.write(Path(__file__).parent / "kernels" / "swap")
moved = bundle.plan.traffic
print(f"{moved.received_max} bytes into the busiest device, {moved.bound_received_max} at least")

from kernels.swap import jax_xla  # noqa: E402  # written above


@jax.jit
def loss(x):
    y = jax_xla.reshard(jnp.sin(x), mesh)
    return (y * y).sum()


x = jax.device_put(jnp.arange(96.0).reshape(8, 12), before)
y = jax.jit(lambda x: jax_xla.reshard(x, mesh))(x)
assert y.sharding.is_equivalent_to(after, 2)
assert (jax.device_get(y) == jax.device_get(x)).all()

gradient = jax.jit(jax.grad(loss))(x)
assert gradient.sharding.is_equivalent_to(before, 2)
assert jnp.allclose(gradient, 2 * jnp.sin(x) * jnp.cos(x), atol=1e-5)
print("the values and the gradient are right")
