"""Convolutions and poolings along split dimensions, their gradients, and the rows they may move."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from form_cases import Fn, FormCase, f32
from jax import lax

LAYOUT = ("NHWC", "HWIO", "NHWC")
HIGH, BOTH, WIDE = '[{}, {"d"}, {}, {}]', '[{}, {"d"}, {"t"}, {}]', '[{}, {}, {"t"}, {}]'
FEATURES, WHOLE = '[{}, {}, {}, {"t"}]', "[{}, {}, {}, {}]"
X = f32(2, 32, 16, 4)
ROW, COLUMN = 2 * 16 * 4 * 4, 2 * 32 * 4 * 4  # bytes of a row, and of a column, of X
WEIGHTS = 3 * 3 * 4 * 6 * 4


def convolved(stride: int, padding: Any, **more: Any) -> Fn:
    def convolution(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(
            x, w, (stride, stride), padding, dimension_numbers=LAYOUT, **more
        )

    return convolution


def gradients(fn: Fn) -> Fn:
    return jax.grad(lambda x, w: (fn(x, w) ** 2).sum(), (0, 1))


def convolutions() -> Iterator[FormCase]:
    """A row to each side of a kernel of three; with strides only one side."""
    given = (X, f32(3, 3, 4, 6))
    for name, stride, padding, more, rows in (
        ("convolution", 1, "SAME", {}, 2),
        ("convolution with strides", 2, "SAME", {}, 1),
        ("convolution, dilated kernel", 1, "SAME", {"rhs_dilation": (2, 2)}, 4),
        ("convolution, dilated input", 1, ((2, 1), (2, 1)), {"lhs_dilation": (2, 2)}, 1),
        ("convolution, rows left out", 2, ((-1, 2), (0, 0)), {}, 2),
    ):
        fn = convolved(stride, padding, **more)
        where = (HIGH, WHOLE)
        yield FormCase(name, fn, given, where, HIGH, rows * ROW)
    fn = convolved(1, "SAME")
    most = 2 * ROW * 3 // 2 + WEIGHTS * 7 // 4 + 2 * ROW
    where = (HIGH, WHOLE)
    yield FormCase("gradient of a convolution", gradients(fn), given, where, where, 2 * most)
    fn = convolved(2, "SAME")
    name = "gradient of a convolution with strides"
    yield FormCase(name, gradients(fn), given, where, where, ROW * 2 + WEIGHTS * 7 // 4)
    fn = convolved(1, "SAME")
    corners = 2 * ROW // 2 + 2 * COLUMN // 4 + 2 * 2 * 32
    where = (BOTH, WHOLE)
    yield FormCase("convolution both ways", fn, given, where, BOTH, corners, "two")
    name = "a kernel wider than shards"
    wide = (X, f32(13, 3, 4, 6))
    yield FormCase(name, fn, wide, (HIGH, WHOLE), HIGH, 12 * ROW)
    fn = convolved(1, "VALID")
    where = (WIDE, WHOLE)
    yield FormCase("uneven shards", fn, given, where, WIDE, COLUMN, "two")
    most = COLUMN + WEIGHTS + 2 * (2 * 30 * 6 * 4)
    yield FormCase("gradient of uneven shards", gradients(fn), given, where, where, most, "two")
    yield from grouped()


def grouped() -> Iterator[FormCase]:
    """Groups are split as features are; nothing moves."""
    given, fn = (X, f32(3, 3, 1, 8)), convolved(1, "SAME", feature_group_count=4)
    where = (FEATURES, FEATURES)
    yield FormCase("groups", fn, given, where, FEATURES, 0, "two")
    yield FormCase("gradient of groups", gradients(fn), given, where, where, 0, "two")
    both = '[{}, {"d"}, {}, {"t"}]'
    yield FormCase("groups and rows", fn, given, (both, FEATURES), both, ROW, "two")


def pooled(kind: Fn, start: float, size: int, stride: int, padding: Any) -> Fn:
    window, strides = (1, size, size, 1), (1, stride, stride, 1)
    return lambda x: lax.reduce_window(x, start, kind, window, strides, padding)


def gradient(fn: Fn) -> Fn:
    return jax.grad(lambda x: (fn(x) ** 3).sum())


def maximum(size: int, stride: int, padding: Any = "SAME") -> Fn:
    return pooled(lax.max, -jnp.inf, size, stride, padding)


def mean(size: int, stride: int) -> Fn:
    fn = pooled(lax.add, 0.0, size, stride, "SAME")
    return lambda x: fn(x) / size**2


def padded(x: Any) -> Any:
    """The best of windows around what is padded before."""
    filled = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=-jnp.inf)
    return maximum(3, 1, "VALID")(filled)


def pools() -> Iterator[FormCase]:
    """Windows of two touch no neighbour's rows."""
    yield FormCase("pool", maximum(2, 2), (X,), (HIGH,), HIGH, 0)
    yield FormCase("gradient of pool", gradient(maximum(2, 2)), (X,), (HIGH,), HIGH, 0)
    yield FormCase("pool over a border", maximum(3, 2), (X,), (HIGH,), HIGH, ROW)
    least = lambda x: pooled(lax.min, jnp.inf, 3, 1, "SAME")(x)  # noqa: E731
    yield FormCase("least over borders", least, (X,), (HIGH,), HIGH, 2 * ROW)
    yield FormCase("pool of what is padded", padded, (X,), (HIGH,), HIGH, 2 * ROW)
    name = "gradient of pool over a border"
    yield FormCase(name, gradient(maximum(3, 2)), (X,), (HIGH,), HIGH, 3 * ROW + ROW // 2)
    name = "gradient of pool over every border"
    yield FormCase(name, gradient(maximum(3, 1)), (X,), (HIGH,), HIGH, 8 * ROW)
    uneven = maximum(3, 1, "VALID")
    yield FormCase("pool of uneven shards", uneven, (X,), (WIDE,), WIDE, COLUMN, "two")
    name = "gradient of pool of uneven shards"
    yield FormCase(name, gradient(uneven), (X,), (WIDE,), WIDE, 5 * COLUMN, "two")
    yield FormCase("mean", mean(3, 1), (X,), (HIGH,), HIGH, 2 * ROW)
    name = "gradient of mean"
    yield FormCase(name, gradient(mean(3, 2)), (X,), (HIGH,), HIGH, 3 * ROW // 2)
    whole = lambda x: lax.reduce_window(x.astype("int32"), np.int32(-(2**31)), lax.max, *SLID)  # noqa: E731
    yield FormCase("pool of integers", whole, (X,), (HIGH,), HIGH, 2 * ROW)


SLID = ((1, 3, 1, 1), (1, 1, 1, 1), "SAME")


def cases() -> Iterator[FormCase]:
    yield from convolutions()
    yield from pools()


FAULTS = {
    "a halo off by one": (
        "convolution",
        r"lax\.slice_in_dim\(x, 3, 4, axis=1\)",
        "lax.slice_in_dim(x, 2, 3, axis=1)",
    ),
    "a halo left out": ("convolution", r"(\w+_halo)(\w*), x,", r"jnp.zeros_like(\1\2), x,"),
    "a halo from behind": ("convolution", r"\(i, i \+ 1\) for i in range\(7\)", "(7, 0)"),
    "padding at every border": ("convolution", r"padding=\(\(0, 0\)", "padding=((1, -1)"),
    "a window of another shard": ("uneven shards", r"axis_index\(\"t\"\) \* -1", "axis_index('t')"),
    "rows that there are not": ("least over borders", r"_number >= 0,", "_number >= -1,"),
    "a crop off by one": (
        *("gradient of pool over a border", r"_all, 2, 6, axis=1", "_all, 1, 5, axis=1"),
    ),
    "a window too few": (
        "gradient of pool over a border",
        r"jnp\.concatenate\(\((\w+_halo), (\w+)\)",
        r"jnp.concatenate((0 * \1, \2)",
    ),
    "a kernel's gradient of own rows": (
        "gradient of a convolution",
        r"(= lax.conv_general_dilated\(\s+\w+),",
        r"\1.at[:, (0, -1)].set(0.0),",
    ),
}
"""What is planted: the case, what is replaced, by what."""
