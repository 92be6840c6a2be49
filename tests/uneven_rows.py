"""Losses along a sequence that is split over 8 devices, with values of other extents in between:
each is a row of `bench/uneven_bytes.md`, and so is its gradient."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from program_patterns import Pattern, shaped

import shardwright as sw

MESH = sw.Mesh({"d": 8})
SEQUENCE = '[{}, {"d"}, {}]'
X, W, KERNEL, TOKEN = shaped(4, 512, 256), shaped(256, 256), shaped(3, 256, 256), shaped(4, 1, 256)
LAYOUT = ("NHC", "HIO", "NHC")
Fn = Callable[..., Any]


def squares(x: Any) -> Any:
    return (x**2).sum()


def next_token(x: Any) -> Any:
    labels = jnp.arange(1, 512) % 256
    scores = jax.nn.log_softmax(x[:, :-1])
    return -jnp.take_along_axis(scores, labels[None, :, None], -1).mean()


def windows(x: Any, start: float, op: Fn, size: int, stride: int) -> Any:
    return lax.reduce_window(x, start, op, (1, size, 1), (1, stride, 1), "VALID")


def convolution(stride: int, dilation: int) -> Fn:
    def fn(x: Any, w: Any) -> Any:
        return squares(
            lax.conv_general_dilated(
                x, w, (stride,), "VALID", rhs_dilation=(dilation,), dimension_numbers=LAYOUT
            )
        )

    return fn


def register(x: Any, token: Any, w: Any) -> Any:
    """A token that is there for one layer."""
    return squares(jnp.tanh(jnp.concatenate([token, x], 1) @ w)[:, 1:])


def attention(x: Any) -> Any:
    x = x[:, 1:]
    scores = jnp.einsum("bsh,bth->bst", x, x) / 16
    return squares(jnp.einsum("bst,bth->bsh", jax.nn.softmax(scores), x))


def normal(x: Any) -> Any:
    """Rows less their mean, over their deviation."""
    x = x[:, 2:]
    return jnp.tanh((x - x.mean(1, keepdims=True)) / (x.std(1, keepdims=True) + 1)).sum()


def unequal(x: Any) -> Any:
    first, last = jnp.split(x, [100], 1)
    return squares(jnp.tanh(first)) + squares(jnp.exp(last))


LOSSES: dict[str, tuple[Fn, tuple[Any, ...]]] = {
    "all but the last row": (lambda x: squares(jax.nn.log_softmax(x[:, :-1])), (X,)),
    "all but 3 rows at each end": (lambda x: squares(jnp.tanh(x[:, 3:-3])), (X,)),
    "next token": (next_token, (X,)),
    "differences": (lambda x: squares(jnp.diff(x, axis=1)), (X,)),
    "second differences": (lambda x: squares(jnp.diff(x, 2, axis=1)), (X,)),
    "rows times the next row": (lambda x: squares(x[:, 1:] * x[:, :-1]), (X,)),
    "a convolution": (convolution(1, 1), (X, KERNEL)),
    "a dilated convolution": (convolution(1, 4), (X, KERNEL)),
    "a convolution with stride 2": (convolution(2, 1), (X, KERNEL)),
    "means of 4 rows": (lambda x: squares(windows(x, 0.0, lax.add, 4, 1) / 4), (X,)),
    "maxima of 3 rows": (lambda x: squares(windows(x, -jnp.inf, lax.max, 3, 1)), (X,)),
    "a token before": (lambda x, t: squares(jnp.tanh(jnp.concatenate([t, x], 1))), (X, TOKEN)),
    "a token after": (lambda x, t: squares(jnp.tanh(jnp.concatenate([x, t], 1))), (X, TOKEN)),
    "a token for one layer": (register, (X, TOKEN, W)),
    "a mean": (lambda x: squares(jnp.exp(x[:, 1:]).mean(1)), (X,)),
    "a maximum": (lambda x: squares(jnp.tanh(x[:, :-2]).max(1)), (X,)),
    "normal rows": (normal, (X,)),
    "a cumulative sum of differences": (
        lambda x: squares(jnp.cumsum(jnp.tanh(jnp.diff(x, axis=1)), 1)),
        (X,),
    ),
    "products of all rows": (
        lambda x: squares(jnp.einsum("bsh,bsk->hk", x[:, 1:], x[:, :-1])),
        (X,),
    ),
    "unequal parts": (unequal, (X,)),
    "attention": (attention, (X,)),
}


def patterns() -> Iterator[Pattern]:
    """Yield each loss, and its gradient."""
    for name, (fn, avals) in LOSSES.items():
        inputs = (SEQUENCE, *("[" + ", ".join(["{}"] * aval.ndim) + "]" for aval in avals[1:]))
        every = tuple(range(len(avals)))
        yield Pattern(name, fn, avals, MESH, inputs, "[]", 0)
        yield Pattern(f"{name}, gradient", jax.grad(fn, every), avals, MESH, inputs, inputs, 0)
