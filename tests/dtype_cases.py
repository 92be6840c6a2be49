"""Functions of narrow floats and of random keys, along split dimensions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
from form_cases import PAIR, ROWS, Fn, FormCase, i32
from jax import lax

SCALE, NARROW = jnp.float8_e8m0fnu, jnp.float8_e4m3fn


def of(dtype: Any, *shape: int) -> Any:
    return jax.ShapeDtypeStruct(shape, dtype)


def without_a_zero() -> Iterator[FormCase]:
    """float8_e8m0fnu: a sum over devices cannot have its terms filled."""
    given, where, most = (of(SCALE, 64, 16), i32()), (ROWS, None), 7 * 8 * 16
    for name, fn in (
        ("scales by index", lambda s, i: s[jnp.array([3, 60, 17, 0]) + i]),
        ("a row of scales", lambda s, i: lax.dynamic_slice(s, (i + 20, 0), (1, 16))),
        ("rows of scales", lambda s, i: s[5:40:7]),
    ):
        yield FormCase(name, fn, given, where, PAIR, most)
    # Without a zero a halo has no fill: the operand comes whole, and as Shardy has it, the result.
    sums = lambda s, i: pooled(lax.add, 0.0)(s)  # noqa: E731
    yield FormCase(
        "sums of windows of scales", sums, given, where, PAIR, most, most_as_shardy=2 * most
    )
    table = (of(NARROW, 64, 16), i32())
    cast = lambda t, i: t[jnp.array([3, 60]) + i].astype(SCALE)  # noqa: E731
    yield FormCase("scales of rows", cast, table, where, PAIR, 2 * 7 * 4)


def pooled(choose: Any, start: float) -> Fn:
    window = ((3, 1), (1, 1), "SAME")
    return lambda x: lax.reduce_window(x, start, choose, *window)


def without_an_infinity() -> Iterator[FormCase]:
    """A halo of a row on either side, and what there is at the ends."""
    for dtype in (NARROW, jnp.float8_e5m2):
        x = (of(dtype, 16, 4),)
        for name, choose, start in (("maxima", lax.max, -jnp.inf), ("minima", lax.min, jnp.inf)):
            name = f"{name} of windows of {jnp.dtype(dtype).name}"
            yield FormCase(name, pooled(choose, start), x, (ROWS,), ROWS, 8)


def keys() -> Iterator[FormCase]:
    """A key of threefry has eight bytes, one of rbg sixteen."""
    for kind, size in (("threefry2x32", 8), ("rbg", 16)):
        dtype = jax.eval_shape(lambda kind=kind: jax.random.key(0, impl=kind)).dtype
        given = (of(dtype, 16),), ('[{"d"}]',)
        yield FormCase(f"data of {kind} keys", jax.random.key_data, *given, PAIR, 7 * 2 * size)


def cases() -> Iterator[FormCase]:
    yield from without_a_zero()
    yield from without_an_infinity()
    yield from keys()
