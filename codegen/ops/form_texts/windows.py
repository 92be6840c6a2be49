"""Convolutions, poolings and their gradients along split dimensions."""

from __future__ import annotations

import re
from collections.abc import Generator
from dataclasses import replace

from shardwright.codegen.ops.form_texts.halos import window_rows
from shardwright.codegen.ops.form_texts.statement import FormLine, FormLines, FormText
from shardwright.codegen.ops.forms.windows import (
    fills,
    pairs_of,
    pooled,
    pooled_dims,
    slidings,
)
from shardwright.codegen.ops.literals import dtype_text
from shardwright.codegen.ops.text import OpText
from shardwright.ir.program import Op, Param

FINITE = re.compile(r"_e\dm\d.*fn")
"""Matches narrow float types without an infinity."""


def window_fill(text: OpText) -> str:
    """Return the neutral element of a windowed reduction, as a Python number if jax accepts it."""
    dtype, end = text.dtype, fills(text.op)
    if not end:
        return "0.0" if dtype[0] in "fb" else f"{dtype_text(dtype)}(0)"
    least = end == "max"
    if dtype == "bool":
        return str(not least)
    if dtype in ("u32", "u64") and not least:  # too large for JAX's default integers
        return f"jnp.dtype({dtype_text(dtype)}).type(jnp.iinfo({dtype_text(dtype)}).max)"
    if dtype[0] in "iu":
        return f"jnp.iinfo({dtype_text(dtype)}).{'min' if least else 'max'}"
    if FINITE.search(dtype):
        return f"jnp.finfo({dtype_text(dtype)}).{'min' if least else 'max'}"
    return "-jnp.inf" if least else "jnp.inf"


def convolution(form: FormText) -> FormLines:
    """Yield statements that fetch the rows needed along each split dimension, and convolve them."""
    rows, padding = yield from _taken(form, "0")
    op, out = form.text.op, form.text.op.integers("out_spec")[1]
    changed: dict[str, Param] = {"padding": padding}
    for name in ("feature_group_count", "batch_group_count"):
        (count,) = op.integers(name)
        if count > 1:
            changed[name] = count // form.parts(2, out)
    text = replace(form.text, op=_with(op, changed), given=(rows, form.given[1]))
    yield FormLine(form.results[0], form.plain(text))


def window(form: FormText) -> FormLines:
    """Yield statements that fetch the rows needed along each split dimension, and reduce their
    windows."""
    fill = window_fill(form.text)
    rows, padding = yield from _taken(form, "0" if form.text.op.kind.endswith("sum") else fill)
    text = replace(form.text, op=_with(form.text.op, {"padding": padding}), given=(rows,))
    yield FormLine(form.results[0], form.plain(text))


def _taken(
    form: FormText, fill: str
) -> Generator[FormLine, None, tuple[str, tuple[tuple[int, int], ...]]]:
    op, rows = form.text.op, form.given[0]
    whole = tuple(map(form.whole, range(len(form.text.shapes))))
    spec = op.integers("lhs_spec")[2:] if op.kind == "conv_general_dilated" else None
    padding = pairs_of(op)
    for each in slidings(op, whole):
        dim = each.dims[0]
        parts = form.parts(0, dim)
        found = each.window(parts) if parts > 1 else None
        if found is not None:
            taken, around = found
            rows = yield from window_rows(form, rows, 0, dim, taken, fill)
            padding[dim if spec is None else spec.index(dim)] = around
    return rows, tuple(padding)


def select_and_scatter(form: FormText) -> FormLines:
    """Yield statements that fetch the cotangents and rows of all windows that overlap a shard,
    compute their gradient, and cut out the shard's rows."""
    op = form.text.op
    whole = form.whole(0), form.whole(1)
    given, padding = list(form.given), pairs_of(op)
    crops: list[tuple[int, int]] = []
    for dim in pooled_dims(op, whole):
        parts = form.parts(1, dim)
        found = pooled(op, dim, whole[0][dim], whole[1][dim], parts) if parts > 1 else None
        if found is None:
            continue
        sides = (found.cotangents, "0"), (found.rows, window_fill(form.text))
        for place, (rows, fill) in enumerate(sides):
            given[place] = yield from window_rows(form, given[place], place, dim, rows, fill)
        padding[dim] = (0, 0)
        if not found.rows.is_own:
            crops.append((dim, found.crop))
    changed = _with(op, {"padding": tuple(padding)})
    text = replace(form.text, op=changed, given=tuple(given))
    name = form.local("all") if crops else form.results[0]
    yield FormLine(name, form.plain(text))
    for number, (dim, first) in enumerate(crops, 1):
        last = number == len(crops)
        cut = [name, str(first), str(first + form.extent(1, dim)), f"axis={dim}"]
        name = form.results[0] if last else name
        yield FormLine(name, ("lax.slice_in_dim", cut))


def _with(op: Op, params: dict[str, Param]) -> Op:
    return replace(op, params=tuple(sorted({**dict(op.params), **params}.items())))
