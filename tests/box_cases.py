"""Slices, splits, concatenations and paddings along split dimensions, and what they may move."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from form_cases import COLUMNS, PAIR, ROWS, Fn, FormCase, f32
from jax import lax

import shardwright as sw

BOTH, TURNED = '[{"d"}, {"t"}]', '[{"t", "d"}, {}]'
ROW = 6 * 4  # bytes


def joined(*arrays: Any) -> Any:
    return jnp.concatenate(arrays)


def parts(x: Any) -> Any:
    return jnp.split(x, 3, 1)


def cut(start: int, stop: int) -> Fn:
    return lambda x: x[start:stop]


def framed(x: Any) -> Any:
    return jnp.pad(x, ((3, 5), (1, 1)), constant_values=2.0)


def gradient(fn: Fn, count: int = 1) -> Fn:
    def loss(*arguments: Any) -> Any:
        results = jax.tree.leaves(fn(*arguments))
        return sum((n + 2.0) * (result**3).sum() for n, result in enumerate(results))

    return jax.grad(loss, tuple(range(count)) if count > 1 else 0)


def cases() -> Iterator[FormCase]:
    """Each device receives no row that it does not hold afterwards."""
    x, half = f32(32, 6), f32(16, 6)
    two = ((x, x), (ROWS, ROWS))
    yield FormCase("halves put together", joined, *two, ROWS, 8 * ROW)
    sides = (ROWS, ROWS)
    name = "gradient of halves put together"
    yield FormCase(name, gradient(joined, 2), *two, sides, 16 * ROW)
    yield FormCase("unlike parts put together", joined, (x, half), sides, ROWS, 6 * ROW)
    turned = (TURNED, TURNED)
    yield FormCase("halves on two axes", joined, (x, x), turned, TURNED, 8 * ROW, "two")
    flags = lambda x, y: joined(x > 0, y > 0)  # noqa: E731
    yield FormCase("flags put together", flags, *two, ROWS, 8 * ROW // 4)
    wide = f32(4, 48)
    thirds = [COLUMNS] * 3
    yield FormCase("thirds", parts, (wide,), (COLUMNS,), thirds, 6 * 16)
    yield FormCase("gradient of thirds", gradient(parts), (wide,), (COLUMNS,), COLUMNS, 12 * 16)
    yield FormCase("second half", cut(16, 32), (x,), (ROWS,), ROWS, 2 * ROW)
    fn = gradient(cut(16, 32))
    yield FormCase("gradient of second half", fn, (x,), (ROWS,), ROWS, 6 * ROW)
    yield FormCase("a half from row 5 on", cut(5, 21), (x,), (ROWS,), ROWS, 2 * ROW)
    some = lambda x: x[5:21, 1:5:2]  # noqa: E731
    yield FormCase("some of other columns", some, (x,), (ROWS,), ROWS, 2 * 8)
    some = lambda x: x[5:21, 1:3]  # noqa: E731
    most = 4 * 3 * 4 + 4 * 4
    yield FormCase("rows and columns", some, (x,), (BOTH,), BOTH, most, "two")
    yield FormCase("framed", framed, (x,), (ROWS,), ROWS, 4 * ROW)
    most = 5 * 3 * 4 + 10 * 4
    yield FormCase("framed both ways", framed, (x,), (BOTH,), BOTH, most, "two")
    less = lambda x: lax.pad(x, 0.0, ((-8, 0, 0), (0, 0, 0)))  # noqa: E731
    yield FormCase("without its first rows", less, (x,), (ROWS,), ROWS, 3 * ROW)
    yield from spaced()


def spaced() -> Iterator[FormCase]:
    """Rows at distances, and in reverse: those of a shard that stay there are not sent."""
    x = (f32(32, 6),)
    other = lambda x: x[1::2]  # noqa: E731
    yield FormCase("every other row", other, x, (ROWS,), ROWS, 0)
    yield FormCase("gradient of every other row", gradient(other), x, (ROWS,), ROWS, 0)
    back = lambda x: x[28:4:-3]  # noqa: E731
    yield FormCase("every third row backwards", back, x, (ROWS,), ROWS, 2 * ROW)
    yield FormCase("backwards", lambda x: x[::-1], x, (ROWS,), ROWS, 4 * ROW)
    both = lambda x: x[::-1, ::-1]  # noqa: E731
    yield FormCase("backwards both ways", both, x, (BOTH,), BOTH, 2 * 8 * 3 * 4, "two")
    both = lambda x: x[::2, ::-1]  # noqa: E731
    yield FormCase("backwards and every other", both, x, (ROWS,), ROWS, 0)
    apart = lambda x: lax.pad(x, 0.5, ((0, 1, 1), (1, 1, 0)))  # noqa: E731
    yield FormCase("rows apart", apart, x, (ROWS,), ROWS, 0)
    apart = lambda x: lax.pad(x, 0.5, ((-5, 6, 1), (0, 0, 0)))  # noqa: E731
    yield FormCase("rows apart, some left out", apart, x, (ROWS,), ROWS, 3 * ROW)
    added = lambda x: lax.associative_scan(jnp.maximum, x)  # noqa: E731
    yield FormCase("a scan by halves", added, (f32(64, 4),), (ROWS,), ROWS, 2688)
    yield from permuted()


ZIGZAG = np.array([[2 * n, 2 * n + 1, 30 - 2 * n, 31 - 2 * n] for n in range(8)], np.int32).ravel()
STRIPED = np.arange(64, dtype=np.int32).reshape(8, 8).T.ravel()


def permuted() -> Iterator[FormCase]:
    """Rows in a constant order: each device receives the rows that it lacks. A dimension is
    gathered where they would take too many rounds, or are not a permutation."""
    x, long = (f32(32, 6),), (f32(64, 6),)
    zigzag = lambda x: x[ZIGZAG]  # noqa: E731
    yield FormCase("zigzag", zigzag, x, (ROWS,), ROWS, 4 * ROW)
    name, fn = "gradient of zigzag", gradient(zigzag)
    yield FormCase(name, fn, x, (ROWS,), ROWS, 8 * ROW, most_as_shardy=28 * ROW)
    fn = gradient(lambda x: sw.constrain(zigzag(x), '[{"d"}, {?}]'))
    yield FormCase("gradient of zigzag, constrained", fn, x, (ROWS,), ROWS, 8 * ROW)
    fn = lambda x: jnp.zeros_like(x).at[ZIGZAG].set(x)  # noqa: E731
    yield FormCase("back from zigzag", fn, x, (ROWS,), ROWS, 4 * ROW)
    yield FormCase("striped", lambda x: x[STRIPED], long, (ROWS,), ROWS, 7 * ROW)
    where, fn = '[{}, {"t", "d"}]', lambda x: jnp.take(x, ZIGZAG - 32, 1)
    yield FormCase("zigzag of columns", fn, (f32(6, 32),), (where,), where, 4 * ROW, "two")
    order = (jnp.arange(32) + 2) % 32
    fn = lambda x: x[order] + x[jnp.flip(jnp.arange(32).reshape(16, 2), 0).ravel()]  # noqa: E731
    yield FormCase("computed orders", fn, x, (ROWS,), ROWS, 6 * ROW)
    mixed = np.random.default_rng(0).permutation(np.arange(32, dtype=np.int32))
    yield FormCase("a random order", lambda x: x[mixed], x, (ROWS,), ROWS, 28 * ROW)
    twice = np.repeat(np.arange(16, dtype=np.int32), 2)
    yield FormCase("rows twice", lambda x: x[twice], x, (ROWS,), ROWS, 28 * ROW)
    yield FormCase("zigzag of a whole table", zigzag, x, (PAIR,), ROWS, 0)


FAULTS = {
    "permuted rows to other shards": ("zigzag", r"\[\(0, 1\), \(1, 3\)", "[(0, 3), (1, 1)"),
    "permuted rows in other places": ("zigzag", r"\[2, 0, 2, 0, 2", "[0, 2, 0, 2, 0"),
    "rows in another order": ("every other row", r"::2\]", "::-2]"),
    "rows apart from another place": ("rows apart", r"\(\(0, 0, 1\)", "((1, -1, 1)"),
    "rows from another place": ("halves put together", r"\[4, 0, 4, 0, 4", "[0, 4, 0, 4, 0"),
    "rows to another place": ("halves put together", r"\[4, 4, 4, 4, 0", "[0, 0, 0, 0, 4"),
    "rows that stay left out": ("halves put together", r"\[0, 8, 8, 8", "[8, 8, 8, 8"),
    "rows to another shard": ("second half", r"\[\(4, 0\)", "[(4, 1)"),
    "a row too early": ("framed", r"\[5, 5, 1, 0, 5", "[5, 5, 0, 0, 5"),
    "columns of others": ("some of other columns", r"1:5:2", "0:4:2"),
}
"""What is planted: the case, what is replaced, by what."""
