"""Ops that shift blocks along a dimension: neighbours send rows, and each shard selects its own."""

from __future__ import annotations

from collections.abc import Iterator

from shardwright.codegen.ops.form_texts.statement import FormLine, FormLines, FormText
from shardwright.codegen.ops.forms.shifts import (
    RingPart,
    RingShift,
    Stretch,
    shifts_of,
    stretches_of,
)
from shardwright.codegen.ops.literals import integers, listed
from shardwright.codegen.ops.text import Expression, OpText
from shardwright.ir.axes import axes_text


def shift(form: FormText) -> FormLines:
    """Yield statements that rotate each split operand around the ring of shards, and then select
    the rows of the result."""
    op, result = form.text.op, len(form.given)
    (dim,) = op.integers("dimension")
    extent, parts = form.extent(result, dim), form.parts(result, dim)
    long = [p for p in range(result) if form.text.shapes[p] and form.axes(p, dim)]
    shifts = list(shifts_of(op, long, extent, parts))
    taken: list[tuple[str, tuple[Stretch, ...]]] = []
    for shift in shifts:
        name = form.results[0] if _is_all(shift, extent * parts) else form.local("shifted")
        yield from _shifted(form, shift, name, dim)
        taken.append((name, shift.stretches))
    if not _is_all(shifts[0], extent * parts):
        yield from _chosen(form, dim, taken, long)


def _is_all(shift: RingShift, extent: int) -> bool:
    return sum(each.length for each in shift.stretches) == extent


def _shifted(form: FormText, shift: RingShift, name: str, dim: int) -> FormLines:
    texts = []
    given, extent = form.given[shift.place], form.extent(shift.place, dim)
    for part in shift.parts:
        whole = part.high - part.low == extent
        rows = f"lax.slice_in_dim({given}, {part.low}, {part.high}, axis={dim})"
        text = given if whole else rows
        if part.hops and part.needed:
            halo = name if len(shift.parts) == 1 else form.local("halo")
            yield FormLine(halo, _sent(form, shift.place, dim, text, part), moves=True)
            text = halo
        texts.append(text)
    if texts != [name]:
        alone = len(texts) == 1
        both = ("jnp.concatenate", [f"({', '.join(texts)})", f"axis={dim}"])
        yield FormLine(name, texts[0] if alone else both)


def _sent(form: FormText, place: int, dim: int, text: str, part: RingPart) -> Expression:
    count, axes = form.parts(place, dim), form.axes(place, dim)
    ordered = form.text.axes.ordered(axes)
    pairs = f"[(i, (i + {part.hops}) % {count}) for i in range({count})]"
    if ordered != axes:  # jax numbers devices in mesh order
        at = form.positions(place, dim)
        pairs = str([(at[n], at[(n + part.hops) % count]) for n in range(count)])
    return "lax.ppermute", [text, axes_text(ordered), pairs]


def _chosen(
    form: FormText, dim: int, taken: list[tuple[str, tuple[Stretch, ...]]], long: list[int]
) -> FormLines:
    result = len(form.given)
    extent, parts = form.extent(result, dim), form.parts(result, dim)
    rows = form.local("rows")
    yield FormLine(rows, f"jnp.arange({extent}) + {form.at(result, dim)} * {extent}")
    for each in stretches_of(form.text.op):
        if each.place not in long:
            given = form.given[each.place]
            if each.length > 1:
                first = f"{rows} - {each.to}" if each.to else rows
                index = f"jnp.clip({first}, 0, {each.length - 1})"
                given = f"jnp.take({given}, {index}, axis={dim})"
            taken.append((given, (each,)))
    base = form.given[-1] if not form.text.shapes[result - 1] else ""
    after = ", None" * (len(form.text.shape) - 1 - dim)
    for number, (text, stretches) in enumerate(taken):
        if not base:
            base = text
            continue
        tests = list(_tests(rows, stretches, extent * parts))
        mask = tests[0] if len(tests) == 1 else " | ".join(f"({test})" for test in tests)
        mask = f"({mask})[:{after}]" if after else mask
        last = number == len(taken) - 1
        name = form.results[0] if last else form.local("so_far")
        yield FormLine(name, ("jnp.where", [mask, text, base]))
        base = name


def _tests(rows: str, stretches: tuple[Stretch, ...], extent: int) -> Iterator[str]:
    for each in stretches:
        end = each.to + each.length
        tests = [f"{rows} >= {each.to}"] if each.to else []
        tests += [f"{rows} < {end}"] if end < extent else []
        yield tests[0] if len(tests) == 1 else f"({tests[0]}) & ({tests[1]})"


def plain_shift(text: OpText) -> Expression:
    """Return the concatenated blocks of a dimension that is not split."""
    (dim,) = text.op.integers("dimension")
    items, at = [], 0
    for each in stretches_of(text.op):
        items += _filled(text, dim, each.to - at)
        end = each.start + each.length
        own = text.shapes[each.place][dim] == each.length
        given = text.given[each.place]
        cut = f"lax.slice_in_dim({given}, {each.start}, {end}, axis={dim})"
        items.append(given if own else cut)
        at = each.to + each.length
    items += _filled(text, dim, text.shape[dim] - at)
    return "jnp.concatenate", [listed(items), f"axis={dim}"]


def _filled(text: OpText, dim: int, length: int) -> list[str]:
    if not length:
        return []
    shape = (*text.shape[:dim], length, *text.shape[dim + 1 :])
    return [f"jnp.full({integers(shape)}, {text.given[-1]})"]
