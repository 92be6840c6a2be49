"""Cumulative sums along a split dimension."""

from __future__ import annotations

from shardwright.codegen.ops.form_texts.statement import FormLine, FormLines, FormText

TOGETHER = {
    "cumsum": "{} + {}",
    "cumprod": "{} * {}",
    "cummax": "jnp.maximum({}, {})",
    "cummin": "jnp.minimum({}, {})",
    "cumlogsumexp": "jnp.logaddexp({}, {})",
}
"""The expression that combines the results of two consecutive stretches, by op."""


def cumulative(form: FormText) -> FormLines:
    """Yield statements that scan the shard, gather the totals of all shards, and combine the shard
    with the totals of earlier shards."""
    kind = form.text.op.kind
    (axis,) = form.text.op.integers("axis")
    reverse = bool(form.text.has("reverse"))
    along = f"axis={axis}, reverse=True" if reverse else f"axis={axis}"
    block, totals, before, number = map(form.local, ("block", "totals", "before", "number"))
    yield FormLine(number, form.at(0, axis))
    yield FormLine(block, f"lax.{kind}({form.given[0]}, {along})")
    extent, last = form.extent(0, axis), form.parts(0, axis) - 1
    end = 0 if reverse else extent - 1
    total = f"lax.slice_in_dim({block}, {end}, {end + 1}, axis={axis})"
    yield form.gathered(totals, total, 0, axis, axis)
    beside = f"{number} {'+' if reverse else '-'} 1"
    sums = f"lax.{kind}({totals}, {along})"
    yield FormLine(before, ("lax.dynamic_slice_in_dim", [sums, beside, "1", f"axis={axis}"]))
    more = f"{number} < {last}" if reverse else f"{number} > 0"
    both = TOGETHER[kind].format(block, before)
    yield FormLine(form.results[0], ("jnp.where", [more, both, block]))
