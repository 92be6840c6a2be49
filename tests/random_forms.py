"""Random steps in which elements along a dimension depend on others, for random functions."""

from __future__ import annotations

import random
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

Shape = tuple[int, ...]
LAYOUT = ("NHC", "HIO", "NHC")


def _along(rank: int, dim: int, n: int) -> Shape:
    return tuple(n if d == dim else 1 for d in range(rank))


def _pool(x: Any, at: tuple[int, int, int]) -> Any:
    dim, size, stride = at
    window, strides = _along(x.ndim, dim, size), _along(x.ndim, dim, stride)
    return lax.reduce_window(x, -jnp.inf, lax.max, window, strides, "SAME")


def _mean(x: Any, at: tuple[int, int, int]) -> Any:
    dim, size, stride = at
    window, strides = _along(x.ndim, dim, size), _along(x.ndim, dim, stride)
    return lax.reduce_window(x, 0.0, lax.add, window, strides, "SAME") / size


def _convolve(x: Any, w: Any, size: int) -> Any:
    kernel = jnp.stack([w * (n - 1.0) / size for n in range(size)])
    return lax.conv_general_dilated(x, kernel, (1,), "SAME", dimension_numbers=LAYOUT)


def _pad(x: Any, at: tuple[int, int]) -> Any:
    dim, before = at
    rows = [(before, 8 - before) if d == dim else (0, 0) for d in range(x.ndim)]
    return jnp.pad(x, rows, constant_values=0.5)


def _part(x: Any, at: tuple[int, int]) -> Any:
    dim, number = at
    return jnp.split(x, 2, dim)[number]


STEPS: dict[str, Any] = {
    "pool": _pool,
    "mean": _mean,
    "convolve": _convolve,
    "pad": _pad,
    "part": _part,
    "roll": lambda x, at: jnp.roll(x, at[1], at[0]),
    "cumsum": lambda x, dim: jnp.cumsum(jnp.tanh(x), dim) / 8,
    "turned": lambda x, dim: jnp.flip(x, dim),
    "spaced": lambda x, at: x[(slice(None),) * at[0] + (slice(at[1], None, 2),)],
    "rows": lambda x, rows: x[jnp.array(rows)],
    "ordered": lambda x, at: jnp.take(x, jnp.array(at[1]), at[0]),
    "best": lambda x, k: jax.lax.top_k(x, k)[0],
}


def step(rng: random.Random, shapes: list[Shape], x: int) -> Any:
    """A random step on a value, as in `random_functions`; None where it does not fit."""
    shape = shapes[x]
    dim = rng.randrange(len(shape))
    extent = shape[dim]

    def of(n: int) -> Shape:
        return (*shape[:dim], n, *shape[dim + 1 :])

    match rng.choice(list(STEPS)):
        case ("pool" | "mean") as kind:
            stride = rng.choice((1, 2)) if extent == 16 else 1
            return kind, (x,), (dim, rng.choice((2, 3, 5)), stride), of(extent // stride)
        case "convolve":
            if len(shape) != 3:
                return None
            fitting = [v for v, o in enumerate(shapes) if len(o) == 2 and o[0] == shape[2]]
            if not fitting:
                return None
            w = rng.choice(fitting)
            return "convolve", (x, w), rng.choice((2, 3, 4)), (*shape[:2], shapes[w][1])
        case "pad":
            return ("pad", (x,), (dim, rng.randrange(9)), of(16)) if extent == 8 else None
        case "part":
            return ("part", (x,), (dim, rng.randrange(2)), of(8)) if extent == 16 else None
        case "roll":
            return "roll", (x,), (dim, rng.randrange(-9, 9)), shape
        case "turned":
            return "turned", (x,), dim, shape
        case "spaced":
            return ("spaced", (x,), (dim, rng.randrange(2)), of(8)) if extent == 16 else None
        case "cumsum":
            return "cumsum", (x,), dim, shape
        case "ordered":
            pairs = list(range(0, extent, 2))
            rng.shuffle(pairs)
            return "ordered", (x,), (dim, [row for n in pairs for row in (n, n + 1)]), shape
        case "rows":
            rows = tuple(rng.randrange(-shape[0], shape[0]) for _ in range(8))
            return "rows", (x,), rows, (8, *shape[1:])
        case _:
            return ("best", (x,), 8, (*shape[:-1], 8)) if shape[-1] >= 8 else None
