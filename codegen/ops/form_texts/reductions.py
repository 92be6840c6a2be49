"""Reductions along split dimensions for which there is no collective."""

from __future__ import annotations

from shardwright.codegen.ops.form_texts.statement import FormLine, FormLines, FormText


def reduced(form: FormText) -> FormLines:
    """Yield the statement that reduces the shard and then, for each split dimension, statements
    that gather and reduce the results of all shards."""
    kind = form.text.op.kind
    split = [axis for axis in form.text.op.integers("axes") if form.axes(0, axis)]
    so_far = form.local("own")
    yield FormLine(so_far, form.plain(form.text))
    for axis in split:
        every = form.local("every")
        yield form.gathered(every, f"{so_far}[None]", 0, axis, 0)
        so_far = form.results[0] if axis == split[-1] else form.local("own")
        yield FormLine(so_far, f"lax.{kind}({every}, axes=(0,))")
