"""Values inside a program whose extents do not divide, what they may move, and planted faults."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
from form_cases import ROWS, Fn, FormCase, f32, i32
from jax import lax

SEQUENCE = '[{}, {"d"}, {}]'
X, W = f32(4, 64, 16), f32(3, 16, 16)
ROW, SUM, LAYOUT = 4 * 16 * 4, 7, ("NHC", "HIO", "NHC")  # bytes of a row, and of a sum of numbers


def gradient(fn: Fn) -> Fn:
    return jax.grad(lambda x: (fn(x) ** 2).sum())


def differences(x: Any) -> Any:
    return (jnp.diff(x, axis=1) ** 2).sum()


def valid(stride: int, dilation: int) -> Fn:
    def convolution(x: Any, w: Any) -> Any:
        y = lax.conv_general_dilated(
            x, w, (stride,), "VALID", rhs_dilation=(dilation,), dimension_numbers=LAYOUT
        )
        return jnp.exp(y / 16).sum()

    return convolution


def pooled(x: Any) -> Any:
    best = lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 1), (1, 1, 1), "VALID")
    return lax.reduce_window(best, 0.0, lax.add, (1, 2, 1), (1, 1, 1), "VALID").max()


def next_token(logits: Any, tokens: Any) -> Any:
    scores = jax.nn.log_softmax(logits[:, :-1])
    return -jnp.take_along_axis(scores, tokens[:, 1:, None], -1).mean()


def attention(x: Any) -> Any:
    x = x[:, 1:]
    scores = jnp.einsum("bsh,bth->bst", x, x)
    return jnp.einsum("bst,bth->bsh", jax.nn.softmax(scores), x).sum()


def products(x: Any) -> Any:
    return jnp.einsum("bsh,bsk->hk", jnp.exp(x[:, 1:]), x[:, :-1])


def cases() -> Iterator[FormCase]:
    one, two = ((X,), (SEQUENCE,)), ((X, W), (SEQUENCE, None))
    yield FormCase("differences", differences, *one, "[]", ROW + SUM)
    yield FormCase("gradient of differences", gradient(differences), *one, SEQUENCE, 2 * ROW + SUM)
    last = lambda x: jax.nn.log_softmax(x[:, :-1])  # noqa: E731
    yield FormCase("gradient of all but the last row", gradient(last), *one, SEQUENCE, 0)
    sides = ((f32(4, 64, 16), i32(4, 64)), (SEQUENCE, '[{}, {"d"}]'))
    yield FormCase("next token", next_token, *sides, "[]", 16 + SUM)
    yield FormCase("gradient of next token", jax.grad(next_token), *sides, SEQUENCE, 16)
    for stride, dilation, rows in ((1, 1, 2), (1, 2, 4), (2, 1, 1)):
        name = f"valid convolution, stride {stride}, dilation {dilation}"
        fn, most = valid(stride, dilation), (56 if stride > 1 else rows) * ROW + SUM
        yield FormCase(name, fn, *two, "[]", most)
    fn, most = jax.grad(valid(1, 1), (0, 1)), 2 * ROW + 2 * ROW + 2 * 7 * 3 * 16 * 16 * 4 // 8
    yield FormCase("gradient of a valid convolution", fn, *two, (SEQUENCE, "[{}, {}, {}]"), most)
    yield FormCase("valid pools", pooled, *one, "[]", 3 * ROW + SUM)
    maxima = lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 1), (1, 1, 1), "VALID")  # noqa: E731
    yield FormCase("gradient of valid maxima", gradient(maxima), *one, SEQUENCE, 6 * ROW)
    fn = gradient(lambda x: -maxima(-jnp.exp(x[:, :-1])))
    yield FormCase("gradient of least rows", fn, *one, SEQUENCE, 6 * ROW)
    fn = lambda x: jnp.exp(x[:, :-1]).sum()  # noqa: E731
    yield FormCase("a sum of all but the last row", fn, *one, "[]", SUM)
    fn = lambda x: (-jnp.exp(x[:, 2:])).max()  # noqa: E731
    yield FormCase("a maximum of negative numbers", fn, *one, "[]", 2 * ROW + SUM)
    fn = lambda x: jnp.argmin(x[:, 1:] ** 2 + 1, 1)  # noqa: E731
    yield FormCase("the least of all but the first row", fn, *one, "[{}, {}]", ROW + 7 * 2 * 64 * 2)
    fn = lambda x: x[:, :-1].mean(1)  # noqa: E731
    yield FormCase("a mean of all but the last row", fn, *one, "[{}, {}]", 2 * 7 * ROW // 8)
    yield FormCase("products of neighbours", products, *one, "[{}, {}]", ROW + 2 * 7 * 1024 // 8)
    most = ROW + 2 * 7 * 8 * ROW + SUM
    yield FormCase("attention of all but the first row", attention, *one, "[]", most)
    fn = lambda x: jnp.tanh(x[1:]) @ jnp.ones((6, 6))  # noqa: E731
    yield FormCase("a result of all rows but one", fn, (f32(32, 6),), (ROWS,), "[{}, {}]", 29 * 24)
    yield from strided()


def strided() -> Iterator[FormCase]:
    """31 of 64 or 96 rows: each device takes rows of its own, and one of the next device."""
    fn = lambda x: jnp.exp(x[:, 2::2]).sum()  # noqa: E731
    yield FormCase("every other row of 64", fn, (X,), (SEQUENCE,), "[]", ROW + SUM)
    fn = gradient(lambda x: jnp.sin(x[:, 2::2]))
    yield FormCase("gradient of every other row of 64", fn, (X,), (SEQUENCE,), SEQUENCE, 2 * ROW)
    fn = lambda x: jnp.exp(x[:, 4:-1:3]).sum()  # noqa: E731
    yield FormCase("every third row of 96", fn, (f32(4, 96, 16),), (SEQUENCE,), "[]", ROW + SUM)
    fn = lambda x: jnp.exp(x[:, 1:][:, ::2]).sum()  # noqa: E731
    yield FormCase("every other row but the first", fn, (X,), (SEQUENCE,), "[]", ROW + SUM)


SUMMED, MASK = "a sum of all but the last row", r"(_end\w* = \w+) < "
FAULTS = {
    "a mask left out": (SUMMED, r"jnp\.where\(\w+\[None, :, None\], exp, 0\.0\)", "exp"),
    "a padded row read": (SUMMED, MASK + "63", r"\1 < 64"),
    "a row too few": (SUMMED, MASK + "63", r"\1 < 62"),
    "a mean over the padded count": ("a mean of all but the last row", r"63\.0", "64.0"),
    "a mask of zeros in a maximum": ("a maximum of negative numbers", r"-jnp\.inf\)", "0.0)"),
    "windows over padded rows": (
        "valid convolution, stride 1, dilation 1",
        MASK + "62",
        r"\1 < 63",
    ),
    "a gradient of windows over padded rows": ("gradient of valid maxima", MASK + "62", r"\1 < 63"),
    "a row too few in a contraction": ("products of neighbours", MASK + "63", r"\1 < 62"),
}
"""The planted faults: the case, a pattern, and what replaces its first match."""
