"""Gathers, scatters and slices along a split dimension: each device handles its own rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from shardwright.codegen.ops.form_texts.statement import FormLine, FormLines, FormText
from shardwright.codegen.ops.literals import dtype_text, integers, listed
from shardwright.codegen.ops.text import OpText
from shardwright.ir.program import Param


def gather(form: FormText) -> FormLines:
    """Yield statements that mask the indices in this shard and gather their rows, with zeros for
    other indices.

    An index before the first row belongs to the first device, and an index beyond the last row to
    the last device; these devices apply the mode's rule for indices out of range.
    """
    text = form.text
    here, rows, own = map(form.local, ("here", "rows", "own"))
    given = _as_int32(form, 1)
    tests, shifts, split = [], {}, []
    for component, dim in enumerate(text.op.integers("start_index_map")):
        if form.axes(0, dim):
            split.append(dim)
            extent, last = form.extent(0, dim), form.parts(0, dim) - 1
            index = f"{given}[..., {component}]"
            tests.append(f"jnp.clip({index} // {extent}, 0, {last}) == {form.at(0, dim)}")
            shifts[component] = f"{form.at(0, dim)} * {extent}"
    rows_of = f"its own {form.extent(0, split[0])} rows" if len(split) == 1 else "rows that it has"
    yield FormLine(here, tests[0], said=f"Each device looks up {rows_of} and gives 0 for others.")
    for test in tests[1:]:
        yield FormLine(here, f"{here} & ({test})")
    yield FormLine(rows, _shifted(given, shifts, form.extent(1, -1)))
    mode = "FILL_OR_DROP" if text.has("mode") == "FILL_OR_DROP" else "CLIP"
    made = form.plain(_with(text, "mode", mode, {1: rows}))
    yield FormLine(own, made)
    offsets = text.op.integers("offset_dims")
    mask = f"jnp.expand_dims({here}, {integers(offsets)})" if offsets else here
    yield FormLine(form.results[0], ("jnp.where", [mask, own, "0"]))


def scatter(form: FormText) -> FormLines:
    """Yield statements that compute row numbers relative to this shard and scatter to them, which
    drops rows of other shards."""
    text = form.text
    rows = form.local("rows")
    given = _as_int32(form, 1)
    dims = text.op.integers("scatter_dims_to_operand_dims")
    if text.has("mode") == "CLIP":
        given = f"jnp.clip({given}, 0, jnp.array({integers(_last_rows(form, dims))}))"
    shifts = {
        component: f"{form.at(0, dim)} * {form.extent(0, dim)}"
        for component, dim in enumerate(dims)
        if form.axes(0, dim)
    }
    said = "Each device handles the indices of its own rows and drops others."
    yield FormLine(rows, _shifted(given, shifts, form.extent(1, -1)), said=said)
    changed = _with(text, "mode", "FILL_OR_DROP", {1: rows})
    yield FormLine(form.results[0], form.plain(changed))


def _last_rows(form: FormText, dims: Sequence[int]) -> tuple[int, ...]:
    """Return, for each dimension of the whole tensor, the last index at which an update fits."""
    op = form.text.op
    gone = {*op.integers("inserted_window_dims"), *op.integers("operand_batching_dims")}
    kept = [dim for dim in range(len(form.text.shapes[0])) if dim not in gone]
    windows = dict(zip(kept, op.integers("update_window_dims"), strict=True))
    return tuple(
        form.extent(0, dim) * form.parts(0, dim)
        - (form.extent(2, windows[dim]) * form.parts(2, windows[dim]) if dim in windows else 1)
        for dim in dims
    )


def _as_int32(form: FormText, place: int) -> str:
    """Return indices as signed integers of at least 32 bits, because relative indices can be
    negative."""
    dtype, given = form.text.dtypes[place], form.given[place]
    return given if dtype in ("i32", "i64") else f"{given}.astype(jnp.int32)"


def _shifted(given: str, shifts: dict[int, str], components: int) -> str:
    if components == 1:
        return f"{given} - {shifts[0]}"
    starts = ", ".join(shifts.get(component, "0") for component in range(components))
    return f"{given} - jnp.stack([{starts}])"


def _with(text: OpText, name: str, param: Param, given: dict[int, str]) -> OpText:
    params = tuple(sorted({**dict(text.op.params), name: param}.items()))
    operands = tuple(given.get(place, own) for place, own in enumerate(text.given))
    return replace(text, op=replace(text.op, params=params), given=operands)


def read_slice(form: FormText) -> FormLines:
    """Yield statements that compute the row numbers of a slice relative to this shard and read the
    slice, with zeros for rows of other shards."""
    text, place = form.text, len(form.given)
    dim = _split_dim(form, text.shapes[place])
    rows, extent = form.local("rows"), form.extent(0, dim)
    yield FormLine(rows, _rows(form, dim, text.shapes[place][dim]))
    yield FormLine(rows, _behind(rows, extent))
    source = _cut(form, dim, text.shapes[place])
    ends = [f"axis={dim}", 'mode="fill"', "fill_value=0"]
    yield FormLine(form.results[0], ("jnp.take", [source, rows, *ends]))


def is_read_whole(form: FormText) -> bool:
    """Return whether the result of a slice is whole along the dimension that is sliced and
    split."""
    dims = range(len(form.text.shapes[0]))
    return any(form.axes(0, dim) != form.axes(1, dim) for dim in dims)


def write_slice(form: FormText) -> FormLines:
    """Yield statements that compute the row numbers of an update relative to this shard and write
    the update, which drops rows of other shards."""
    text = form.text
    source, update, *_ = form.given
    own = text.shapes[1]
    dim = _split_dim(form, own)
    rows, extent = form.local("rows"), form.extent(0, dim)
    yield FormLine(rows, _rows(form, dim, own[dim]))
    yield FormLine(rows, _behind(rows, extent))
    block = _cut(form, dim, own)
    index = ", ".join([*[":"] * dim, rows])
    if block == source:
        yield FormLine(form.results[0], f'{block}.at[{index}].set({update}, mode="drop")')
        return
    changed = form.local("block")
    yield FormLine(changed, block)
    yield FormLine(changed, f'{changed}.at[{index}].set({update}, mode="drop")')
    starts = listed(_starts(form, dim, own))
    yield FormLine(form.results[0], ("lax.dynamic_update_slice", [source, changed, starts]))


def _starts(form: FormText, dim: int, part: Sequence[int]) -> list[str]:
    """Return the starts of a slice or an update along all dimensions, 0 along `dim`. `part`: the
    shape of the slice or the update."""
    first, whole = len(form.given) - len(part), form.text.shapes[0]
    starts = [
        form.text.clamped(first + d, whole[d], size) if d != dim else ""
        for d, size in enumerate(part)
    ]
    starts[dim] = _zero(form)
    return starts


def _zero(form: FormText) -> str:
    return f"{dtype_text(form.text.dtypes[len(form.given) - 1])}(0)"


def _behind(rows: str, extent: int) -> str:
    """Return an expression that replaces row numbers before this shard by a number beyond its end,
    because negative numbers would count from the end."""
    return f"jnp.where({rows} < 0, {extent}, {rows})"


def _split_dim(form: FormText, part: Sequence[int]) -> int:
    """Return the dimension that is both sliced and split. `part`: the shape of the result or the
    update, which is whole along that dimension."""
    whole = form.text.shapes[0]
    dims = [d for d in range(len(whole)) if form.axes(0, d) and not _alike(form, d, part)]
    (dim,) = dims
    return dim


def _alike(form: FormText, dim: int, part: Sequence[int]) -> bool:
    place = 1 if form.text.op.kind == "dynamic_update_slice" else len(form.given)
    return form.axes(0, dim) == form.axes(place, dim)


def _rows(form: FormText, dim: int, length: int) -> str:
    op, here = form.text.op, f"{form.at(0, dim)} * {form.extent(0, dim)}"
    if op.kind == "slice":
        start, step = op.integers("start_indices")[dim], _steps(form)[dim]
        many = f"jnp.arange({start}, {start + length * step}, {step})" if step > 1 else ""
        return f"{many or f'jnp.arange({start}, {start + length})'} - {here}"
    given = len(form.given) - len(form.text.shapes[0]) + dim
    first = _as_int32(form, given)
    whole = form.extent(0, dim) * form.parts(0, dim)
    return f"jnp.clip({first}, 0, {whole - length}) + jnp.arange({length}) - {here}"


def _steps(form: FormText) -> tuple[int, ...]:
    given = form.text.has("strides")
    return (1,) * len(form.text.shapes[0]) if given is None else form.text.op.integers("strides")


def _cut(form: FormText, dim: int, part: Sequence[int]) -> str:
    text, whole = form.text, form.text.shapes[0]
    if all(extent == whole[d] for d, extent in enumerate(part) if d != dim):
        return form.given[0]
    if text.op.kind == "slice":
        starts, limits = (text.op.integers(f"{end}_indices") for end in ("start", "limit"))
        steps = _steps(form)
        ranges = (
            ":" if d == dim or extent == whole[d] else f"{starts[d]}:{limits[d]}:{steps[d]}"
            for d, extent in enumerate(part)
        )
        return f"{form.given[0]}[{', '.join(ranges)}]"
    at = _starts(form, dim, part)
    sizes = tuple(whole[d] if d == dim else extent for d, extent in enumerate(part))
    return f"lax.dynamic_slice({form.given[0]}, {listed(at)}, {integers(sizes)})"
