"""A sharded matmul: the planner chooses which operand moves, and when partial sums are added.

Both operands are split along the contracting dimension by axis `y`. Each device multiplies its
shards into a partial sum; the partial sums are then added, and the rows of the sum are scattered.
Runs on eight CPU devices:

    python examples/jax_matmul.py
"""

import os
from pathlib import Path

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"

import jax
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import shardwright as sw

lhs, rhs, out = P("x", "y"), P("y", None), P(("x", "y"), None)
matmul = sw.Matmul("float32", ((64, 32), lhs), ((32, 48), rhs), out, mesh="x=4,y=2")
plan = sw.plan(matmul)
print(f"{plan.chosen.cost.received_max} bytes into the busiest device")
sw.emit(plan).write(Path(__file__).parent / "kernels" / "projection")

from kernels.projection import jax_xla  # noqa: E402  # written above

mesh = jax.make_mesh((4, 2), ("x", "y"))
random = np.random.default_rng(0)
a, b = (random.integers(-4, 5, shape).astype(np.float32) for shape in ((64, 32), (32, 48)))
given = (jax.device_put(a, NamedSharding(mesh, lhs)), jax.device_put(b, NamedSharding(mesh, rhs)))
c = jax.jit(lambda a, b: jax_xla.matmul(a, b, mesh))(*given)

assert c.sharding.is_equivalent_to(NamedSharding(mesh, out), 2)
np.testing.assert_array_equal(c, a @ b)
print("the product is right")
