"""The loss and gradients of a transformer layer, sharded over eight devices in five ways.

BY_FEATURE gives the dimension along which tensor parallelism splits each parameter, here heads and
hidden features; without it, parameters would be split as in `network.py`. The pipeline has four
such layers as its stages, and splits the rows of the batch over two devices per stage. Loss and
gradients are compared with those computed on one device. Runs on eight CPU devices:

    python examples/strategies/layer.py
"""

import os
from pathlib import Path

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"

import importlib

import jax
import jax.numpy as jnp
import numpy as np

import shardwright as sw

BATCH, LENGTH, WIDTH, HEADS, HIDDEN = 8, 16, 32, 8, 64
HERE = Path(__file__).parent
SHAPES = {
    **dict.fromkeys(("wq", "wk", "wv"), (WIDTH, HEADS, WIDTH // HEADS)),
    "wo": (HEADS, WIDTH // HEADS, WIDTH),
    "w1": (WIDTH, HIDDEN),
    "w2": (HIDDEN, WIDTH),
}
BY_FEATURE = {"wq|wk|wv": 1, "wo": 0, "w1": 1, "w2": 0}


def norm(x):
    x = x - x.mean(-1, keepdims=True)
    return x * jax.lax.rsqrt((x**2).mean(-1, keepdims=True) + 1e-5)


def layer(p, x):
    q, k, v = (jnp.einsum("bsd,dhk->bshk", norm(x), p[name]) for name in ("wq", "wk", "wv"))
    scores = jnp.einsum("bshk,bthk->bhst", q, k) / q.shape[-1] ** 0.5
    causal = jnp.tril(jnp.ones((x.shape[1], x.shape[1]), bool))
    weights = jax.nn.softmax(jnp.where(causal, scores, -1e30))
    x = x + jnp.einsum("bhst,bthk,hkd->bsd", weights, v, p["wo"])
    return x + jax.nn.gelu(norm(x) @ p["w1"]) @ p["w2"]


def loss(p, x, y):
    return jnp.mean((layer(p, x) - y) ** 2)


def made(rng, *shape):
    return (rng.standard_normal(shape) / np.sqrt(WIDTH)).astype(np.float32)


def shown(name, function, given, mesh, shardings, expected):
    """Partition a loss with its gradient, emit and run the program, and check its results."""
    program = sw.partition(
        jax.value_and_grad(function), *given, mesh=mesh, in_shardings=shardings, mode="cheapest"
    )
    sw.emit(program).write(HERE / "emitted" / f"layer_{name}")
    module = importlib.import_module(f"emitted.layer_{name}.jax_spmd")
    kinds = (jax.sharding.AxisType.Auto,) * len(mesh.names)
    devices = jax.make_mesh(tuple(mesh.sizes.values()), mesh.names, kinds)
    found = module.program(devices)(*given)
    for ours, one in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(ours, one, rtol=1e-4, atol=1e-5)
    print(f"{name:22} {program.bytes_received:>10,} B into the busiest device")


rng = np.random.default_rng(0)
parameters = {name: made(rng, *shape) for name, shape in SHAPES.items()}
x, y = made(rng, BATCH, LENGTH, WIDTH), made(rng, BATCH, LENGTH, WIDTH)
one = jax.value_and_grad(loss)(parameters, x, y)
data, model = sw.Mesh({"data": 8}), sw.Mesh({"model": 8})
both = sw.Mesh({"data": 4, "model": 2})
ways, rows, whole = sw.strategies, '[{"data"}, {}, {}]', "[{}, {}, {}]"
for name, mesh, layout, batch in (
    ("data_parallel", data, ways.data_parallel(parameters, data), rows),
    ("fsdp", data, ways.fsdp(parameters, data, "data"), rows),
    ("tensor_parallel", model, ways.tensor_parallel(parameters, model, "model", BY_FEATURE), whole),
    (
        "fsdp_tensor_parallel",
        both,
        ways.fsdp_tensor_parallel(parameters, both, "data", "model", BY_FEATURE),
        rows,
    ),
):
    shown(name, loss, (parameters, x, y), mesh, (layout, batch, batch), one)

stages = sw.Mesh({"stages": 4, "data": 2})
pipe = ways.pipeline(layer, stages, "stages", microbatches=4)
stacked = {name: made(rng, 4, *shape) for name, shape in SHAPES.items()}


def in_turn(p, x, y):
    for stage in range(4):
        x = layer(jax.tree.map(lambda leaf, stage=stage: leaf[stage], p), x)
    return jnp.mean((x - y) ** 2)


def pipelined(p, x, y):
    return jnp.mean((pipe(p, x) - y) ** 2)


one = jax.value_and_grad(in_turn)(stacked, x, y)
where = (pipe.shardings(stacked), rows, rows)
shown("pipeline", pipelined, (stacked, x, y), stages, where, one)
print(f"{'':22} {pipe.ticks} ticks, of which a stage waits {pipe.bubble:.0%}")
print("losses and gradients are right")
