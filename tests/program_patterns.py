"""Small programs of which it is known how few bytes they can do with: name, function, avals, mesh,
shardings of arguments and results, and the bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import shardwright as sw

MIB = 2**20


class Pattern(NamedTuple):
    """One program; `known` is the least that is known of, in bytes."""

    name: str
    fn: Any
    avals: tuple[Any, ...]
    mesh: sw.Mesh
    inputs: tuple[str, ...]
    output: str | tuple[str, ...] | None
    known: float


def shaped(*shape: int) -> Any:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def product(x: Any, w: Any) -> Any:
    return x @ w


def parallel_block(x: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    return x + jnp.tanh(x @ a) @ b + jnp.sin(x @ c) @ d


def delayed(x: Any, w: Any, y: Any, v: Any) -> Any:
    """Two partial sums meet after a scale and a transpose, before what is not linear."""
    return jnp.tanh(((x @ w) * 2.0).T - (y @ v).T)


def accumulated(w: Any, batches: Any) -> Any:
    """A gradient added up over micro-batches."""

    def body(total: Any, x: Any) -> Any:
        return total + x.T @ jnp.tanh(x @ w), None

    return jax.lax.scan(body, jnp.zeros_like(w), batches)[0]


def best_tokens(scores: Any) -> Any:
    return jax.lax.top_k(scores, 50)


def a_token_later(x: Any) -> Any:
    return jnp.pad(x[:, :-1], ((0, 0), (1, 0), (0, 0)))


def resharded(a: Any, b: Any, c: Any) -> Any:
    """jax-ml/jax#21562: a constraint that moves two axes from two dimensions to a third."""
    return c + sw.constrain(a + b, '[{}, {"x", "y"}, {}]')


def tokens_of(table: Any, tokens: Any) -> Any:
    return table[tokens]


def tied_embedding(ids: Any, tokens: Any, up: Any, down: Any) -> Any:
    """A step of two layers between an embedding and a head that share their weights."""

    def loss(tokens: Any, up: Any, down: Any) -> Any:
        x = tokens[ids]
        for _ in range(2):
            x = x + jnp.tanh(x @ up) @ down
        scores = jax.nn.log_softmax(x @ tokens.T)
        return -jnp.take_along_axis(scores, ids[..., None], -1).mean()

    weights = tokens, up, down
    gradients = jax.grad(loss, (0, 1, 2))(*weights)
    return tuple(w - 0.01 * g for w, g in zip(weights, gradients, strict=True))


def recurrence(factors: Any, terms: Any) -> Any:
    """A scan of pairs, as in state space models."""

    def after(first: Any, second: Any) -> Any:
        return first[0] * second[0], first[1] * second[0] + second[1]

    return jax.lax.associative_scan(after, (factors, terms))


def patterns() -> Iterator[Pattern]:
    yield from small_patterns()
    d, rows = sw.Mesh({"d": 8}), '[{"d"}, {}]'
    dims = '[{"t"}, {"d"}]', '[{"d"}, {"t"}]', '[{"t"}, {"d"}]'
    weights = shaped(2048, 256), shaped(256, 1024), shaped(1024, 256)
    ids = jax.ShapeDtypeStruct((64, 128), jnp.int32)
    yield Pattern(
        *("a tied embedding", tied_embedding, (ids, *weights), sw.Mesh({"d": 4, "t": 2})),
        *(('[{"d"}, {}]', *dims), dims, 7 * MIB),
    )
    yield Pattern(
        *("a scan of pairs along rows", recurrence, (shaped(512, 64),) * 2, d),
        *((rows, rows), (rows, rows), 0.0113 * MIB),
    )


def small_patterns() -> Iterator[Pattern]:
    """Yield the patterns of a few ops, whose pictures show every value."""
    d, t = sw.Mesh({"d": 8}), sw.Mesh({"t": 8})
    rows, columns = '[{"d"}, {}]', '[{}, {"t"}]'
    wide, high = shaped(1024, 4096), shaped(4096, 1024)
    yield Pattern(
        *("ZeRO-3 weights, batch 8", product, (shaped(8, 8192), shaped(8192, 8192)), d),
        *((rows, rows), rows, 0.45 * MIB),
    )
    yield Pattern(
        *("both sides split on one axis", product, (shaped(512, 1024), wide), d),
        *((rows, '[{}, {"d"}]'), None, 2.25 * MIB),
    )
    yield Pattern(
        *("a parallel block", parallel_block, (high, wide, high, wide, high), t),
        *(("[{}, {}]", columns, '[{"t"}, {}]', columns, '[{"t"}, {}]'), "[{}, {}]", 28 * MIB),
    )
    yield Pattern(
        *("a delayed sum", delayed, (shaped(4096, 4096), high, shaped(4096, 4096), high), t),
        *((columns, '[{"t"}, {}]', columns, '[{"t"}, {}]'), "[{}, {}]", 28 * MIB),
    )
    yield Pattern(
        *("8 micro-batches in a scan", accumulated, (shaped(1024, 1024), shaped(8, 4096, 1024)), d),
        *(("[{}, {}]", '[{}, {"d"}, {}]'), "[{}, {}]", 7 * MIB),
    )
    yield Pattern(
        *("top 50 of a split vocabulary", best_tokens, (shaped(64, 131072),), t),
        *((columns,), None, 0.043 * MIB),
    )
    by_token = '[{}, {"t"}, {}]'
    yield Pattern(
        *("a shift by one token", a_token_later, (shaped(8, 512, 2048),), t),
        *((by_token,), by_token, 0.0625 * MIB),
    )
    tokens = jax.ShapeDtypeStruct((8, 512), jnp.int32)
    yield Pattern(
        *("an embedding split by rows", tokens_of, (shaped(131072, 64), tokens), t),
        *(('[{"t"}, {}]', "[{}, {}]"), by_token, 0.89 * MIB),
    )
    before, after = '[{"y"}, {}, {"x"}]', '[{}, {"x", "y"}, {}]'
    yield Pattern(
        *("two axes change their dimension", resharded, (shaped(64, 64, 64),) * 3),
        *(sw.Mesh({"x": 4, "y": 2}), (before, before, after), after, 0.1094 * MIB),
    )
