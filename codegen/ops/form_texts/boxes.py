"""Ops that move rows to other positions: each shard sends its rows to the shards that contain these
positions."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from shardwright.codegen.ops.form_texts.halos import sent
from shardwright.codegen.ops.form_texts.statement import FormLine, FormLines, FormText
from shardwright.codegen.ops.forms.boxes import (
    StretchRound,
    box_dims,
    box_rounds,
    stretches_of_box,
    stretches_taken,
)
from shardwright.codegen.ops.literals import dtype_text, integers, listed
from shardwright.codegen.ops.text import Expression, OpText


def boxes(form: FormText) -> FormLines:
    """Yield statements that move the rows of each result to its shards, one split dimension after
    another. Unsplit dimensions are cut and reversed first, and padded last."""
    op, count = form.text.op, len(form.given)
    whole = tuple(map(form.whole, range(len(form.text.shapes))))
    dims = box_dims(op, whole)
    split = [dim for dim in dims if form.axes(0, dim)]
    rest = [dim for dim in dims if dim not in split]
    given = [form.given[place] for place in range(count) if whole[place]]
    for number, result in enumerate(form.results):
        shape = list(form.text.shapes[0])
        if rest and op.kind == "slice":
            given = [(yield from _cut(form, given[0], rest, shape))]
        if rest and op.kind == "rev":
            turned = form.local("turned")
            yield FormLine(turned, f"lax.rev({given[0]}, {integers(tuple(rest))})")
            given = [turned]
        names = given
        for dim in split:
            stretches = stretches_of_box(op, whole, dim, number)
            extents = tuple(form.extent(place, dim) for place in range(len(given)))
            shape[dim] = form.extent(count + number, dim)
            found = box_rounds(stretches, extents, shape[dim], form.parts(0, dim))
            is_last = dim == split[-1] and not (rest and op.kind == "pad")
            name = result if is_last else form.local("moved")
            spaces = stretches[0].step, stretches[0].apart
            yield from _moved(form, names, (dim, *spaces), found, shape, name)
            names = [name]
        if rest and op.kind == "pad":
            config = list(_config(form, rest))
            padded = [names[0], form.given[1], integers(tuple(config))]
            yield FormLine(result, ("lax.pad", padded))


def _cut(
    form: FormText, given: str, rest: Sequence[int], shape: list[int]
) -> Generator[FormLine, None, str]:
    op, ranges = form.text.op, [":"] * len(shape)
    starts, limits = op.integers("start_indices"), op.integers("limit_indices")
    strides = form.text.has("strides")
    for dim in rest:
        step = f":{strides[dim]}" if isinstance(strides, tuple) and strides[dim] != 1 else ""
        ranges[dim] = f"{starts[dim]}:{limits[dim]}{step}"
        shape[dim] = form.extent(1, dim)
    name = form.local("cut")
    yield FormLine(name, f"{given}[{', '.join(ranges)}]")
    return name


def _config(form: FormText, rest: Sequence[int]) -> Generator[tuple[int, ...], None, None]:
    given = form.text.op.param("padding_config")
    for dim, own in enumerate(given if isinstance(given, tuple) else ()):
        numbers = own if isinstance(own, tuple) else ()
        yield tuple(n if isinstance(n, int) and dim in rest else 0 for n in numbers)


def _moved(
    form: FormText,
    given: Sequence[str],
    along: tuple[int, int, int],
    rounds: Sequence[StretchRound],
    shape: Sequence[int],
    name: str,
) -> FormLines:
    """Yield statements that collect a result's rows along one dimension. `along`: the dimension,
    and the strides of its source and target rows.

    In a round, a shard that receives no rows writes its rows beyond its end, where they are cut
    off.
    """
    dim, step, apart = along
    extent, axis = shape[dim], f"axis={dim}"
    spans = ((each.length - 1) * apart + 1 for each in rounds if None in each.places)
    behind = max(spans, default=0)
    number, so_far = form.local("number"), form.local("so_far")
    yield FormLine(number, form.at(0, dim))
    source = given[0]
    if len(given) > 1:
        source = form.local("together")
        yield FormLine(source, ("jnp.concatenate", [f"({', '.join(given)})", axis]))
    yield FormLine(so_far, _empty(form, (*shape[:dim], extent + behind, *shape[dim + 1 :])))
    for each in rounds:
        rows = form.local("rows")
        start, length = _by_shard(each.starts, number, None), (each.length - 1) * abs(step) + 1
        cut = [source, start, str(length), axis]
        yield FormLine(rows, ("lax.dynamic_slice_in_dim", cut))
        if step != 1:
            yield FormLine(rows, f"{rows}[{', '.join([*[':'] * dim, f'::{step}'])}]")
        if each.pairs:
            yield FormLine(rows, sent(form, 0, dim, rows, each.pairs), moves=True)
        if apart != 1:
            between = tuple((0, 0, (apart - 1) * (d == dim)) for d in range(len(shape)))
            yield FormLine(rows, ("lax.pad", [rows, form.given[1], integers(between)]))
        place = _by_shard(each.places, number, extent)
        yield FormLine(so_far, ("lax.dynamic_update_slice_in_dim", [so_far, rows, place, axis]))
    ends = [so_far, "0", str(extent), axis]
    yield FormLine(name, ("lax.slice_in_dim", ends) if behind else so_far)


def _empty(form: FormText, shape: tuple[int, ...]) -> Expression:
    if form.text.op.kind == "pad":
        return "jnp.full", [integers(shape), form.given[1]]
    return "jnp.zeros", [integers(shape), dtype_text(form.text.dtype)]


def _by_shard(values: Sequence[int | None], number: str, otherwise: int | None) -> str:
    """Return the expression for this shard's value. `otherwise`: the value of shards that have
    none, or None if it does not matter, which allows the shortest expression."""
    known = [(n, value) for n, value in enumerate(values) if value is not None]
    (first, start), (second, after) = known[0], known[min(1, len(known) - 1)]
    step = (after - start) // max(second - first, 1)
    regular = all(value == start + (n - first) * step for n, value in known)
    if regular and (otherwise is None or len(known) == len(values)):
        least = start - first * step
        if not step:
            return str(least)
        text = number if step == 1 else f"{number} * {step}"
        return f"{text} {'-' if least < 0 else '+'} {abs(least)}" if least else text
    filled = [(otherwise or 0) if value is None else value for value in values]
    return f"jnp.array({filled})[{number}]"


def plain_rows(text: OpText) -> Expression:
    """Return the permuted rows of a dimension that is not split."""
    (dim,) = text.op.integers("dimensions")
    items = []
    for each in stretches_taken(text.op):
        stop = each.start + each.length * each.step
        step = f":{each.step}" if each.step != 1 else ""
        rows = f"{each.start}:{stop if stop >= 0 else ''}{step}"
        items.append(f"{text.given[0]}[{', '.join([*[':'] * dim, rows])}]")
    return "jnp.concatenate", [listed(items), f"axis={dim}"]
