"""Users' functions of arrays: indexing, choosing, windows, turning, empty and narrow ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from user_cases import UserCase, W, X, case, floats, integers, smooth, truths

ROWS = ("NHC", "HIO", "NHC")
PAIR = ((2, 1), (2, 1), "VALID")
AROUND = ((3, 1), (1, 1), "SAME")


def grouped(groups: int, batches: int) -> Callable[..., Any]:
    def convolve(x: Any, w: Any) -> Any:
        sizes = {"feature_group_count": groups, "batch_group_count": batches}
        return lax.conv_general_dilated(x, w, (1,), "SAME", dimension_numbers=ROWS, **sizes)

    return convolve


def of_each(x: Any, w: Any) -> Any:
    """A kernel for each image."""
    return jax.vmap(lambda x, w: grouped(1, 1)(x[None], w)[0])(x, w)


def of_truths(x: Any) -> Any:
    both = ((False, lax.max, x), (True, lax.min, ~x))
    return [lax.reduce_window(own, init, choose, *AROUND) for init, choose, own in both]


def pooled(x: Any) -> Any:
    return lax.reduce_window(x, -jnp.inf, lax.max, *PAIR)


def shaped() -> Iterator[tuple[str, UserCase]]:
    """Convolutions with groups, whose gradients turn what they reshape, and other windows."""
    yield "feature groups", smooth(grouped(4, 1), floats(4, 16, 8), floats(3, 2, 8))
    yield "batch groups", smooth(grouped(1, 4), floats(8, 16, 4), floats(3, 4, 8))
    yield "a kernel for each", smooth(of_each, floats(4, 16, 8), floats(4, 3, 8, 8))
    yield "turned reshape", smooth(lambda x: lax.reshape(x, (8, 16), (1, 0)) * 2, X)
    yield "windows of truths", case(of_truths, truths(16, 8))
    yield "a pool's mean", case(jax.grad(lambda x: pooled(x).sum()), X)
    yield "diagonals", smooth(lambda x: (jnp.diag(x), jnp.diagonal(x, 1)), floats(8, 8))
    yield "covariance", smooth(lambda x: jnp.cov(x.T), X)
    yield "every second row", smooth(lambda x: (x[1::2], x[::-3], x[:, 1:7:2]), X)
    yield "padded by its edge", smooth(lambda x: jnp.pad(x, ((2, 2), (1, 1)), mode="edge"), X)
    yield "blocks", smooth(lambda x: jnp.block([[x, x], [x * 2, x]]), floats(8, 4))
    yield "second derivatives", case(jax.hessian(lambda x: jnp.sum(x * jnp.roll(x, 1))), floats(8))
    yield "a Jacobian", case(jax.jacfwd(jnp.cumsum), floats(8))


def outside(x: Any, i: Any, j: Any) -> Any:
    """Rows from a place that may lie outside."""
    return lax.dynamic_slice(x, (i, j), (8, 4))


def sliced() -> Iterator[tuple[str, UserCase]]:
    """Slices whose starts are clamped, and which are sliced again where they are split."""
    x, i = X, jnp.int32
    yield "a slice from before", smooth(outside, x, i(-3), i(2))
    yield "a slice from behind", smooth(outside, x, i(13), i(9))
    flat = lambda x, i: lax.dynamic_slice(x, (i, 0), (8, 8)).reshape(4, 16)  # noqa: E731
    yield "a slice as another shape", smooth(flat, x, i(13))
    write = lambda x, u, i: lax.dynamic_update_slice(x, u, (i, i - 15))  # noqa: E731
    yield "a write from behind", smooth(write, x, floats(6, 4), i(13))
    stay = {"allow_negative_indices": False}
    write = lambda x, u, i: lax.dynamic_update_slice(x, u, (i, i - 1), **stay)  # noqa: E731
    yield "a write from before, at the start", smooth(write, x, floats(6, 4), i(-3))
    read = lambda x, i: lax.dynamic_slice(x, (i, i - 1), (6, 4), **stay)  # noqa: E731
    yield "a slice from before, at the start", smooth(read, x, i(-3))
    narrow = lambda x, i: lax.dynamic_slice(x, (i, i), (8, 4))  # noqa: E731
    yield "a slice from a byte", case(narrow, floats(512, 8), jnp.uint8(251))
    several = lambda x, i: jax.vmap(lambda r, i: lax.dynamic_slice(r, (i,), (3,)))(x, i)  # noqa: E731
    yield "slices of rows", smooth(several, x, integers(16, low=-2, high=9))


def at(how: str) -> Callable[..., Any]:
    return lambda x, i, u: getattr(x.at[i], how)(u)


def indexed() -> Iterator[tuple[str, UserCase]]:
    """What is read and written by indices, some of them twice and some outside."""
    some, rows, columns = integers(8, low=-16, high=20), floats(8, 8), floats(16, 4)
    for how in ("add", "max", "min", "multiply", "subtract"):
        found = case(at(how), X, some, rows)
        yield f"at {how}", found._replace(smooth=how in ("add", "subtract"))
        whole = integers(16, 8), some, integers(8, 8, low=-9)
        yield f"integers at {how}", case(at(how), *whole)
    yield "at set", smooth(at("set"), X, jnp.array([1, 3, 20, -1, -40, 7, 8, 0]), rows)
    added = lambda x, i, u: x.at[:, i].add(u)  # noqa: E731
    yield "columns added", smooth(added, X, integers(4, low=-8, high=9), columns)
    most = lambda x, i: jax.ops.segment_max(x, i, num_segments=8)  # noqa: E731
    yield "the most of segments", case(most, X, integers(16))
    for mode in ("fill", "clip"):
        taken = lambda x, i, mode=mode: jnp.take(x, i, axis=0, mode=mode)  # noqa: E731
        yield f"taken, {mode}", smooth(taken, X, integers(4, 6, low=-40, high=40))
    number = lambda x, i: jnp.take(x, i, axis=0, mode="fill", fill_value=7)  # noqa: E731
    yield "taken or 7", case(number, integers(16, 8), integers(4, low=-40, high=40))


def chosen() -> Iterator[tuple[str, UserCase]]:
    """The best, with their places, and places among what is sorted."""
    yield "top of columns", smooth(lambda x: lax.top_k(x, 3, axis=0)[0], X)
    yield "top and where", case(lambda x: lax.top_k(x.reshape(4, 4, 8), 3, axis=1), X)
    yield "top of each", case(jax.vmap(lambda x: lax.top_k(jnp.round(x), 3)), X)
    undefined = lambda x: jnp.argmax(jnp.where(x > 1, jnp.nan, x), 0)  # noqa: E731
    yield "argmax, undefined", case(undefined, X)
    bins = jnp.linspace(-2, 2, 5)
    yield "bins", case(lambda x: jnp.digitize(x, bins), floats(16))
    near = lambda a, v: jnp.searchsorted(a, v, method="compare_all")  # noqa: E731
    yield "places of all", case(near, jnp.arange(8.0), floats(16) * 4)
    yield "interpolated", case(lambda x: jnp.interp(x, bins, bins**2), X)


def narrow() -> Iterator[tuple[str, UserCase]]:
    """Truths, small integers, precisions, arrays of no elements."""
    matmul = lambda x, y: lax.dot_general(x, y, (((1,), (0,)), ((), ())))  # noqa: E731
    yield "a matmul of truths", case(matmul, truths(16, 8), truths(8, 16))
    small = integers(16, 8, dtype="int8"), integers(8, 16, dtype="int8")
    yield "a matmul of bytes", case(matmul, *small)
    divided = lambda x, y: (x // y, x % y, lax.div(x, jnp.int32(3)))  # noqa: E731
    yield "quotients", case(divided, integers(16, 8, low=-20, high=20), integers(8, low=1))
    for name, precision in {
        "of one": "high",
        "of each": (lax.Precision.HIGH, lax.Precision.DEFAULT),
        "an algorithm": lax.DotAlgorithmPreset.F32_F32_F32,
    }.items():
        exact = lambda x, w, p=precision: lax.dot(x, w, precision=p)  # noqa: E731
        yield f"a precision, {name}", case(exact, X, W)
    yield (
        "sums of integers",
        case(lambda x: (x.sum(0, "int32"), x.prod(1, "int32")), integers(16, 8)),
    )
    yield "no rows", case(lambda x, w: jnp.tanh(x @ w).sum(0), jnp.zeros((0, 8)), W)
    yield "parts without rows", case(lambda x: (x[:0] * 2, jnp.split(x, [0], 0)), X)
    yield "sorted nothing", case(lambda x: jnp.sort(x[:0], 0), X)
    yield "put nowhere", case(lambda x: jax.device_put(x) * 2, X)


def cases() -> Iterator[tuple[str, UserCase]]:
    for group in (shaped, sliced, indexed, chosen, narrow):
        yield from group()
