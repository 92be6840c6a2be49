"""The table from kinds of ops to expressions, as a person would write them for shards.

An expression is a function with its arguments, or finished text. Shapes are those of shards.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from shardwright.codegen.ops.elementwise import INFIX
from shardwright.codegen.ops.literals import (
    dtype_text,
    integers,
    listed,
    number,
)
from shardwright.codegen.ops.text import Expression, OpText, Shape

WEAK = frozenset({*INFIX, "div", "max", "min", "select_n"})
"""Ops that accept a Python number as an operand."""

NUMBER = re.compile(r"jnp\.\w+\(\d+\)")
"""Matches an expression for an integer as an array of rank 0."""

NARROW = {"i8": 2**7 - 1, "u8": 2**8 - 1, "i16": 2**15 - 1, "u16": 2**16 - 1}
"""The largest values of the integer types in which some extents overflow."""

IMPORTED = {"name": "from jax.ad_checkpoint import checkpoint_name"}
"""The imports that ops need besides `jax`, `jnp` and `lax`."""


def _call(name: str, text: OpText, *more: str) -> Expression:
    return name, [*text.given, *more]


def _div(text: OpText) -> Expression:
    if text.dtype[0] in "iu":
        return "lax.div", list(text.given)
    return f"{text.given[0]} / {text.given[1]}"


def _select(text: OpText) -> Expression:
    if text.dtypes[0] != "bool":
        return "lax.select_n", list(text.given)
    predicate, otherwise, then = text.given
    return "jnp.where", [predicate, then, otherwise]


def _cast(text: OpText) -> Expression:
    return f"{text.given[0]}.astype({dtype_text(text.dtype)})"


def _round(text: OpText) -> Expression:
    method = str(text.has("rounding_method"))
    return _call("lax.round", text, f"lax.RoundingMethod.{method}")


def _reduce_precision(text: OpText) -> Expression:
    bits = (f"{name}={text.has(name)}" for name in ("exponent_bits", "mantissa_bits"))
    return _call("lax.reduce_precision", text, *bits)


def _broadcast(text: OpText) -> Expression:
    if text.shapes[0] and text.shape == expanded_shape(text):
        return expanded(text)
    return "jnp.broadcast_to", [expanded(text), integers(text.shape)]


def expanded(text: OpText) -> str:
    """Return the operand of a broadcast, extended to the rank of the result. An operand of rank 0
    is returned unchanged."""
    dims, rank = text.op.integers("broadcast_dimensions"), len(text.shape)
    if len(dims) in (0, rank):
        return text.given[0]
    return f"{text.given[0]}[{_index(dims, rank)}]"


def _index(dims: Sequence[int], rank: int) -> str:
    return ", ".join(":" if dim in dims else "None" for dim in range(rank))


def expanded_shape(text: OpText) -> Shape:
    """Return the shape of a broadcast's operand, extended to the rank of the result."""
    place = {to: dim for dim, to in enumerate(text.op.integers("broadcast_dimensions"))}
    return tuple(text.shapes[0][place[to]] if to in place else 1 for to in range(len(text.shape)))


def _tile(text: OpText) -> Expression:
    pairs = zip(text.shape, text.shapes[0], strict=True)
    return _call("jnp.tile", text, integers(tuple(made // max(own, 1) for made, own in pairs)))


def _reshape(text: OpText) -> Expression:
    """Return a reshape, written as an index such as `x[:, None]` if it only adds dimensions of size
    1."""
    left = list(text.shapes[0])
    kept = [bool(left) and left[0] == extent and left.pop(0) == extent for extent in text.shape]
    is_added = all(keep or n == 1 for keep, n in zip(kept, text.shape, strict=True))
    if left or not any(kept) or not is_added:
        return f"{text.given[0]}.reshape({integers(text.shape)})"
    return f"{text.given[0]}[{', '.join(':' if keep else 'None' for keep in kept)}]"


def _transpose(text: OpText) -> Expression:
    order = text.op.integers("permutation")
    if order == (1, 0):
        return f"{text.given[0]}.T"
    return f"{text.given[0]}.transpose({integers(order)})"


def _reduction(plain: str, wide: tuple[str, ...]) -> Callable[[OpText], Expression]:
    """Return the function that writes a reduction. It uses `jnp` if that keeps the dtype, whether
    or not jax_enable_x64 is set, and accepts the shard (it rejects the maximum of no elements)."""

    def reduction(text: OpText) -> Expression:
        axes = text.op.integers("axes")
        if all(text.shapes[0][axis] == 1 for axis in axes):
            return _reshape(text)
        if text.dtype in wide and 0 not in text.shapes[0]:
            axis = axes if len(axes) > 1 else axes[0]
            return f"jnp.{plain}", [text.given[0], f"axis={integers(axis)}"]
        return f"lax.reduce_{plain}", [text.given[0], f"axes={integers(axes)}"]

    return reduction


def _arg(name: str) -> Callable[[OpText], Expression]:
    def found(text: OpText) -> Expression:
        (axis,) = text.op.integers("axes")
        return f"lax.{name}", [text.given[0], str(axis), dtype_text(text.dtype)]

    return found


def _cumulative(name: str) -> Callable[[OpText], Expression]:
    def cumulative(text: OpText) -> Expression:
        reverse = ["reverse=True"] if text.has("reverse") else []
        return _call(f"lax.{name}", text, f"axis={text.has('axis')}", *reverse)

    return cumulative


def _iota(text: OpText) -> Expression:
    (dim,) = text.op.integers("dimension")
    shape = integers(text.shape)
    whole = f"lax.broadcasted_iota({dtype_text(text.dtype)}, {shape}, {dim})"
    if len(text.shape) == 1:
        whole = f"jnp.arange({text.shape[0]}, dtype={dtype_text(text.dtype)})"
    names = text.layout.dims[dim]
    if not names:
        return whole
    quoted = [f'"{name}"' for name in names]
    axes = quoted[0] if len(quoted) == 1 else f"({', '.join(quoted)})"
    start = f"lax.axis_index({axes}).astype({dtype_text(text.dtype)}) * {text.shape[dim]}"
    return f"{whole} + {start}"


def _slice(text: OpText) -> Expression:
    starts, limits = text.op.integers("start_indices"), text.op.integers("limit_indices")
    strides = text.has("strides")
    steps = strides if isinstance(strides, tuple) else (1,) * len(starts)
    ranges = []
    for dim, (start, limit, step) in enumerate(zip(starts, limits, steps, strict=True)):
        whole = text.shape[dim] == text.shapes[0][dim]
        tail = "" if step == 1 else f":{step}"
        ranges.append(":" if whole else f"{start}:{limit}{tail}")
    return f"{text.given[0]}[{', '.join(ranges)}]"


def _pad(text: OpText) -> Expression:
    return _call("lax.pad", text, integers(text.op.param("padding_config")))


def _concatenate(text: OpText) -> Expression:
    return "jnp.concatenate", [f"({', '.join(text.given)},)", f"axis={text.has('dimension')}"]


def _rev(text: OpText) -> Expression:
    return _call("lax.rev", text, integers(text.op.integers("dimensions")))


def _split(text: OpText) -> Expression:
    axis = text.op.integers("axis")[0]
    sizes = tuple(shape[axis] for shape in text.shapes[1:])
    return _call("lax.split", text, integers(sizes), f"axis={axis}")


def _sort(text: OpText) -> Expression:
    ends = [f"dimension={text.has('dimension')}", f"num_keys={text.has('num_keys')}"]
    stable = f"is_stable={bool(text.has('is_stable'))}"
    if len(text.given) == 1:
        return "lax.sort", [text.given[0], ends[0], stable]
    return "lax.sort", [f"({', '.join(text.given)})", *ends, stable]


def _top_k(text: OpText) -> Expression:
    return _call("lax.top_k", text, str(text.has("k")))


def _dynamic_slice(text: OpText) -> Expression:
    """Return a dynamic slice. Clamp starts explicitly: XLA merges nested slices by adding their
    starts, and an outer start that is out of range would stay out of range."""
    source, *starts = text.given
    for dim, (extent, size) in enumerate(zip(text.shapes[0], text.shape, strict=True)):
        if size < extent and not NUMBER.fullmatch(starts[dim]):
            last = min(extent - size, NARROW.get(text.dtypes[1 + dim], extent))
            starts[dim] = f"jnp.clip({starts[dim]}, 0, {last})"
    return "lax.dynamic_slice", [source, listed(starts), integers(text.shape)]


def _dynamic_update_slice(text: OpText) -> Expression:
    source, update, *starts = text.given
    return "lax.dynamic_update_slice", [source, update, listed(starts)]


def _power(text: OpText) -> Expression:
    return f"{text.given[0]} ** {number(text.op.param('y'))}"


def _barrier(text: OpText) -> Expression:
    one = len(text.given) == 1
    return "lax.optimization_barrier", [text.given[0] if one else listed(text.given)]


def _named(text: OpText) -> Expression:
    return "checkpoint_name", [text.given[0], f'"{text.has("name")}"']


def _bitcast(text: OpText) -> Expression:
    return _call("lax.bitcast_convert_type", text, dtype_text(text.dtype))


FINITE = re.compile(r"_e\dm\d.*fn")
"""Matches narrow float types without an infinity."""


def window_fill(text: OpText) -> str:
    """Return the neutral element of a windowed reduction, as a Python number if jax accepts it."""
    dtype, kind = text.dtype, text.op.kind
    if kind == "reduce_window_sum":
        return "0.0" if dtype[0] in "fb" else f"{dtype_text(dtype)}(0)"
    least = kind == "reduce_window_max" or text.has("select_prim") == "ge"
    if dtype == "bool":
        return str(not least)
    if dtype in ("u32", "u64") and not least:  # exceeds JAX's default integers
        return f"jnp.dtype({dtype_text(dtype)}).type(jnp.iinfo({dtype_text(dtype)}).max)"
    if dtype[0] in "iu":
        return f"jnp.iinfo({dtype_text(dtype)}).{'min' if least else 'max'}"
    if FINITE.search(dtype):
        return f"jnp.finfo({dtype_text(dtype)}).{'min' if least else 'max'}"
    return "-jnp.inf" if least else "jnp.inf"


def _window(function: str) -> Callable[[OpText], Expression]:
    def window(text: OpText) -> Expression:
        names = ("window_dimensions", "window_strides", "padding", "base_dilation")
        ends = [f"{name}={integers(text.op.param(name))}" for name in (*names, "window_dilation")]
        return "lax.reduce_window", [text.given[0], window_fill(text), function, *ends]

    return window


def _select_and_scatter(text: OpText) -> Expression:
    names = ("window_dimensions", "window_strides", "padding")
    ends = [f"{name}={integers(text.op.param(name))}" for name in names]
    choose = f"select_prim=lax.{text.has('select_prim')}_p"
    return "lax.select_and_scatter_add_p.bind", [*text.given, choose, *ends]


TABLE: dict[str, Callable[[OpText], Expression]] = {
    "div": _div,
    "neg": lambda text: f"-{text.given[0]}",
    "not": lambda text: f"~{text.given[0]}",
    "select_n": _select,
    "convert_element_type": _cast,
    "bitcast_convert_type": _bitcast,
    "integer_pow": _power,
    "round": _round,
    "reduce_precision": _reduce_precision,
    "broadcast_in_dim": _broadcast,
    "tile": _tile,
    "reshape": _reshape,
    "squeeze": _reshape,
    "transpose": _transpose,
    "reduce_sum": _reduction("sum", ("f32", "f64")),
    "reduce_max": _reduction("max", ("f32", "f64", "i32", "bf16", "f16")),
    "reduce_min": _reduction("min", ("f32", "f64", "i32", "bf16", "f16")),
    "reduce_prod": _reduction("prod", ("f32", "f64")),
    "reduce_and": _reduction("and", ()),
    "reduce_or": _reduction("or", ()),
    "reduce_xor": _reduction("xor", ()),
    "argmax": _arg("argmax"),
    "argmin": _arg("argmin"),
    **{
        name: _cumulative(name)
        for name in ("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp")
    },
    "reduce_window_max": _window("lax.max"),
    "reduce_window_min": _window("lax.min"),
    "reduce_window_sum": _window("lax.add"),
    "select_and_scatter_add": _select_and_scatter,
    "iota": _iota,
    "slice": _slice,
    "pad": _pad,
    "concatenate": _concatenate,
    "rev": _rev,
    "split": _split,
    "sort": _sort,
    "top_k": _top_k,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "name": _named,
    "optimization_barrier": _barrier,
}
