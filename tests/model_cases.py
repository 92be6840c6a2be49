"""Whole models as they are trained and served, each in several shardings: a GPT-2-like step, a
convolution net, a mixture of experts, decoding with a cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import experts
import jax
import jax.numpy as jnp
import models
from jax import lax

BETAS, RATE, KEPT = (0.9, 0.999), 1e-3, 0.9
CONVOLVED = ("NHWC", "HWIO", "NHWC")


class Sizes(NamedTuple):
    """How large the models are."""

    layers: int = 4
    batch: int = 16
    length: int = 128
    vocabulary: int = 2048
    image: int = 64
    channels: int = 32


class ModelCase(NamedTuple):
    """A function, its avals, the axes of its mesh, and its shardings as text."""

    name: str
    fn: Callable[..., Any]
    avals: tuple[Any, ...]
    mesh: dict[str, int]
    inputs: Any
    outputs: Any


def text(*dims: Any) -> str:
    """A sharding by what splits each dimension."""
    names = (((dim,) if isinstance(dim, str) else dim) or () for dim in dims)
    return "[" + ", ".join("{" + ", ".join(f'"{n}"' for n in own) + "}" for own in names) + "]"


def dropped(x: Any, key: Any) -> Any:
    keep = jax.random.bernoulli(key, KEPT, x.shape)
    return jnp.where(keep, x / KEPT, 0.0)


def gpt2_loss(p: Any, tokens: Any, targets: Any, seed: Any) -> Any:
    """Cross entropy behind layers that a scan runs, each computed again in the backward pass."""
    key = jax.random.key(seed)
    x = p["tokens"][tokens] + p["positions"]

    def layer(x: Any, each: Any) -> Any:
        weights, number = each
        x = models.layer(weights, x)
        return dropped(x, jax.random.fold_in(key, number)), None

    count = p["layers"]["g1"].shape[0]
    x, _ = lax.scan(jax.checkpoint(layer), x, (p["layers"], jnp.arange(count)))
    scores = models.norm(x, p["gain"], p["shift"]) @ p["tokens"].T
    best = jax.nn.log_softmax(scores)
    return -jnp.take_along_axis(best, targets[..., None], -1).mean()


def gpt2_step(p: Any, moments: Any, count: Any, tokens: Any, targets: Any) -> Any:
    """A step of Adam, the gradient clipped by its norm."""
    error, gradient = jax.value_and_grad(gpt2_loss)(p, tokens, targets, count)
    norm = jnp.sqrt(sum((g**2).sum() for g in jax.tree.leaves(gradient)))
    gradient = jax.tree.map(lambda g: g * jnp.minimum(1.0, 1.0 / norm), gradient)
    squares = jax.tree.map(jnp.square, gradient)
    pairs = zip(BETAS, moments, (gradient, squares), strict=True)
    moments = tuple(jax.tree.map(lambda m, n, b=b: b * m + (1 - b) * n, m, n) for b, m, n in pairs)
    count = count + 1
    scales = [1 - beta ** count.astype(jnp.float32) for beta in BETAS]

    def moved(w: Any, m: Any, v: Any) -> Any:
        return w - RATE * (m / scales[0]) / (jnp.sqrt(v / scales[1]) + 1e-8)

    return jax.tree.map(moved, p, *moments), moments, count, error


def gpt2(sizes: Sizes) -> Iterator[ModelCase]:
    layer = models.layer_parameters()
    stacked = {n: models.shaped(sizes.layers, *p.shape) for n, p in layer.items()}
    weights = {
        "tokens": models.shaped(sizes.vocabulary, models.D),
        "positions": models.shaped(sizes.length, models.D),
        "layers": stacked,
        "gain": models.shaped(models.D),
        "shift": models.shaped(models.D),
    }
    batch = jax.ShapeDtypeStruct((sizes.batch, sizes.length), jnp.int32)
    number = jax.ShapeDtypeStruct((), jnp.int32)
    for strategy in ("dp", "fsdp", "tp", "fsdp+tp"):
        ways, mesh = strategy.split("+"), models.MESHES[strategy]

        def of(name: str, rank: int, ways: list[str] = ways) -> tuple[Any, ...]:
            return tuple(models.parameter_spec(ways, name, rank))

        long = ("t" if "tp" in ways else None, "d" if "fsdp" in ways else None)
        given = {
            "tokens": text(*long),
            "positions": text(None, long[1]),
            "layers": {n: text(None, *of(n, len(p.shape))) for n, p in layer.items()},
            "gain": text(*of("g1", 1)),
            "shift": text(*of("c1", 1)),
        }
        data = text("d" if "d" in mesh else None, None)
        yield ModelCase(
            f"gpt-2 step, {strategy}",
            gpt2_step,
            (weights, (weights, weights), number, batch, batch),
            mesh,
            (given, (given, given), "[]", data, data),
            (given, (given, given), "[]", "[]"),
        )


def images_loss(p: Any, x: Any, labels: Any) -> Any:
    """A stem with a pool, blocks of convolutions that shrink, a mean, a head."""

    def convolved(x: Any, w: Any, stride: int = 1) -> Any:
        strides = (stride, stride)
        return lax.conv_general_dilated(x, w, strides, "SAME", dimension_numbers=CONVOLVED)

    x = jax.nn.relu(convolved(x, p["stem"]))
    x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
    for first, second, across in p["blocks"]:
        inner = jax.nn.relu(convolved(x, first, 2))
        x = jax.nn.relu(convolved(inner, second) + convolved(x, across, 2))
    scores = jax.nn.log_softmax(x.mean((1, 2)) @ p["head"])
    return -jnp.take_along_axis(scores, labels[:, None], -1).mean()


def images_step(p: Any, x: Any, labels: Any) -> Any:
    error, gradient = jax.value_and_grad(images_loss)(p, x, labels)
    return jax.tree.map(lambda w, g: w - 0.1 * g, p, gradient), error


def images(sizes: Sizes) -> Iterator[ModelCase]:
    n = sizes.channels
    block = lambda a, b: (  # noqa: E731
        *(models.shaped(3, 3, a, b), models.shaped(3, 3, b, b), models.shaped(1, 1, a, b)),
    )
    weights = {
        "stem": models.shaped(5, 5, 4, n),
        "blocks": [block(n, 2 * n), block(2 * n, 4 * n)],
        "head": models.shaped(4 * n, 16),
    }
    x = models.shaped(8, sizes.image, sizes.image, 4)
    labels = jax.ShapeDtypeStruct((8,), jnp.int32)
    whole = jax.tree.map(lambda w: text(*(None,) * len(w.shape)), weights)
    for name, mesh, entries in (
        ("by images", {"d": 8}, ("d", None, None, None)),
        ("by rows", {"d": 8}, (None, "d", None, None)),
        ("by images and rows", {"d": 2, "t": 4}, ("d", "t", None, None)),
        ("by rows and columns", {"d": 4, "t": 2}, (None, "d", "t", None)),
    ):
        given = (whole, text(*entries), text(entries[0]))
        out = (whole, "[]")
        yield ModelCase(
            f"convolutions, {name}", images_step, (weights, x, labels), mesh, given, out
        )


def mixtures() -> Iterator[ModelCase]:
    weights, tokens = experts.parameters(), text("d", None, None)
    x = models.shaped(experts.GROUPS, experts.TOKENS, experts.WIDTH)
    given = {"gate": text(None, None), "up": tokens, "down": tokens}
    for name, layer in (("einsum", experts.by_einsum), ("indices", experts.by_indices)):
        fn = experts.step_of(layer)
        avals, mesh = (weights, x), {"d": 8}
        yield ModelCase(f"experts by {name}", layer, avals, mesh, (given, tokens), tokens)
        sides = (given, tokens), ("[]", given)
        yield ModelCase(f"experts by {name}, step", fn, avals, mesh, *sides)


def decoded(p: Any, caches: Any, x: Any, position: Any) -> Any:
    """A token through a layer: rows of the caches are written, and attended to."""
    h = models.norm(x, p["g1"], p["c1"])
    q, k, v = (jnp.einsum("bd,dhk->bhk", h, p[name]) for name in ("wq", "wk", "wv"))
    rows = zip(caches, (k, v), strict=True)
    caches = tuple(
        lax.dynamic_update_slice(cache, row[:, None], (0, position, 0, 0)) for cache, row in rows
    )
    scores = jnp.einsum("bhk,bshk->bhs", q, caches[0]) / q.shape[-1] ** 0.5
    scores = jnp.where(jnp.arange(caches[0].shape[1]) <= position, scores, -1e30)
    made = jnp.einsum("bhs,bshk->bhk", jax.nn.softmax(scores), caches[1])
    x = x + jnp.einsum("bhk,hkd->bd", made, p["wo"])
    h = models.norm(x, p["g2"], p["c2"])
    return x + jax.nn.gelu(h @ p["w1"] + p["b1"]) @ p["w2"] + p["b2"], caches


def decoding(sizes: Sizes) -> Iterator[ModelCase]:
    layer = models.layer_parameters()
    cache = models.shaped(sizes.batch, sizes.length, models.H, models.D // models.H)
    x = models.shaped(sizes.batch, models.D)
    avals = (layer, (cache, cache), x, jax.ShapeDtypeStruct((), jnp.int32))
    for name, mesh, ways, entries in (
        ("cache by heads", {"t": 8}, ["tp"], (None, None, "t", None)),
        ("cache by position", {"t": 8}, ["dp"], (None, "t", None, None)),
        ("cache by batch and heads", {"d": 4, "t": 2}, ["tp"], ("d", None, "t", None)),
    ):
        given = {n: text(*models.parameter_spec(ways, n, len(p.shape))) for n, p in layer.items()}
        caches, rows = (text(*entries),) * 2, text(entries[0], None)
        yield ModelCase(
            *(f"decoding, {name}", decoded, avals, mesh),
            *((given, caches, rows, "[]"), (rows, caches)),
        )


def cases(sizes: Sizes | None = None) -> Iterator[ModelCase]:
    sizes = sizes or Sizes()
    yield from gpt2(sizes)
    yield from images(sizes)
    yield from mixtures()
    yield from decoding(sizes)
