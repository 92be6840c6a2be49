"""A GPT-2-like training step: embeddings, transformer layers, a tied head, cross entropy, Adam."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import models
from jax.sharding import NamedSharding, PartitionSpec

VOCABULARY, BATCH, LENGTH, WIDTH = 1024, 16, 32, models.D
BETAS, RATE = (0.9, 0.999), 1e-3
STRATEGIES = ("dp", "fsdp", "tp", "fsdp+tp")


def parameters(layers: int) -> dict[str, Any]:
    """The avals of all weights."""
    return {
        "tokens": models.shaped(VOCABULARY, WIDTH),
        "positions": models.shaped(LENGTH, WIDTH),
        "layers": [models.layer_parameters() for _ in range(layers)],
        "gain": models.shaped(WIDTH),
        "shift": models.shaped(WIDTH),
    }


def logits(p: Any, tokens: Any) -> Any:
    x = p["tokens"][tokens] + p["positions"][: tokens.shape[1]]
    for each in p["layers"]:
        x = models.layer(each, x)
    return models.norm(x, p["gain"], p["shift"]) @ p["tokens"].T


def loss(p: Any, tokens: Any, targets: Any) -> Any:
    scores = jax.nn.log_softmax(logits(p, tokens))
    return -jnp.take_along_axis(scores, targets[..., None], -1).mean()


def step(p: Any, first: Any, second: Any, count: Any, tokens: Any, targets: Any) -> Any:
    """One step of Adam: weights, moments and count before it to those after it, and the loss."""
    error, gradient = jax.value_and_grad(loss)(p, tokens, targets)
    first = _averaged(BETAS[0], first, gradient)
    second = _averaged(BETAS[1], second, jax.tree.map(jnp.square, gradient))
    count = count + 1
    corrections = [1 - beta ** count.astype(jnp.float32) for beta in BETAS]

    def moved(w: Any, m: Any, v: Any) -> Any:
        return w - RATE * (m / corrections[0]) / (jnp.sqrt(v / corrections[1]) + 1e-8)

    return jax.tree.map(moved, p, first, second), first, second, count, error


def _averaged(beta: float, moments: Any, new: Any) -> Any:
    return jax.tree.map(lambda m, n: beta * m + (1 - beta) * n, moments, new)


def shardings(strategy: str, layers: int, mesh: Any) -> Any:
    """Of the weights: those of a layer as in `models`; tensor parallelism cuts the vocabulary."""
    ways = strategy.split("+")

    def placed(name: str, rank: int) -> NamedSharding:
        return NamedSharding(mesh, models.parameter_spec(ways, name, rank))

    entries = ["t" if "tp" in ways else None, "d" if "fsdp" in ways else None]
    one = {name: placed(name, len(p.shape)) for name, p in models.layer_parameters().items()}
    return {
        "tokens": NamedSharding(mesh, PartitionSpec(*entries)),
        "positions": NamedSharding(mesh, PartitionSpec(None, entries[1])),
        "layers": [one] * layers,
        "gain": placed("g1", 1),
        "shift": placed("c1", 1),
    }


def case(strategy: str, layers: int) -> tuple[Callable[..., Any], Any, Any, Any, Any]:
    """A function, its avals, the shardings of its arguments and results, and the mesh."""
    mesh = models.jax_mesh(**models.MESHES[strategy])
    weights, given = parameters(layers), shardings(strategy, layers, mesh)
    batch = jax.ShapeDtypeStruct((BATCH, LENGTH), jnp.int32)
    count = jax.ShapeDtypeStruct((), jnp.int32)
    data = NamedSharding(mesh, PartitionSpec("d" if "d" in mesh.axis_names else None))
    whole = NamedSharding(mesh, PartitionSpec())
    avals = (weights, weights, weights, count, batch, batch)
    inputs = (given, given, given, whole, data, data)
    return step, avals, inputs, (given, given, given, whole, whole), mesh
