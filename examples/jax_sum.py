"""A pending sum: partial sums on devices become shards of the sum.

After a data-parallel backward pass every device along `data` has a term of the gradient. The source
sharding states this (`unreduced={"data"}`), and the reshard adds the terms while it moves them.
Here the target splits rows over `data`, so the reshard is a reduce-scatter; any other target works
too. Runs on eight CPU devices:

    python examples/jax_sum.py
"""

import os
from pathlib import Path

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"

import jax
import numpy as np

import shardwright as sw

mesh = sw.Mesh({"data": 4, "model": 2})
source = mesh.sharding('[{}, {"model"}], unreduced={"data"}')
reshard = sw.reduce_scatter((16, 8), "float32", source, "data", dim=0)
assert str(reshard.target) == '[{"data"}, {"model"}]'
sw.emit(reshard, backends=("jax_xla",)).write(Path(__file__).parent / "kernels" / "gradient_sum")

from kernels.gradient_sum import jax_xla  # noqa: E402  # written above

# The unreduced axes split a leading dimension, which has one entry per term.
terms = np.random.default_rng(0).integers(-8, 8, (4, 16, 8)).astype(np.float32)
devices = jax.make_mesh((4, 2), ("data", "model"))
x = jax.device_put(terms, jax_xla.source_sharding(devices))
y = jax.jit(lambda x: jax_xla.reshard(x, devices))(x)

assert y.sharding.is_equivalent_to(jax_xla.target_sharding(devices), 2)
np.testing.assert_array_equal(y, terms.sum(0))
print("the shards of the sum are right")
