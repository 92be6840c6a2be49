"""Trace a `lax.reduce` with the user's own function as elementwise ops on halves of the operand.
JAX requires the function to be associative."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend import core


def halved(equation: Any) -> Any:
    """Return a function that computes the results of a `reduce` from its operands by repeated
    halving."""
    params, count = equation.params, len(equation.outvars)
    inner, dims = params["jaxpr"], params["dimensions"]
    apply = core.jaxpr_as_fun(inner if hasattr(inner, "consts") else core.ClosedJaxpr(inner, ()))

    def reduced(*args: Any) -> Any:
        operands, starts = args[:count], args[count:]
        kept = operands[0].ndim - len(dims)
        rows = tuple(_rows(x, dims) for x in operands)
        once = functools.reduce(lambda f, _: jax.vmap(f), range(kept), apply)
        shape = rows[0].shape[1:]
        total = [jnp.broadcast_to(start, shape) for start in starts]
        while rows[0].shape[0] > 1:
            half = rows[0].shape[0] // 2
            if rows[0].shape[0] % 2:
                total = once(*total, *(x[-1] for x in rows))
            rows = jax.vmap(once)(*(x[:half] for x in rows), *(x[half : 2 * half] for x in rows))
        return once(*total, *(x[0] for x in rows)) if rows[0].shape[0] else total

    return reduced


def _rows(x: Any, dims: tuple[int, ...]) -> Any:
    """Merge the reduced dimensions of a tensor into a new first dimension."""
    moved = jnp.moveaxis(x, dims, range(len(dims)))
    return moved.reshape(-1, *moved.shape[len(dims) :])
