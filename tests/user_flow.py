"""Users' functions of loops, branches, random numbers and derivatives of their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from user_cases import UserCase, W, X, case, floats, integers, smooth


def by_sign(x: Any) -> Any:
    """Branches of each row, which become choices."""
    return jax.vmap(lambda r: lax.cond(r[0] > 0, lambda r: r * 2, lambda r: -r, r))(x)


def one_of_three(x: Any, i: Any) -> Any:
    ways = [lambda r: r, lambda r: -r, lambda r: r * 2]
    return jax.vmap(lambda r, i: lax.switch(i, ways, r))(x, i)


def until_large(x: Any) -> Any:
    """A loop of each row, which ends by itself."""
    return jax.vmap(lambda r: lax.while_loop(lambda r: r.sum() < 5, lambda r: r + 1, r))(x)


def as_often(x: Any, n: Any) -> Any:
    turn = lambda i, r: jnp.roll(r, 1) * 1.5  # noqa: E731
    return jax.vmap(lambda r, n: lax.fori_loop(0, n, turn, r))(x, n)


def counted(x: Any) -> Any:
    """A loop in a loop, for every number."""

    def alone(start: Any) -> Any:
        more = lambda s: (s[0] < 4) & (s[1] < 9)  # noqa: E731
        return lax.while_loop(more, lambda s: (s[0] + 0.75, s[1] + 1), (start, 0))

    return jax.vmap(jax.vmap(alone))(x)


def of_examples() -> Iterator[tuple[str, UserCase]]:
    """Control flow under `vmap`."""
    yield "branches of rows", smooth(by_sign, X)
    yield "three ways of rows", smooth(one_of_three, X, integers(16, high=3))
    yield "loops of rows", case(until_large, X)
    yield "loops as often as said", case(as_often, X, integers(16, high=5))
    yield "loops of numbers", case(counted, X)


def queue(x: Any, ys: Any) -> Any:
    step = lambda c, y: (jnp.concatenate([y[None], c[:-1]], 0), c.sum())  # noqa: E731
    return lax.scan(step, x, ys)


def shifting(x: Any, ys: Any) -> Any:
    def step(c: Any, y: Any) -> Any:
        c = jnp.roll(c, 1, 0) + jnp.pad(c[:, 1:], ((0, 0), (0, 1))) * y
        return c, c[::2]

    return lax.scan(step, x, ys)


def summed_or_not(x: Any) -> Any:
    return lax.cond(x.sum() > 0, lambda x: jnp.cumsum(x, 0), lambda x: jnp.flip(x, 0), x)


def nested(x: Any, w: Any) -> Any:
    def outer(c: Any, _: Any) -> Any:
        turn = lambda d, t: (jnp.tanh(d @ w) + t, d.sum(0))  # noqa: E731
        d, sums = lax.scan(turn, c, jnp.arange(2.0))
        return d, sums.max(0)

    return lax.scan(outer, x, None, length=3)


def shrinking(x: Any, w: Any) -> Any:
    """A loop that ends by a sum of what it carries."""
    more = lambda s: (jnp.linalg.norm(s[0]) > 0.5) & (s[1] < 5)  # noqa: E731
    return lax.while_loop(more, lambda s: (jnp.tanh(s[0] @ w) * 0.7, s[1] + 1), (x, 0))


def in_place(x: Any) -> Any:
    def turn(i: Any, x: Any) -> Any:
        rows = lax.dynamic_slice_in_dim(x, i * 3, 4, 0) * 0.5
        return lax.dynamic_update_slice_in_dim(x, rows, i, 0)

    return lax.fori_loop(0, 6, turn, x)


def scanned(x: Any) -> Any:
    return lax.associative_scan(lambda a, b: (a[0] * b[0], b[0] * a[1] + b[1]), (x, x * 2))


def of_loops() -> Iterator[tuple[str, UserCase]]:
    """Loops whose carries are split."""
    yield "a queue", smooth(queue, X, floats(5, 8))
    yield "shifts in a loop", smooth(shifting, X, floats(3))
    yield "summed or not", smooth(summed_or_not, X)
    yield "loops in loops", smooth(nested, X, W)
    yield "shrinking", case(shrinking, X, W)
    yield "rows in place", smooth(in_place, X)
    yield "an associative scan", smooth(scanned, X)


def dropped(x: Any, w: Any, key: Any) -> Any:
    """Random numbers of a loop, the same where it is computed again."""

    @jax.checkpoint
    def step(c: Any, key: Any) -> Any:
        keep, noise = jax.random.split(key)
        kept = jnp.where(jax.random.bernoulli(keep, 0.5, c.shape), jnp.tanh(c @ w), 0)
        return kept + jax.random.normal(noise, c.shape), c.mean()

    return lax.scan(step, x, jax.random.split(key, 3))


def of_keys() -> Iterator[tuple[str, UserCase]]:
    """Keys of every kind, one or many."""
    yield "dropped in a loop", smooth(dropped, X, W, jax.random.key(3))
    seed = jnp.int32(3)
    for kind in ("threefry2x32", "rbg", "unsafe_rbg"):
        yield (
            f"{kind}, bits",
            case(lambda s, k=kind: jax.random.bits(jax.random.key(s, impl=k), (16, 8)), seed),
        )
        yield (
            f"{kind}, of many seeds",
            case(
                lambda s, k=kind: jax.vmap(
                    lambda s: jax.random.uniform(jax.random.key(s, impl=k), (8,))
                )(s),
                integers(16),
            ),
        )
    folded = lambda k, i: jax.vmap(lambda i: jax.random.key_data(jax.random.fold_in(k, i)))(i)  # noqa: E731
    yield "a key for each", case(folded, jax.random.key(1), integers(16))
    halves = jax.vmap(lambda k, r: jax.random.bernoulli(k, 0.5, r.shape) * r)
    yield "a mask for each", case(halves, jax.random.split(jax.random.key(4), 16), X)
    parts = jax.vmap(lambda k: jax.random.key_data(jax.random.split(k, 3)))
    yield "keys of each", case(parts, jax.random.split(jax.random.key(4), 8))


@jax.custom_vjp
def doubled(x: Any, w: Any) -> Any:
    """A matmul whose gradient is another's."""
    return x @ w


def _back(saved: Any, g: Any) -> Any:
    x, w = saved
    return (g @ w.T) * 2, x.T @ jnp.roll(g, 1, 0)


doubled.defvjp(lambda x, w: (x @ w, (x, w)), _back)


def own_rules() -> Iterator[tuple[str, UserCase]]:
    yield "a gradient of its own", smooth(doubled, X, W)
    again = jax.checkpoint(lambda x, w: jnp.sin(doubled(x, w)))
    yield "a gradient of its own, again", smooth(again, X, W)


def cases() -> Iterator[tuple[str, UserCase]]:
    for group in (of_examples, of_loops, of_keys, own_rules):
        yield from group()
