"""What users' functions are listed with: their arguments, and their gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class UserCase(NamedTuple):
    """A function with what it is given; `smooth`: its gradient is a case too."""

    fn: Callable[..., Any]
    given: tuple[Any, ...]
    smooth: bool = False


def floats(*shape: int) -> Any:
    numbers = np.random.default_rng(sum(shape)).standard_normal(shape)
    return jnp.asarray(numbers, jnp.float32)


def integers(*shape: int, low: int = 0, high: int = 8, dtype: Any = np.int32) -> Any:
    return jnp.asarray(np.random.default_rng(sum(shape)).integers(low, high, shape), dtype)


def truths(*shape: int) -> Any:
    return integers(*shape, high=2).astype(bool)


def case(fn: Callable[..., Any], *given: Any) -> UserCase:
    return UserCase(fn, given)


def smooth(fn: Callable[..., Any], *given: Any) -> UserCase:
    return UserCase(fn, given, smooth=True)


def gradient(case: UserCase) -> UserCase:
    """Return the gradient of the sum of the sines of a function's floats."""
    fn, given, _ = case
    real = [n for n, x in enumerate(given) if jnp.issubdtype(x.dtype, jnp.floating)]

    def loss(*args: Any) -> Any:
        leaves = jax.tree.leaves(fn(*args))
        return sum(jnp.sin(x).sum() for x in leaves if jnp.issubdtype(x.dtype, jnp.floating))

    return UserCase(jax.grad(loss, argnums=real), given)


X, W = floats(16, 8), floats(8, 8) * 0.3
