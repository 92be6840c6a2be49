"""Small functions as users write them, one or two features of JAX each, with their arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


class UserCase(NamedTuple):
    """A function with what it is given."""

    fn: Callable[..., Any]
    given: tuple[Any, ...]


def floats(*shape: int) -> Any:
    return jnp.asarray(np.random.default_rng(sum(shape)).standard_normal(shape), jnp.float32)


def integers(*shape: int, low: int = 0, high: int = 8, dtype: Any = np.int32) -> Any:
    return jnp.asarray(np.random.default_rng(sum(shape)).integers(low, high, shape), dtype)


def truths(*shape: int) -> Any:
    return integers(*shape, high=2).astype(bool)


def gradient(case: UserCase) -> UserCase:
    """Return the gradient of the sum of the sines of a function's floats."""
    fn, given = case
    real = [n for n, x in enumerate(given) if jnp.issubdtype(x.dtype, jnp.floating)]

    def loss(*args: Any) -> Any:
        leaves = jax.tree.leaves(fn(*args))
        return sum(jnp.sin(x).sum() for x in leaves if jnp.issubdtype(x.dtype, jnp.floating))

    return UserCase(jax.grad(loss, argnums=real), given)


X, ROWS = floats(16, 8), ("NHC", "HIO", "NHC")


def grouped(groups: int, batches: int) -> Callable[..., Any]:
    def convolve(x: Any, w: Any) -> Any:
        sizes = {"feature_group_count": groups, "batch_group_count": batches}
        return lax.conv_general_dilated(x, w, (1,), "SAME", dimension_numbers=ROWS, **sizes)

    return convolve


def of_each(x: Any, w: Any) -> Any:
    """A kernel for each image."""
    return jax.vmap(lambda x, w: grouped(1, 1)(x[None], w)[0])(x, w)


def read_twice(x: Any, i: Any, j: Any) -> Any:
    """Rows from a place that may lie outside."""
    return lax.dynamic_slice(x, (i, j), (8, 4))


def largest(x: Any) -> Any:
    window = ((3, 1), (1, 1), "SAME")
    return lax.reduce_window(x, False, lax.max, *window), lax.reduce_window(
        ~x, True, lax.min, *window
    )


DIFFERENTIABLE = {
    "feature groups": UserCase(grouped(4, 1), (floats(4, 16, 8), floats(3, 2, 8))),
    "batch groups": UserCase(grouped(1, 4), (floats(8, 16, 4), floats(3, 4, 8))),
    "a kernel for each": UserCase(of_each, (floats(4, 16, 8), floats(4, 3, 8, 8))),
    "turned reshape": UserCase(lambda x: lax.reshape(x, (8, 16), (1, 0)) * 2, (X,)),
    "top of columns": UserCase(lambda x: lax.top_k(x, 3, axis=0)[0], (X,)),
    "a slice from outside": UserCase(read_twice, (X, jnp.int32(-3), jnp.int32(2))),
    "a slice of rows": UserCase(
        lambda x, i: lax.dynamic_slice(x, (i, i - 3), (6, 4)), (X, jnp.int32(13))
    ),
}

INTEGERS = {
    "top and where": UserCase(lambda x: lax.top_k(x.reshape(4, 4, 8), 3, axis=1), (X,)),
    "a matmul of truths": UserCase(
        lambda x, y: lax.dot_general(x, y, (((1,), (0,)), ((), ()))), (truths(16, 8), truths(8, 16))
    ),
    "windows of truths": UserCase(largest, (truths(16, 8),)),
}
