"""Random bits of a shard, equal to those at its positions in the whole tensor."""

from __future__ import annotations

import math

from shardwright.codegen.ops.form_texts.statement import FormLine, FormLines, FormText
from shardwright.codegen.ops.literals import dtype_text


def random_bits(form: FormText) -> FormLines:
    """Yield statements that number a shard's positions in the whole tensor, and compute the bits
    for these numbers."""
    shape = form.text.shape
    whole = [extent * form.parts(1, dim) for dim, extent in enumerate(shape)]
    number, first, second = map(form.local, ("number", "first", "second"))
    so_far = ""
    for dim, extent in enumerate(shape):
        if whole[dim] == 1:
            continue
        numbers = f"jnp.arange({extent}, dtype=jnp.uint32)"
        if form.axes(1, dim):
            numbers += f" + {form.at(1, dim)}.astype(jnp.uint32) * {extent}"
        name = form.local(f"at_{dim}")
        yield FormLine(name, numbers)
        index = ", ".join(":" if d == dim else "None" for d in range(len(shape)))
        stride = math.prod(whole[dim + 1 :])
        term = f"{name}[{index}]" if len(shape) > 1 else name
        term = term if stride == 1 else f"{term} * {stride}"
        yield FormLine(number, f"{so_far}{term}")
        so_far = f"{number} + "
    key = f"jax.random.key_data({form.given[0]})"
    counts = f"jnp.stack([jnp.zeros_like({number}), {number}])"
    yield FormLine(f"{first}, {second}", ("threefry_2x32", [key, counts]))
    narrow = "" if form.text.dtype == "u32" else f".astype({dtype_text(form.text.dtype)})"
    both = f"{first} ^ {second}"
    yield FormLine(form.results[0], f"({both}){narrow}" if narrow else both)
