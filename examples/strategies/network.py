"""A network sharded over eight devices in five ways, from one function that mentions none of them.

The ways are data parallelism, fully sharded data parallelism, tensor parallelism, the last two
together, and a pipeline. Each of the first four is a tree of shardings for the parameters; the
pipeline is a function of stacked parameters. Loss and gradients are compared with those computed on
one device. Runs on eight CPU devices:

    python examples/strategies/network.py
"""

import os
from pathlib import Path

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"

import importlib
import itertools

import jax
import jax.numpy as jnp
import numpy as np

import shardwright as sw

SIZES, BATCH = [784, 128, 128, 128, 128, 128, 8], 32
HERE = Path(__file__).parent


def layer(parameters, x):
    w, b = parameters
    return jax.nn.relu(x @ w + b)


def predict(parameters, x):
    *inner, (w, b) = parameters
    for each in inner:
        x = layer(each, x)
    return x @ w + b


def loss(parameters, inputs, targets):
    error = predict(parameters, inputs) - targets
    return jnp.mean(jnp.sum(error**2, axis=-1))


def arguments():
    """Return parameters, inputs and targets."""
    rng = np.random.default_rng(0)

    def made(*shape):
        return rng.standard_normal(shape).astype(np.float32)

    pairs = itertools.pairwise(SIZES)
    parameters = [(made(n, m) / np.float32(np.sqrt(n)), made(m)) for n, m in pairs]
    return parameters, made(BATCH, SIZES[0]), made(BATCH, SIZES[-1])


def shown(name, function, given, mesh, shardings, expected):
    """Partition a loss with its gradient, emit and run the program, and check its results."""
    program = sw.partition(
        jax.value_and_grad(function), *given, mesh=mesh, in_shardings=shardings, mode="cheapest"
    )
    sw.emit(program).write(HERE / "emitted" / name)
    module = importlib.import_module(f"emitted.{name}.jax_spmd")
    kinds = (jax.sharding.AxisType.Auto,) * len(mesh.names)
    devices = jax.make_mesh(tuple(mesh.sizes.values()), mesh.names, kinds)
    found = module.program(devices)(*given)
    for ours, one in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(ours, one, rtol=2e-4, atol=2e-4)
    print(f"{name:22} {program.bytes_received:>10,} B into the busiest device")


def pipelined(microbatches):
    """Return two functions: a pipeline of the inner layers, one in each of four stages, and the
    loss of the network that uses this pipeline."""
    mesh = sw.Mesh({"stages": 4})
    pipe = sw.strategies.pipeline(layer, mesh, "stages", microbatches)

    def pipelined_loss(parameters, inputs, targets):
        first, inner, (w, b) = parameters
        error = pipe(inner, layer(first, inputs)) @ w + b - targets
        return jnp.mean(jnp.sum(error**2, axis=-1))

    return pipe, pipelined_loss


def stacked(parameters):
    """Return the parameters of the first layer, the inner layers (stacked) and the last layer."""
    first, *inner, last = parameters
    return first, jax.tree.map(lambda *each: np.stack(each), *inner), last


parameters, inputs, targets = given = arguments()
one = jax.value_and_grad(loss)(*given)
data, features = sw.Mesh({"batch": 8}), sw.Mesh({"feats": 8})
both = sw.Mesh({"batch": 4, "feats": 2})
ways = sw.strategies
rows, columns = '[{"batch"}, {}]', '[{}, {"feats"}]'
for name, mesh, layout, batch in (
    ("data_parallel", data, ways.data_parallel(parameters, data), rows),
    ("fsdp", data, ways.fsdp(parameters, data, "batch"), rows),
    ("tensor_parallel", features, ways.tensor_parallel(parameters, features, "feats"), columns),
    (
        "fsdp_tensor_parallel",
        both,
        ways.fsdp_tensor_parallel(parameters, both, "batch", "feats"),
        '[{"batch"}, {"feats"}]',
    ),
):
    shown(name, loss, given, mesh, (layout, batch, batch), one)

pipe, pipelined_loss = pipelined(microbatches=8)
split = (stacked(parameters), inputs, targets)
where = (("[{}, {}]", "[{}]"), pipe.shardings(split[0][1]), ("[{}, {}]", "[{}]"))
expected = (one[0], stacked(one[1]))
shown("pipeline", pipelined_loss, split, pipe.mesh, (where, "[{}, {}]", "[{}, {}]"), expected)
print(f"{'':22} {pipe.ticks} ticks, of which a stage waits {pipe.bubble:.0%}")
print("losses and gradients are right")
