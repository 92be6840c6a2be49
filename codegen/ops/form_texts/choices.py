"""Argmax, argmin and top-k along a split dimension."""

from __future__ import annotations

from shardwright.codegen.ops.collective_text import collective_call
from shardwright.codegen.ops.form_texts.statement import FormLine, FormLines, FormText
from shardwright.codegen.ops.forms.choices import shared_dim
from shardwright.codegen.ops.literals import dtype_text
from shardwright.ir.axes import axes_text


def arg(form: FormText) -> FormLines:
    """Yield statements that find the best element of each shard, gather these elements, and select
    the first of the best."""
    kind = f"lax.{form.text.op.kind}"
    (axis,) = form.text.op.integers("axes")
    dtype = dtype_text(form.text.dtype)
    shared = shared_dim(form.text.shapes[0], axis, form.parts(0, axis))
    own, best, places, first = map(form.local, ("own", "best", "places", "first"))
    (given,) = form.given
    said = "Each device finds its best element. The result is the index of the first of the best."
    yield FormLine(own, f"jnp.expand_dims({kind}({given}, {axis}, {dtype}), {axis})", said=said)
    taken = f"jnp.take_along_axis({given}, {own}, axis={axis})"
    yield _brought(form, best, taken, axis, shared)
    place = f"{own} + {form.at(0, axis)}.astype({dtype}) * {form.extent(0, axis)}"
    yield _brought(form, places, place, axis, shared)
    yield FormLine(first, f"jnp.expand_dims({kind}({best}, {axis}, {dtype}), {axis})")
    chosen = f"jnp.take_along_axis({places}, {first}, axis={axis})"
    found = form.results[0] if shared is None else form.local("found")
    yield FormLine(found, ("jnp.squeeze", [chosen, f"axis={axis}"]))
    if shared is not None:
        yield form.gathered(form.results[0], found, 0, axis, shared - (shared > axis))


def top_k(form: FormText) -> FormLines:
    """Yield statements that find the largest elements of each shard, gather them, and select the
    largest of all shards."""
    op, (given,) = form.text.op, form.given
    last = len(form.text.shapes[0]) - 1
    (count,) = op.integers("k")
    extent = form.extent(0, last)
    shared = shared_dim(form.text.shapes[0], last, form.parts(0, last))
    own, at, best, places, first = map(form.local, ("own", "at", "best", "places", "first"))
    found = form.results
    if shared is not None:
        found = form.local("found"), form.local("where")
    values, indices = found
    yield FormLine(f"{own}, {at}", f"lax.top_k({given}, {min(count, extent)})")
    yield _brought(form, best, own, last, shared)
    place = f"{at} + {form.at(0, last)} * {extent}"
    yield _brought(form, places, place, last, shared)
    yield FormLine(f"{values}, {first}", f"lax.top_k({best}, {count})")
    yield FormLine(indices, ("jnp.take_along_axis", [places, first, f"axis={last}"]))
    if shared is not None:
        for result, part in zip(form.results, found, strict=True):
            yield form.gathered(result, part, 0, last, shared)


def _brought(form: FormText, target: str, given: str, along: int, shared: int | None) -> FormLine:
    """Return the statement that concatenates the candidates of all shards. `shared`: a dimension
    along which each device then handles only a part, or None."""
    if shared is None:
        return form.gathered(target, given, 0, along, along)
    axes = axes_text(form.axes(0, along))
    made = collective_call("all_to_all", given, axes, shared, along)
    return FormLine(target, made, moves=True)
