"""Padded ends: the pass that gives equal shards to values whose extents do not divide.

Along such a dimension a value gets rows at its end until its axes divide it. These rows have no
meaning, and may even be infinite or NaN. Three rules keep them out of every other row, and out of
every gradient, even if JAX differentiates the emitted module:

1. An op that keeps rows apart runs on padded rows too.
2. For an op that combines several rows (a sum, a maximum, a contraction, windows), a select sets
   the padded rows to a number that changes no result. Its gradient in these rows is zero.
3. If rows move, or an operand without padded rows is used for all of them, a select sets the padded
   rows of the result to zero, so that they contribute nothing to the operand's gradient.

Every other op gets the value without its padded rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from shardwright.codegen.ops.fills import DTYPES, neutral
from shardwright.codegen.ops.forms.shifts import padded_dims
from shardwright.codegen.ops.kind import NONE, Dims
from shardwright.codegen.ops.table import kind_of
from shardwright.codegen.partition.local.control import is_control
from shardwright.codegen.partition.local.end_kinds import (
    FILLED,
    extended,
    indexed_dims,
    read_dims,
)
from shardwright.codegen.partition.local.end_ports import entering, leaving
from shardwright.codegen.partition.local.end_values import EndValues, PaddedBody
from shardwright.codegen.partition.local.ports import End, ports_of
from shardwright.codegen.propagate.rules import rule_of
from shardwright.ir.program import Body, Op, Param, Program, Rule, Value

MADE = frozenset({"broadcast_in_dim", "iota"})
"""Kinds of ops whose results have dimensions that no operand has."""


def with_padded_ends(program: Program) -> Program:
    """Return a program in which dimensions that axes do not divide are padded wherever ops can run
    on padded ends. Arguments and results of the program keep their shapes."""
    extents = dict(_extents(program))
    if not extents:
        return program
    values = EndValues(program, extents)
    padded = _padded(program.body, values)
    results = tuple(padded.version(value, NONE) for value in program.body.results)
    body = Body(program.body.arguments, tuple(padded.ops), results)
    return replace(program, values=tuple(values.now), body=body)


def _extents(program: Program) -> Iterator[tuple[int, int]]:
    """Yield extents that axes do not divide, each with the smallest padded extent that the axes of
    all dimensions of this extent divide. Omit extents that would at least double."""
    parts: dict[int, set[int]] = {}
    for value in program.values:
        for dim, extent in enumerate(value.shape):
            count = 1 if value.sharding is None else value.sharding.parts(dim)
            if count <= extent:
                parts.setdefault(extent, set()).add(count)
    for extent, counts in parts.items():
        every = math.lcm(*counts)
        padded = -(-extent // every) * every
        if extent < padded < 2 * extent:
            yield extent, padded


def _padded(body: Body, values: EndValues) -> PaddedBody:
    padded = PaddedBody(values)
    for op in body.ops:
        if is_control(op) and op.kind != "manual":  # its values are already shards
            _add_control(op, padded)
        else:
            _add(op, padded)
    return padded


def _add_control(op: Op, padded: PaddedBody) -> None:
    values = padded.values
    ports = ports_of(op, values.given)
    ends = entering(ports, values)
    for end, dims in ends.items():
        if end.side == "arguments":
            values.pad(end.of(op), dims)
    inner = [_padded(body, values) for body in op.bodies]
    ends |= leaving(ports, values)

    def versions(
        own: PaddedBody, taken: Sequence[int], side: str, body: int | None = None
    ) -> tuple[int, ...]:
        each = enumerate(taken)
        return tuple(own.version(v, ends.get(End(side, n, body), NONE)) for n, v in each)

    results = [  # comes first, because it appends ops to the bodies
        versions(own, body.results, "results", number)
        for number, (body, own) in enumerate(zip(op.bodies, inner, strict=True))
    ]
    bodies = tuple(
        Body(body.arguments, tuple(own.ops), taken)
        for body, own, taken in zip(op.bodies, inner, results, strict=True)
    )
    operands = versions(padded, op.operands, "operands")
    for place, result in enumerate(op.results):
        values.pad(result, ends.get(End("results", place), NONE))
    padded.add(replace(op, operands=operands, bodies=bodies))


def _add(op: Op, padded: PaddedBody) -> None:
    if not _is_padded(op, padded):
        whole = tuple(padded.version(value, NONE) for value in op.operands)
        padded.add(replace(op, operands=whole))


def _is_padded(op: Op, padded: PaddedBody) -> bool:
    """Append an op on padded ends and return True, or return False if it cannot run on them."""
    tensors = (*op.operands, *op.results)
    known = all(padded.values.given[value].dtype in DTYPES for value in tensors)
    bounded = None if not known or op.bodies or op.rule is not None else _bounded(op, padded)
    if bounded is None:
        return False
    op = bounded
    for dim in _uneven(op, padded) if op.kind in REWRITTEN else ():
        return REWRITTEN[op.kind](op, dim, padded)
    kind = kind_of(op.kind)
    return bool(kind.is_apart or kind.fill) and _is_extended(op, padded)


def _bounded(op: Op, padded: PaddedBody) -> Op | None:
    """Return an op whose indices do not refer to padded rows of its first operand, or None if the
    indices cannot be changed. An index beyond the last row stays beyond the padded rows if the mode
    drops it, and otherwise becomes the index of the last row."""
    dims, values = indexed_dims(op), padded.values
    mode, is_read = str(op.param("mode")) if dims else "", op.kind == "gather"
    kept = [
        dim
        for dim in dims
        if dim in values.ends[op.operands[0]]
        or (not is_read and values.is_wanted(op.results[0], dim))
    ]
    if not kept or (not is_read and mode != "CLIP"):  # nothing reads additions to padded rows
        return op
    table, indices, *others = op.operands
    if len(dims) > 1 or values.given[indices].dtype not in ("i32", "i64", "u32", "u64"):
        return None
    extent = values.given[table].shape[kept[0]]
    made = padded.bounded(indices, extent, values.extents[extent] if mode in FILLED else None)
    return replace(op, operands=(table, made, *others))


def _is_extended(op: Op, padded: PaddedBody) -> bool:
    """Append an op with padded extents and return True, or return False if it cannot have them."""
    values, count, tensors = padded.values, len(op.operands), (*op.operands, *op.results)
    rule = rule_of(op, values.given)
    if rule is None or (op.kind == "reshape" and op.param("dimensions") is not None):
        return False
    before = [values.given[value].shape for value in tensors]
    kind = kind_of(op.kind)
    moved = kind.moved_dims(op, before, values.extents)
    ends = _moved_ends(op, moved, padded)
    factors = frozenset(_factors(op, rule, padded, moved))
    every = [_dims(own, factors) | end for own, end in zip(rule.tensors, ends, strict=True)]
    after = [values.shape(value, own) for value, own in zip(tensors, every, strict=True)]
    changed = extended(op, before, after) if factors or any(ends) else None
    if changed is None:
        return False
    lacking = _lacking(op, rule, factors, padded)
    mixed = factors & {*rule.reduction} if kind.fill else NONE
    operands = []
    for place, value in enumerate(op.operands):
        read = _dims(rule.operands[place], mixed) | (every[place] & read_dims(op, place))
        if kind.is_bilinear:
            read |= _dims(rule.operands[place], lacking)
        if kind.fill:
            read |= ends[place]
        own = padded.version(value, every[place])
        if kind.is_elementwise and before[place] == () and padded.is_varied(value):
            own = padded.spread(value, op.results[0], every[-1])
        operands.append(padded.masked(own, read, *_fill(op, place, padded)) if read else own)
    if op.kind == "shift" and before[count - 1] != ():
        operands.append(padded.number(0, values.given[op.results[0]]))
    is_filled = op.kind == "shift" and not padded.is_varied(operands[-1])
    is_zero = bool(lacking) or (any(ends) and not is_filled) or kind.group == "cumulative"
    padded.results(replace(changed, operands=tuple(operands)), every[count:], is_zero)
    return True


def _fill(op: Op, place: int, padded: PaddedBody) -> tuple[Param, int | None]:
    """Return what an op must read in the padded rows of operand `place`: a number, and a scalar
    value that takes precedence over it, or None."""
    if op.kind == "pad":
        return 0, op.operands[1]
    fill, dtype = kind_of(op.kind).fill_of(op, place), padded.values.given[op.operands[place]].dtype
    return neutral(fill, dtype), None


def _moved_ends(op: Op, moved: Sequence[Dims], padded: PaddedBody) -> list[Dims]:
    """Return the dimensions with padded ends along which the rows of each tensor move. All tensors
    of a shift must have equal extents, and so must the operand and the result of a maximum's
    gradient."""
    values, count = padded.values, len(op.operands)
    found = []
    for tensor, (value, dims) in enumerate(zip((*op.operands, *op.results), moved, strict=True)):
        wanted = frozenset(dim for dim in dims if values.is_wanted(value, dim))
        found.append(values.ends[value] & dims if tensor < count else wanted)
    if op.kind == "select_and_scatter_add":
        found[1:] = [found[1] | found[2]] * 2
    if op.kind == "shift" and any(found):
        pairs = zip((*op.operands, *op.results), moved, strict=True)
        shapes = ((values.given[value].shape, dims) for value, dims in pairs)
        found = [frozenset(d for d in dims if shape[d] in values.extents) for shape, dims in shapes]
    return found


def _uneven(op: Op, padded: PaddedBody) -> Iterator[int]:
    """Yield the dimensions along which the tensors of an op differ in extent and one has a padded
    end."""
    values = padded.values
    tensors = [v for v in (*op.operands, *op.results) if values.given[v].shape]
    for dim in range(len(values.given[op.results[0]].shape)):
        if len({values.given[value].shape[dim] for value in tensors}) == 1:
            continue
        if any(
            values.is_wanted(v, dim) if v in op.results else dim in values.ends[v] for v in tensors
        ):
            yield dim


def _cut(op: Op, dim: int, padded: PaddedBody) -> bool:
    """Append a slice as a cropping pad and return True, or return False if that is impossible. A
    slice with a stride along `dim` is cut after striding."""
    source = padded.values.given[op.operands[0]]
    strides = op.integers("strides") if op.param("strides") else (1,) * len(source.shape)
    if any(stride != 1 for other, stride in enumerate(strides) if other != dim):
        return False
    if strides[dim] != 1:
        return _every(op, dim, strides[dim], padded)
    bounds = op.integers("start_indices"), op.integers("limit_indices"), source.shape
    config = tuple((-start, end - extent, 0) for start, end, extent in zip(*bounds, strict=True))
    return _is_padded(_pad(op.operands[0], op.results[0], config, padded), padded)


def _every(op: Op, dim: int, stride: int, padded: PaddedBody) -> bool:
    """Append a slice with a stride along `dim` as two slices and return True, or return False if
    shards would not be equal. The first slice takes every row at a multiple of the stride, so that
    most shards take rows of their own; the second one cuts."""
    values, (value,), (result,) = padded.values, op.operands, op.results
    given, like = values.given[value], values.given[result]
    starts, limits = op.integers("start_indices"), op.integers("limit_indices")
    skipped, first = divmod(starts[dim], stride)
    count = -(-(given.shape[dim] - first) // stride)
    to = values.extents.get(count, count)
    if like.sharding is None or to % like.sharding.parts(dim):
        return False
    end = first + (to - 1) * stride + 1
    if values.now[value].shape[dim] < end:
        config = [(0, 0, 0)] * len(given.shape)
        config[dim] = 0, to * stride - given.shape[dim], 0
        longer = values.new(_with_rows(given, dim, to * stride), "padded")
        _add(_pad(value, longer, tuple(config), padded), padded)
        value = longer
    every = _with_rows(replace(given, sharding=like.sharding), dim, count)
    made = result if every.shape == like.shape else values.new(every, "every")
    ends = values.ends[value] - {dim} | ({dim} if to > count else NONE)
    padded.results(
        _slice(value, made, values.now[value], {dim: (first, end, stride)}), [ends], False
    )
    if made != result:
        bounds = dict(enumerate((start, end, 1) for start, end in zip(starts, limits, strict=True)))
        cut = skipped, skipped + like.shape[dim], 1
        _add(_slice(made, result, every, {**bounds, dim: cut}), padded)
    return True


def _slice(value: int, result: int, whole: Value, bounds: Mapping[int, tuple[int, int, int]]) -> Op:
    every = [bounds.get(dim, (0, extent, 1)) for dim, extent in enumerate(whole.shape)]
    start, end, stride = zip(*every, strict=True)
    steps = stride if any(step != 1 for step in stride) else None
    params = ("limit_indices", end), ("start_indices", start), ("strides", steps)
    return Op("slice", (value,), (result,), params, line=whole.line)


def _with_rows(value: Value, dim: int, rows: int) -> Value:
    return replace(value, shape=(*value.shape[:dim], rows, *value.shape[dim + 1 :]))


def _split(op: Op, dim: int, padded: PaddedBody) -> bool:
    (value,), start = op.operands, 0
    shape = padded.values.given[value].shape
    for result, size in zip(op.results, op.integers("sizes"), strict=True):
        config = [(0, 0, 0)] * len(shape)
        config[dim] = -start, start + size - shape[dim], 0
        _add(_pad(value, result, tuple(config), padded), padded)
        start += size
    return True


def _extended_pad(op: Op, dim: int, padded: PaddedBody) -> bool:
    """Append a pad on padded ends and return True, or return False if that is impossible. The pad
    becomes a shift, which fills the padded rows too."""
    values, pair = padded.values, (op.operands[0], op.results[0])
    before, after = (values.given[value].shape[dim] for value in pair)
    low, _, inner = dict(padded_dims(op))[dim]
    start, to = max(-low, 0), max(low, 0)
    length = min(before - start, after - to)
    alike = values.extents.get(before, before) == values.extents.get(after, after)
    if inner or not alike or length < 1 or len(padded_dims(op)) > 1:
        return _is_extended(op, padded)
    params = ("dimension", dim), ("stretches", (0, start, to, length))
    return _is_extended(Op("shift", op.operands, op.results, params, line=op.line), padded)


def _joined(op: Op, dim: int, padded: PaddedBody) -> bool:
    """Append a concatenation, as pads of its operands to the extent of the result and selects
    between the padded operands, and return True."""
    values, (result,) = padded.values, op.results
    like, to = values.given[result], 0
    parts = []
    for value in op.operands:
        extent = values.given[value].shape[dim]
        config = [(0, 0, 0)] * len(like.shape)
        config[dim] = to, like.shape[dim] - to - extent, 0
        made = values.new(like, "part")
        _add(_pad(value, made, tuple(config), padded), padded)
        parts.append((to, made))
        to += extent
    _, so_far = parts[0]
    for number, (to, made) in enumerate(parts[1:], 2):
        chosen = result if number == len(parts) else values.new(like, "parts")
        padded.select(dim, to, (so_far, made), chosen)
        so_far = chosen
    return True


def _pad(value: int, result: int, config: tuple[Param, ...], padded: PaddedBody) -> Op:
    like = padded.values.given[result]
    operands = value, padded.number(0, like)
    return Op("pad", operands, (result,), (("padding_config", config),), line=like.line)


def _factors(op: Op, rule: Rule, padded: PaddedBody, moved: Sequence[Dims]) -> Iterator[int]:
    """Yield the factors along which an op runs on padded ends. `moved`: the dimensions of each
    tensor along which rows move."""
    values, count, kind = padded.values, len(op.operands), kind_of(op.kind)
    mixed = {f for d in read_dims(op, 0) for f in rule.tensors[0][d]} if kind.fill else ()
    held = {*rule.need_replication, *rule.permutation, *rule.blocked} - {*mixed}
    if not kind.fill and op.kind != "gather":  # indexed rows are not combined
        held.update(rule.reduction)
    for factor, size in enumerate(rule.sizes):
        places = [
            (tensor, dim)
            for tensor, dims in enumerate(rule.tensors)
            for dim, own in enumerate(dims)
            if factor in own
        ]
        alone = all(rule.tensors[t][dim] == (factor,) and dim not in moved[t] for t, dim in places)
        if size not in values.extents or factor in held or not alone:
            continue
        operands = [(op.operands[t], dim) for t, dim in places if t < count]
        results = [(op.results[t - count], dim) for t, dim in places if t >= count]
        if not (results or factor in rule.reduction) or not (operands or op.kind in MADE):
            continue
        if any(dim in values.ends[value] for value, dim in operands) or any(
            values.is_wanted(value, dim) for value, dim in results
        ):
            yield factor


def _dims(tensor: tuple[tuple[int, ...], ...], factors: frozenset[int]) -> Dims:
    return frozenset(dim for dim, own in enumerate(tensor) if factors & {*own})


def _lacking(op: Op, rule: Rule, factors: frozenset[int], padded: PaddedBody) -> frozenset[int]:
    """Return the factors of results that some operand lacks. Constants and operands of elementwise
    ops do not count."""
    found: set[int] = set()
    for place, value in enumerate(op.operands):
        if padded.is_varied(value) and not kind_of(op.kind).is_elementwise:
            own = {factor for dims in rule.operands[place] for factor in dims}
            found |= factors - {*rule.reduction} - own
    return frozenset(found)


REWRITTEN: dict[str, Callable[[Op, int, PaddedBody], bool]] = {
    "slice": _cut,
    "split": _split,
    "pad": _extended_pad,
    "concatenate": _joined,
}
"""Kinds of ops that move rows along a dimension, each with the function that appends the op on
padded ends."""
