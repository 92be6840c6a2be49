"""Argmax, argmin and top-k along a split dimension."""

from __future__ import annotations

from shardwright.codegen.backends.jax_spmd.forms.statement import FormLine, FormLines, FormText
from shardwright.codegen.backends.jax_spmd.literals import dtype_text


def arg(form: FormText) -> FormLines:
    """Yield the best of the shard, those of all shards, and the place of the first best one."""
    kind = f"lax.{form.text.op.kind}"
    (axis,) = form.text.op.integers("axes")
    dtype = dtype_text(form.text.dtype)
    own, best, places, first = map(form.local, ("own", "best", "places", "first"))
    (given,) = form.given
    yield FormLine(own, f"jnp.expand_dims({kind}({given}, {axis}, {dtype}), {axis})")
    taken = f"jnp.take_along_axis({given}, {own}, axis={axis})"
    yield form.gathered(best, taken, 0, axis, axis)
    place = f"{own} + {form.at(0, axis)}.astype({dtype}) * {form.extent(0, axis)}"
    yield form.gathered(places, place, 0, axis, axis)
    yield FormLine(first, f"jnp.expand_dims({kind}({best}, {axis}, {dtype}), {axis})")
    chosen = f"jnp.take_along_axis({places}, {first}, axis={axis})"
    yield FormLine(form.results[0], ("jnp.squeeze", [chosen, f"axis={axis}"]))


def top_k(form: FormText) -> FormLines:
    """Yield the best of the shard, those of all shards, and the best of these."""
    op, (given,) = form.text.op, form.given
    last = len(form.text.shapes[0]) - 1
    (count,) = op.integers("k")
    extent = form.extent(0, last)
    own, at, best, places, first = map(form.local, ("own", "at", "best", "places", "first"))
    values, indices = form.results
    yield FormLine(f"{own}, {at}", f"lax.top_k({given}, {min(count, extent)})")
    yield form.gathered(best, own, 0, last, last)
    yield form.gathered(places, f"{at} + {form.at(0, last)} * {extent}", 0, last, last)
    yield FormLine(f"{values}, {first}", f"lax.top_k({best}, {count})")
    yield FormLine(indices, ("jnp.take_along_axis", [places, first, f"axis={last}"]))
