"""Gradients of micro-batches: added up in a loop, and summed over devices only once, after the
loop.

Data-parallel training processes a batch in parts, the micro-batches, to use less memory. The
gradient of each part is a sum over the devices along `data`. `mode="cheapest"` carries the terms of
that sum through the loop, which therefore moves no gradient. The backward pass recomputes each
layer, as `jax.checkpoint` requests. Runs on eight CPU devices:

    python examples/micro_batches.py
"""

import os
from pathlib import Path

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"

import jax
import jax.numpy as jnp
import numpy as np

import shardwright as sw

LAYERS, PARTS, ROWS, WIDTH = 4, 8, 64, 32


def loss(weights, x, y):
    @jax.checkpoint
    def layer(h, w):
        return jnp.tanh(h @ w), None

    h, _ = jax.lax.scan(layer, x, weights)
    return ((h - y) ** 2).mean()


def train(weights, xs, ys):
    """Take one step of gradient descent on the micro-batches of a batch."""

    def add(total, part):
        value, gradient = jax.value_and_grad(loss)(weights, *part)
        return (total[0] + value, total[1] + gradient), None

    nothing = (jnp.zeros(()), jnp.zeros_like(weights))
    (value, gradient), _ = jax.lax.scan(add, nothing, (xs, ys))
    return value / PARTS, weights - 0.1 * gradient / PARTS


def shaped(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32)


batch = shaped(PARTS, ROWS, WIDTH)
program = sw.partition(
    train,
    *(shaped(LAYERS, WIDTH, WIDTH), batch, batch),
    mesh=sw.Mesh({"data": 8}),
    in_shardings=("[{}, {}, {}]", '[{}, {"data"}, {}]', '[{}, {"data"}, {}]'),
    out_shardings=("[]", "[{}, {}, {}]"),
    mode="cheapest",
)
for each in program.communications:
    print(each)
assert [each.times for each in program.communications] == [1]  # no communication in the loop
sw.emit(program).write(Path(__file__).parent / "kernels" / "micro_batches")

from kernels.micro_batches import jax_spmd  # noqa: E402  # written above

rng = np.random.default_rng(0)
weights, xs, ys = (
    rng.standard_normal(shape).astype(np.float32) * scale
    for shape, scale in (
        ((LAYERS, WIDTH, WIDTH), 0.2),
        ((PARTS, ROWS, WIDTH), 1.0),
        ((PARTS, ROWS, WIDTH), 0.5),
    )
)
step = jax_spmd.program(jax.make_mesh((8,), ("data",)))
for each, one in zip(step(weights, xs, ys), jax.jit(train)(weights, xs, ys), strict=True):
    np.testing.assert_allclose(each, one, rtol=1e-5, atol=1e-6)
print("the step is right: one device's loss and weights")
