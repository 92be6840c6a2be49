"""More models to compare with Shardy's passes: what they use beside matmuls and norms."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec
from models import jax_mesh, shaped

PARAMETERS = {
    "convolutions": {"a": shaped(3, 3, 4, 16), "b": shaped(3, 3, 16, 32), "head": shaped(32, 8)},
    "experts": {"gate": shaped(32, 4), "up": shaped(4, 32, 64), "down": shaped(4, 64, 32)},
    "dropped": {"w": shaped(32, 64), "v": shaped(64, 32)},
}


def convolutions(p: Any, x: Any) -> Any:
    """Convolutions, pooling, a head."""

    def convolved(x: Any, w: Any) -> Any:
        numbers = ("NHWC", "HWIO", "NHWC")
        return jax.nn.relu(
            jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=numbers)
        )

    x = convolved(x, p["a"])
    window = (1, 2, 2, 1)
    x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, window, "VALID")
    return convolved(x, p["b"]).mean((1, 2)) @ p["head"]


def experts(p: Any, x: Any) -> Any:
    """A mixture of experts by einsum, each token to its best one."""
    scores = jax.nn.softmax(x @ p["gate"])
    chosen = jax.nn.one_hot(jnp.argmax(scores, -1), 4) * scores
    hidden = jax.nn.relu(jnp.einsum("bd,edf->ebf", x, p["up"]))
    return jnp.einsum("ebf,efd,be->bd", hidden, p["down"], chosen)


def dropped(p: Any, x: Any) -> Any:
    """Dropout, and a layer that is computed again in the backward pass."""
    keep = jax.random.bernoulli(jax.random.key(0), 0.9, x.shape)
    x = jnp.where(keep, x / 0.9, 0.0)
    return jax.checkpoint(lambda h: jnp.tanh(h @ p["w"]) @ p["v"])(x)


def clipped(model: Any) -> Any:
    """A step of gradient descent, the gradient clipped by its norm."""

    def step(p: Any, x: Any) -> Any:
        error, gradient = jax.value_and_grad(lambda p: (model(p, x) ** 2).mean())(p)
        norm = jnp.sqrt(sum((g**2).sum() for g in jax.tree.leaves(gradient)))
        scale = jnp.minimum(1.0, 1.0 / norm)
        return error, jax.tree.map(lambda w, g: w - 0.1 * scale * g, p, gradient)

    return step


def rotated(x: Any, angles: Any) -> Any:
    """Rotary positions: halves of the heads by sine and cosine."""
    first, second = jnp.split(x, 2, axis=-1)
    sine, cosine = jnp.sin(angles)[:, None], jnp.cos(angles)[:, None]
    return jnp.concatenate([first * cosine - second * sine, second * cosine + first * sine], -1)


def decoded(q: Any, k: Any, cache: Any, position: Any) -> Any:
    """One step of decoding: a row of the cache is written, all of it is attended to."""
    cache = jax.lax.dynamic_update_slice(cache, k[:, None], (0, position, 0, 0))
    scores = jnp.einsum("bhk,bshk->bhs", q, cache)
    scores = jnp.where(jnp.arange(cache.shape[1]) <= position, scores, -1e30)
    return jnp.einsum("bhs,bshk->bhk", jax.nn.softmax(scores), cache), cache


def cases() -> Iterator[tuple[str, Any, tuple[Any, ...], Any, Any]]:
    """Name, function, avals, shardings of arguments, mesh."""
    mesh = jax_mesh(d=4, t=2)

    def at(*entries: Any) -> NamedSharding:
        return NamedSharding(mesh, PartitionSpec(*entries))

    placed = {
        "convolutions": {"a": at(None, None, None, "t"), "b": at(None, None, "t"), "head": at("d")},
        "experts": {"gate": at("d"), "up": at("t", "d"), "down": at("t", None, "d")},
        "dropped": {"w": at("d", "t"), "v": at("t", "d")},
    }
    inputs = {
        "convolutions": shaped(8, 8, 8, 4),
        "experts": shaped(16, 32),
        "dropped": shaped(16, 32),
    }
    for model in (convolutions, experts, dropped):
        name = model.__name__
        avals = (PARAMETERS[name], inputs[name])
        yield name, model, avals, (placed[name], at("d")), mesh
        yield f"step of {name}", clipped(model), avals, (placed[name], at("d")), mesh
    heads = shaped(8, 16, 4, 32)
    yield "rotated", rotated, (heads, shaped(16, 16)), (at("d", None, "t"), at()), mesh
    one, cache = shaped(8, 4, 32), shaped(8, 64, 4, 32)
    index = jax.ShapeDtypeStruct((), jnp.int32)
    split = (at("d", "t"), at("d", "t"), at("d", None, "t"), at())
    yield "decoded", decoded, (one, one, cache, index), split, mesh
    yield (
        "decoded, cache by position",
        decoded,
        (one, one, cache, index),
        (at("d"), at("d"), at("d", "t"), at()),
        mesh,
    )
