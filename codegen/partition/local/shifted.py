"""Join the ops of a shift along a split dimension: rolls, padded slices, and concatenations of
slices become one op, `shift`."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace

from shardwright.codegen.ops.forms.shifts import padded_dims, stretches_of
from shardwright.codegen.partition.local.in_use import in_use
from shardwright.ir.program import Body, Op, Program, Value


def with_shifts(program: Program) -> Program:
    """Return a program in which each shift along a split dimension is a single op."""
    return replace(program, body=_rewritten(program.body, program.values))


def _rewritten(body: Body, values: Sequence[Value]) -> Body:
    made_by = {result: op for op in body.ops for result in op.results}
    ops = []
    for op in body.ops:
        found = _as_shift(op, made_by, values) or _added(op, made_by)
        if found is not None:
            made_by[op.results[0]] = found
        inner = tuple(_rewritten(each, values) for each in op.bodies)
        ops.append(found or (replace(op, bodies=inner) if inner else op))
    return replace(body, ops=tuple(in_use(body, ops)))


def _as_shift(op: Op, made_by: Mapping[int, Op], values: Sequence[Value]) -> Op | None:
    """Return the shift that ends in this op as one op. Return None for other ops, or if the
    dimension is not split."""
    found = None
    if op.kind == "pad":
        found = _padded(op, made_by, values)
    elif op.kind == "concatenate":
        found = _together(op, made_by, values)
    if found is None:
        return None
    dim, rows, fill = found
    result = values[op.results[0]]
    long = [source for source, *_ in rows if values[source].shape[dim] == result.shape[dim]]
    split = any(_is_split(values[value], dim) for value in (*long, *op.results))
    if not long or not split:
        return None
    sources = tuple(dict.fromkeys(source for source, *_ in rows))
    numbers = tuple(n for source, *own in rows for n in (sources.index(source), *own))
    params = (("dimension", dim), ("stretches", numbers))
    operands = sources if fill is None else (*sources, fill)
    return Op("shift", operands, op.results, params, line=op.line)


Rows = tuple[int, int, int, int]  # source, start, to, length
Found = tuple[int, list[Rows], int | None]  # dimension, rows, fill value


def _is_split(value: Value, dim: int) -> bool:
    return value.sharding is not None and bool(value.sharding.dims[dim].axes)


def _padded(op: Op, made_by: Mapping[int, Op], values: Sequence[Value]) -> Found | None:
    """Return the shift that a pad of a slice makes, as its dimension, its one stretch and its fill
    value, or None for other pads."""
    moved = padded_dims(op)
    if len(moved) != 1:
        return None
    dim, (low, _, inner) = moved[0]
    length = values[op.operands[0]].shape[dim]
    source, start = _piece(op.operands[0], dim, made_by, values)
    extent = values[op.results[0]].shape[dim]
    if inner or values[source].shape[dim] != extent:
        return None
    cut, to = max(-low, 0), max(low, 0)
    count = min(length - cut, extent - to)
    return (dim, [(source, start + cut, to, count)], op.operands[1]) if count > 0 else None


def _together(op: Op, made_by: Mapping[int, Op], values: Sequence[Value]) -> Found | None:
    """Return the stretches of concatenated slices. Operands filled with one number become the fill
    value; return None if the numbers differ."""
    (dim,) = op.integers("dimension")
    rows: list[Rows] = []
    fills: dict[object, int] = {}
    to = 0
    extent = values[op.results[0]].shape[dim]
    for operand in op.operands:
        length = values[operand].shape[dim]
        source, start = _piece(operand, dim, made_by, values)
        filled = _fill(operand, made_by)
        if filled is not None:
            fills[filled[0]] = filled[1]
        elif values[source].shape[dim] == extent:
            rows.append((source, start, to, length))
        else:
            rows.append((operand, 0, to, length))
        to += length
    fill = next(iter(fills.values()), None)
    return (dim, rows, fill) if len(fills) < 2 else None


def _piece(
    value: int, dim: int, made_by: Mapping[int, Op], values: Sequence[Value]
) -> tuple[int, int]:
    """Return the value from which a stretch along a dimension is sliced, and the first row of the
    stretch in it."""
    op = made_by.get(value)
    start = None if op is None else _first_row(op, value, dim, values)
    if op is None or start is None:
        return value, 0
    source, first = _piece(op.operands[0], dim, made_by, values)
    return source, first + start


def _first_row(op: Op, value: int, dim: int, values: Sequence[Value]) -> int | None:
    """Return the first row that a slice or a split takes from its operand, or None for other
    ops."""
    if op.kind == "split" and op.integers("axis") == (dim,):
        return sum(op.integers("sizes")[: op.results.index(value)])
    if op.kind == "slice" and _cuts_only(op, dim, values):
        return op.integers("start_indices")[dim]
    if op.kind == "pad":  # gradients express slices as negative padding
        cut = padded_dims(op)
        if len(cut) == 1 and cut[0][0] == dim and max(cut[0][1]) <= 0:
            return -cut[0][1][0]
    return None


def _cuts_only(op: Op, dim: int, values: Sequence[Value]) -> bool:
    strides = dict(op.params).get("strides")
    if isinstance(strides, tuple) and strides[dim] != 1:
        return False
    pairs = zip(values[op.operands[0]].shape, values[op.results[0]].shape, strict=True)
    return all(before == after for d, (before, after) in enumerate(pairs) if d != dim)


def _fill(value: int, made_by: Mapping[int, Op]) -> tuple[object, int] | None:
    """Return the number that fills a value, and the scalar value with this number, or None if the
    value is not filled."""
    op = made_by.get(value)
    if op is None or op.kind != "broadcast_in_dim":
        return None
    number = made_by.get(op.operands[0])
    if number is None or number.kind != "constant" or "value" not in dict(number.params):
        return None
    return number.param("value"), op.operands[0]


def _added(op: Op, made_by: Mapping[int, Op]) -> Op | None:
    """Return the sum of two zero-filled shifts of one value as one shift. Such a sum is the
    gradient of a roll, which is a roll too. Return None for other ops, or if the shifts overlap."""
    if op.kind not in ("add", "add_any"):
        return None
    both = [made_by.get(operand) for operand in op.operands]
    first, second = both
    if first is None or second is None or any(not _is_zero_elsewhere(s, made_by) for s in both):
        return None
    if first.operands[0] != second.operands[0] or first.param("dimension") != second.param(
        "dimension"
    ):
        return None
    rows = sorted((*stretches_of(first), *stretches_of(second)), key=lambda each: each.to)
    if any(a.to + a.length > b.to for a, b in itertools.pairwise(rows)):
        return None
    numbers = tuple(n for each in rows for n in (0, each.start, each.to, each.length))
    params = (("dimension", first.param("dimension")), ("stretches", numbers))
    return Op("shift", first.operands, op.results, params, line=op.line)


def _is_zero_elsewhere(op: Op | None, made_by: Mapping[int, Op]) -> bool:
    if op is None or op.kind != "shift" or len(op.operands) != 2:
        return False
    fill = made_by.get(op.operands[1])
    return fill is not None and fill.kind == "constant" and dict(fill.params).get("value") == 0
