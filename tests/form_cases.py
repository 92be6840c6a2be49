"""Functions in which elements along a split dimension depend on each other, and what they may
move."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

import shardwright as sw

MESHES = {"d": sw.Mesh({"d": 8}), "two": sw.Mesh({"d": 4, "t": 2})}
Fn = Callable[..., Any]
ROWS, COLUMNS, PAIR, TRIPLE = '[{"d"}, {}]', '[{}, {"d"}]', "[{}, {}]", "[{}, {}, {}]"


class FormCase(NamedTuple):
    """One function; `most` is what its busiest device may receive, in bytes; `most_as_shardy`: that
    in the mode `as_shardy`, where it is more."""

    name: str
    fn: Fn
    avals: tuple[Any, ...]
    inputs: tuple[str | None, ...]
    output: Any
    most: int
    mesh: str = "d"
    most_as_shardy: int = 0


def f32(*shape: int) -> Any:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def i32(*shape: int) -> Any:
    return jax.ShapeDtypeStruct(shape, jnp.int32)


def scan(kind: str, reverse: bool) -> Fn:
    return lambda x: getattr(lax, kind)(x, axis=0, reverse=reverse)


def scans() -> Iterator[FormCase]:
    """Cumulative sums: 7 totals of 4 columns."""
    x = (f32(32, 4),)
    for kind in ("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"):
        for reverse in (False, True):
            name = f"{kind}{' in reverse' if reverse else ''}"
            yield FormCase(name, scan(kind, reverse), x, (ROWS,), ROWS, 7 * 4 * 4)
    both, sums = '[{"t", "d"}, {}]', scan("cumsum", False)
    yield FormCase("cumsum over two axes", sums, x, (both,), both, 112, "two")
    gradient = jax.grad(lambda x: (jnp.cumsum(x, 0) ** 2).sum())
    yield FormCase("gradient of cumsum", gradient, x, (ROWS,), ROWS, 224)
    yield FormCase("cumsum of integers", sums, (i32(32, 4),), (ROWS,), ROWS, 112)


def top(k: int) -> Fn:
    return lambda x: lax.top_k(x, k)


def choices() -> Iterator[FormCase]:
    """Argmax and top-k along a split vocabulary."""
    x = (f32(16, 64),)
    for fn in (jnp.argmax, jnp.argmin):
        yield FormCase(fn.__name__, lambda x, f=fn: f(x, -1), x, (COLUMNS,), "[{}]", 7 * 2 * 12)
    ties = lambda x: jnp.argmax(jnp.round(x), -1)  # noqa: E731
    yield FormCase("argmax, ties", ties, x, (COLUMNS,), "[{}]", 7 * 2 * 12)
    odd = (f32(15, 64),)
    yield FormCase("argmax of odd rows", ties, odd, (COLUMNS,), "[{}]", 7 * 15 * 8)
    deep, middle = (f32(3, 64, 16),), '[{}, {"d"}, {}]'
    between = lambda x: jnp.argmax(x, 1)  # noqa: E731
    yield FormCase("argmax in the middle", between, deep, (middle,), PAIR, 7 * 6 * 12)
    for k in (3, 20):
        most = 7 * 2 * (min(k, 8) + k) * 8
        yield FormCase(f"top {k}", top(k), x, (COLUMNS,), PAIR, most)
        yield FormCase(
            f"top {k} of odd rows", top(k), odd, (COLUMNS,), PAIR, 7 * 15 * min(k, 8) * 8
        )
    rounded = lambda x: lax.top_k(jnp.round(x), 3)  # noqa: E731
    yield FormCase("top 3, ties", rounded, x, (COLUMNS,), PAIR, 7 * 2 * 6 * 8)
    both = '[{"t"}, {"d"}]'
    two = lambda x: jnp.argmax(x, -1)  # noqa: E731
    yield FormCase("argmax on two axes", two, x, (both,), '[{"t"}]', 3 * 2 * 12, "two")
    turned = '[{}, {"t", "d"}]'
    yield FormCase("argmax, turned axes", two, x, (turned,), "[{}]", 7 * 2 * 12, "two")


def taken(mode: str) -> Fn:
    return lambda t, i: jnp.take(t, i * 40 - 30, axis=0, mode=mode)


def added(mode: str) -> Fn:
    return lambda t, i, u: jnp.asarray(t).at[i * 40 - 30].add(u, mode=mode)


def combined(how: str) -> Fn:
    return lambda t, u: getattr(jnp.asarray(t).at[jnp.array([3, 63, 63, 0])], how)(u)


def put(mode: str) -> Fn:
    return lambda t, u: jnp.asarray(t).at[jnp.array([3, 70, 63, 0])].set(u, mode=mode)


def rows(t: Any, i: Any) -> Any:
    return t[i * 20 + 1]


def indexed() -> Iterator[FormCase]:
    """Tables that are split by rows."""
    given, where = (f32(64, 16), i32(4, 8)), (ROWS, None)
    size = 4 * 8 * 16 * 4
    most = 2 * 7 * size // 8
    yield FormCase("embedding", rows, given, where, TRIPLE, most)
    for mode in ("clip", "fill"):
        yield FormCase(f"embedding, {mode}", taken(mode), given, where, TRIPLE, most)
    scattered = '[{}, {}, {"d"}]'
    yield FormCase("embedding, split after", rows, given, where, scattered, most // 2)
    gradient = jax.grad(lambda t, i: (rows(t, i) ** 2).sum())
    yield FormCase("gradient of embedding", gradient, given, where, ROWS, most)
    where, name = ('[{"t"}, {}]', '[{"d"}, {}]'), "embedding beside data"
    yield FormCase(name, rows, given, where, '[{"d"}, {}, {}]', size // 4, "two")
    most = size // 4 + 2 * 3 * 32 * 16 * 4 // 4
    yield FormCase(f"gradient of {name}", gradient, given, where, where[0], most, "two")
    for mode in ("drop", "clip"):
        more = (*given, f32(4, 8, 16))
        yield FormCase(f"scatter-add, {mode}", added(mode), more, (ROWS, None, None), ROWS, 0)
        both = (given[0], f32(4, 16))
        yield FormCase(f"scatter, {mode}", put(mode), both, (ROWS, None), ROWS, 0)
    for how in ("multiply", "max", "min"):
        both = (given[0], f32(4, 16))
        yield FormCase(f"scatter, {how}", combined(how), both, (ROWS, None), ROWS, 0)
    yield FormCase(
        *("the label's score", lambda x, i: jnp.take_along_axis(x, i[:, None] * 20, -1)),
        *((f32(16, 64), i32(16)), (COLUMNS, None), PAIR, 2 * 7 * 16 * 4 // 8),
    )
    yield FormCase(
        *("two indices", lambda x, i, j: x[i * 20, j * 5], (f32(64, 16), i32(9), i32(9))),
        *(('[{"d"}, {"t"}]', None, None), "[{}]", 2 * 7 * 9 * 4 // 8 + 9, "two"),
    )


def written(offset: int) -> Fn:
    return lambda c, u, i: lax.dynamic_update_slice(c, u, (0, i + offset, 0))


def read(offset: int) -> Fn:
    return lambda c, i: lax.dynamic_slice(c, (0, i + offset, 0), (4, 1, 8))


def sliced() -> Iterator[FormCase]:
    """Slices of a dimension that is split."""
    cache, one, index = f32(4, 64, 8), f32(4, 1, 8), i32()
    where, row = '[{}, {"d"}, {}]', 4 * 8 * 4
    for at in (30, 80, -70):
        yield FormCase(
            *(f"write a row at {at}", written(at), (cache, one, index)),
            *((where, None, None), where, 0),
        )
        given = ((cache, index), (where, None), TRIPLE, 2 * 7 * row // 8)
        yield FormCase(f"read a row at {at}", read(at), *given)
    first, layered = '[{"d"}, {}, {}]', '[{}, {}, {"d"}, {}]'
    yield FormCase(
        *("write rows over a border", lambda c, u, i: lax.dynamic_update_slice(c, u, (i, 0, 0))),
        *((f32(64, 4, 8), f32(11, 4, 8), index), (first, None, None), first, 0),
    )
    yield FormCase(
        "write a row of a layer",
        lambda c, u, i: lax.dynamic_update_slice(c, u, (i, 0, i + 33, 0)),
        *((f32(3, 4, 64, 8), f32(1, 4, 1, 8), index), (layered, None, None), layered, 0),
    )
    yield FormCase(
        "read rows over a border",
        lambda c, i: lax.dynamic_slice(c, (i, i + 33, 0), (1, 11, 8)),
        *((cache, index), (where, None), TRIPLE, 2 * 7 * 11 * 32 // 8),
    )
    yield FormCase("the last row", lambda c: c[:, -1], (cache,), (where,), PAIR, 2 * 7 * row // 8)
    yield FormCase(
        *("every seventh row", lambda c: c[:, 5:40:7, 1:3], (cache,), (where,), TRIPLE),
        2 * 7 * 4 * 5 * 2 * 4 // 8,
    )


def bits(dtype: str) -> Fn:
    def made(key: Any) -> Any:
        return jax.random.bits(jax.random.wrap_key_data(jnp.asarray(key, "uint32")), (32, 6), dtype)

    return made


def dropped(x: Any) -> Any:
    keep = jax.random.uniform(jax.random.key(7), x.shape, jnp.float32) < 0.5
    return jnp.where(keep, x, 0.0)


def random_ones() -> Iterator[FormCase]:
    """Random numbers, which are jit's."""
    key = (jax.ShapeDtypeStruct((2,), jnp.uint32),)
    for dtype in ("uint32", "uint16", "uint8"):
        given = (bits(dtype), key, (None,), '[{"d"}, {"t"}]', 0, "two")
        yield FormCase(f"bits in {dtype}", *given)
    where = '[{"t"}, {}, {"d"}]'
    yield FormCase("dropout", dropped, (f32(16, 3, 4),), (where,), where, 0, "two")
    noise = lambda x: x + jax.random.normal(jax.random.key(7), x.shape, "float32")  # noqa: E731
    yield FormCase("noise", noise, (f32(16, 4),), (ROWS,), ROWS, 0)


def later(x: Any) -> Any:
    """A row later, zeros first."""
    return jnp.pad(x[:, :-1], ((0, 0), (1, 0), (0, 0)))


def begun(x: Any, first: Any) -> Any:
    return jnp.concatenate([first, x[:, :-3]], 1)


def shifted() -> Iterator[FormCase]:
    """Shifts by rows, in a ring and with what is filled in."""
    x, where = (f32(4, 64, 8),), '[{}, {"d"}, {}]'
    row = 4 * 8 * 4
    for by in (1, -3, 8, 19, -20):
        size = row * min(8, by % 8 if abs(by) < 8 and by > 0 else abs(by) if abs(by) < 8 else 8)
        roll = lambda x, by=by: jnp.roll(x, by, 1)  # noqa: E731
        yield FormCase(f"roll by {by}", roll, x, (where,), where, size)
    gradient = jax.grad(lambda x: (jnp.roll(x, 2, 1) ** 3).sum())
    yield FormCase("gradient of roll", gradient, x, (where,), where, 4 * row)
    yield FormCase("a row later", later, x, (where,), where, row)
    gradient = jax.grad(lambda x: (later(x) ** 3).sum())
    yield FormCase("gradient of a row later", gradient, x, (where,), where, 2 * row)
    ahead = lambda x: lax.pad(x, 1.5, ((0, 0, 0), (-2, 2, 0), (0, 0, 0)))  # noqa: E731
    yield FormCase("rows ahead", ahead, x, (where,), where, 2 * row)
    more = ((*x, f32(4, 3, 8)), (where, None), where, 3 * row)
    yield FormCase("what is begun", begun, *more)
    swapped = lambda x: jnp.concatenate([x[:, 32:], x[:, :32]], 1)  # noqa: E731
    yield FormCase("halves swapped", swapped, x, (where,), where, 8 * row)
    both = '[{"t", "d"}]'
    yield FormCase(
        *("roll on two axes", lambda x: jnp.roll(x, 1), (f32(64),), (both,), both, 4, "two")
    )


def both_sorted(x: Any, i: Any) -> Any:
    return lax.sort((x, i), dimension=1, num_keys=1)


def along_others() -> Iterator[FormCase]:
    """Sorts along a whole dimension; maxima and sums of a softmax along a split one."""
    given, where = (f32(16, 64), i32(16, 64)), (ROWS, ROWS)
    yield FormCase("two sorted by one", both_sorted, given, where, where, 0)
    softmax = lambda x: jax.nn.softmax(x, -1)  # noqa: E731
    x, reduced = (f32(16, 64),), 2 * 7 * 16 * 4 // 8
    yield FormCase("softmax", softmax, x, (COLUMNS,), COLUMNS, 2 * reduced)
    gradient = jax.grad(lambda x: (softmax(x) ** 3).sum())
    yield FormCase("gradient of softmax", gradient, x, (COLUMNS,), COLUMNS, 4 * reduced)


def reductions() -> Iterator[FormCase]:
    """What no collective makes, 7 results of 4 columns, and truth values, by a maximum."""
    x = (f32(32, 4),)
    yield FormCase("product", lambda x: jnp.prod(x, 0), x, (ROWS,), "[{}]", 7 * 16)
    bits = lambda x: lax.reduce_xor(x, axes=(0,))  # noqa: E731
    yield FormCase("parity", bits, (i32(32, 4),), (ROWS,), "[{}]", 7 * 16)
    both = lambda x: jnp.prod(x * 2)  # noqa: E731
    yield FormCase("product of all", both, x, ('[{"d"}, {"t"}]',), "[]", 3 * 4 + 4, "two")
    for fn in (jnp.any, jnp.all):
        name = f"{fn.__name__} of rows"
        yield FormCase(name, lambda x, f=fn: f(x > 0.1, 0), x, (ROWS,), "[{}]", 2 * 7 * 4 // 8)
        whole = lambda x, f=fn: f(jnp.isfinite(x))  # noqa: E731
        yield FormCase(f"{fn.__name__} of all", whole, x, (ROWS,), "[]", 2 * 7 // 8)


def copied() -> Iterator[FormCase]:
    """Copies put together, split by the copy; along a dimension that is split it is gathered."""
    tiled = lambda x: jnp.tile(x, (4, 2))  # noqa: E731
    both = '[{"d", "t"}, {}]'
    yield FormCase("copies", tiled, (f32(6, 4),), ('[{"t"}, {}]',), both, 0, "two")
    yield FormCase("copies of rows", tiled, (f32(32, 4),), (ROWS,), PAIR, 7 * 4 * 16)


def cases() -> Iterator[FormCase]:
    groups = (scans, choices, indexed, sliced, random_ones, shifted, along_others)
    for group in (*groups, reductions, copied):
        yield from group()
