"""Windows along a split dimension: convolutions, poolings, and their gradients.

A device computes its own part of the result from the rows that its windows cover. In the gradient
of a kernel the cotangent takes the place of the kernel, so windows are long and few. Devices then
split the window, not the result, and each computes a partial sum.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from dataclasses import dataclass

from shardwright.codegen.ops.build import Builder
from shardwright.codegen.ops.convolution_rule import convolution_rule
from shardwright.codegen.ops.forms.form import (
    FormMove,
    LocalForm,
    OpTensors,
    SplitOp,
)
from shardwright.codegen.ops.forms.halos import RowWindow, halo_moves
from shardwright.ir.program import Op, Rule


@dataclass(frozen=True)
class Sliding:
    """A dimension along which windows slide.

    `dims`: its index in the operand, the kernel (None if there is no kernel operand) and the
    result; `source`, `kernel`, `target`: its unsplit extents there; `stride`: the distance between
    windows.
    """

    dims: tuple[int, int | None, int]
    source: int
    kernel: int
    target: int
    stride: int
    low: int  # rows of padding before the first row; if negative, rows skipped
    base: int  # dilation of the operand
    dilation: int  # dilation of the kernel

    @property
    def along_kernel(self) -> bool:
        """Whether devices split the kernel instead of the result."""
        return self.dims[1] is not None and self.kernel > self.target

    @property
    def most(self) -> int:
        """The most shards into which the operand can be cut together with the result or, if devices
        split the kernel, with the kernel."""
        return math.gcd(self.source, self.kernel if self.along_kernel else self.target)

    def window(self, parts: int) -> tuple[RowWindow, tuple[int, int]] | None:
        """Return the rows that each of `parts` shards needs, and their padding. Return None if
        shards of the operand would not be equal, or if windows of shards would differ in more than
        their first row."""
        kernel, target = self.kernel, self.target
        if self.along_kernel:
            kernel //= parts
            step = kernel * self.dilation
        else:
            target //= parts
            step = target * self.stride
        span = (target - 1) * self.stride + (kernel - 1) * self.dilation
        first, last = -(self.low // self.base), (span - self.low) // self.base
        if step % self.base or last < first or self.source % parts:
            return None
        rows = RowWindow(first, step // self.base, last - first + 1, self.source // parts, parts)
        before = first * self.base + self.low
        return rows, (before, span - self.low - last * self.base)


def slidings(op: Op, shapes: tuple[tuple[int, ...], ...]) -> tuple[Sliding, ...]:
    """Return the dimensions along which the windows of a convolution or a window reduction slide.
    `shapes`: the shapes of the unsplit tensors."""
    if op.kind == "conv_general_dilated":
        return tuple(_of_convolution(op, shapes))
    names = ("window_dimensions", "window_strides", "base_dilation", "window_dilation")
    size, stride, base, dilation = (op.integers(name) for name in names)
    low = [pair[0] for pair in pairs_of(op)]
    return tuple(
        Sliding((d, None, d), source, size[d], target, stride[d], low[d], base[d], dilation[d])
        for d, (source, target) in enumerate(zip(shapes[0], shapes[1], strict=True))
        if (size[d], base[d], source) != (1, 1, target)
    )


def _of_convolution(op: Op, shapes: tuple[tuple[int, ...], ...]) -> Iterator[Sliding]:
    specs = (op.integers(f"{side}_spec")[2:] for side in ("lhs", "rhs", "out"))
    names = ("window_strides", "lhs_dilation", "rhs_dilation")
    stride, base, dilation = (op.integers(name) for name in names)
    low = [pair[0] for pair in pairs_of(op)]
    for n, (left, right, to) in enumerate(zip(*specs, strict=True)):
        extents = shapes[0][left], shapes[1][right], shapes[2][to]
        yield Sliding((left, right, to), *extents, stride[n], low[n], base[n], dilation[n])


def pairs_of(op: Op) -> list[tuple[int, int]]:
    """Return an op's padding, (low, high), for each dimension."""
    given = op.param("padding")
    found = []
    for own in given if isinstance(given, tuple) else ():
        low, high = own if isinstance(own, tuple) else (0, 0)
        found.append((low if isinstance(low, int) else 0, high if isinstance(high, int) else 0))
    return found


def convolution(tensors: OpTensors) -> LocalForm | None:
    """Return the form of a convolution, or None if no dimension can be split. The form splits
    spatial dimensions and, if there are several groups, the groups."""
    op, shapes = tensors.op, tensors.shapes
    if not tensors.is_added:
        return None
    every = {each.dims: each for each in slidings(op, shapes)}

    def spatial(build: Builder, extents: object, dims: tuple[int, int, int]) -> None:
        _factors(build, every[dims])

    rule = convolution_rule(op, shapes[:2], shapes[2:], spatial)
    found = {_first(rule, each): each for each in every.values() if each.most > 1}
    counts = (op.integers("feature_group_count")[0], op.integers("batch_group_count")[0])
    groups = (0, 1) if max(counts) > 1 and 1 in counts else ()
    return _form(rule, found, groups)


def window(tensors: OpTensors) -> LocalForm | None:
    """Return the form of a sum, maximum or minimum over windows, or None if no dimension can be
    split."""
    if tensors.op.kind.endswith("sum") and not tensors.is_added:
        return None
    build = Builder(tensors.shapes[:1], tensors.shapes[1:])
    every = {each.dims[0]: each for each in slidings(tensors.op, tensors.shapes)}
    for dim, extent in enumerate(tensors.shapes[0]):
        if dim in every:
            _factors(build, every[dim])
        else:
            build.factor(extent, {0: dim, 1: dim})
    rule = build.rule()
    return _form(rule, {_first(rule, s): s for s in every.values() if s.most > 1}, ())


def _factors(build: Builder, each: Sliding) -> None:
    """Add the factors of a dimension to a rule: first the factor that can be split, then the rest
    of the dimension in each tensor."""
    left, right, to = each.dims
    result = len(build.dims) - 1
    extents = {(0, left): each.source, (result, to): each.target}
    if right is not None:
        extents[1, right] = each.kernel
    alike = {0: left, **({1: right} if each.along_kernel else {result: to})}
    kind = "reduction" if each.along_kernel else "permutation"
    build.factor(each.most, alike, kind=kind)
    for (tensor, dim), extent in extents.items():
        rest = extent // each.most if alike.get(tensor) == dim else extent
        if rest > 1 or alike.get(tensor) != dim:
            build.factor(rest, {tensor: dim}, kind="need_replication")


def fills(op: Op) -> str:
    """Return the end of the dtype's range, "max" or "min", with which an op fills rows outside the
    tensor, or "" if it fills them with zeros."""
    if op.kind.startswith("reduce_window"):
        return "" if op.kind.endswith("sum") else op.kind[-3:]
    return {"ge": "max", "le": "min"}.get(str(dict(op.params).get("select_prim")), "")


def _first(rule: Rule, each: Sliding) -> int:
    return rule.tensors[0][each.dims[0]][0]


def _form(rule: Rule, found: dict[int, Sliding], groups: tuple[int, ...]) -> LocalForm | None:
    """Return a form that splits the dimensions along which every shard needs the same window, or
    None if there are none."""

    def takes(factor: int, parts: int) -> bool:
        return factor not in found or found[factor].window(parts) is not None

    factors = frozenset((*found, *groups))
    return LocalForm(rule, factors, _halos, takes) if factors else None


def _halos(split: SplitOp) -> Iterator[FormMove]:
    """Yield the transfers along each split dimension in turn. Rows received along one dimension are
    sent on along the next."""
    so_far: dict[int, int] = {}
    before: tuple[Hashable, ...] = ()
    for each in slidings(split.op, split.tensors.shapes):
        dim = each.dims[0]
        found = each.window(split.parts(0, dim)) if split.axes(0, dim) else None
        if found is not None:
            size = split.bytes(0, {**so_far, dim: 1})
            yield from halo_moves(split, 0, dim, found[0], size, before)
            so_far[dim] = found[0].length
            before = (*before, dim, found[0], fills(split.op))


@dataclass(frozen=True)
class Pooled:
    """The rows that a shard of the gradient of a maximum needs along a dimension.

    `cotangents`: the windows that overlap the shard; `rows`: the rows that these windows cover;
    `crop`: the first of these rows that belongs to the shard.
    """

    cotangents: RowWindow
    rows: RowWindow
    crop: int


def pooled(op: Op, dim: int, count: int, extent: int, parts: int) -> Pooled | None:
    """Return the rows that shards of a gradient need along a dimension of `extent` rows and `count`
    windows. Return None if shards would not be equal, or would differ in more than their first
    row."""
    size, stride = (op.integers(f"window_{name}")[dim] for name in ("dimensions", "strides"))
    low, own = pairs_of(op)[dim][0], extent // parts
    if own % stride or extent % parts or count % parts:
        return None
    first, last = -((size - 1 - low) // stride), (own - 1 + low) // stride
    start = first * stride - low
    end = max(last * stride - low + size, own)
    if start > 0 or last < first:
        return None
    return Pooled(
        RowWindow(first, own // stride, last - first + 1, count // parts, parts),
        RowWindow(start, own, end - start, own, parts),
        -start,
    )


def pooled_dims(op: Op, shapes: tuple[tuple[int, ...], ...]) -> tuple[int, ...]:
    """Return the dimensions along which the windows of a maximum's gradient slide."""
    size = op.integers("window_dimensions")
    pairs = enumerate(zip(shapes[0], shapes[1], strict=True))
    return tuple(dim for dim, (count, extent) in pairs if (size[dim], count) != (1, extent))


def select_and_scatter(tensors: OpTensors) -> LocalForm | None:
    """Return the form of the gradient of a maximum over windows, or None if its result cannot be a
    partial sum. Each device computes the windows that overlap its rows, and keeps only its own
    rows."""
    if not tensors.is_added:
        return None
    op, shapes = tensors.op, tensors.shapes
    moved = pooled_dims(op, shapes)
    build = Builder(shapes[:2], shapes[2:])
    for dim, (count, extent) in enumerate(zip(shapes[0], shapes[1], strict=True)):
        if dim not in moved:
            build.factor(extent, {0: dim, 1: dim, 2: dim})
            continue
        most = math.gcd(count, extent)
        build.factor(most, {0: dim, 1: dim, 2: dim}, kind="permutation")
        build.factor(count // most, {0: dim}, kind="need_replication")
        build.factor(extent // most, {1: dim, 2: dim}, kind="need_replication")
    rule = build.rule()
    found = {rule.operands[0][dim][0]: dim for dim in moved}

    def takes(factor: int, parts: int) -> bool:
        dim = found.get(factor)
        if dim is None:
            return True
        return pooled(op, dim, shapes[0][dim], shapes[1][dim], parts) is not None

    return LocalForm(rule, frozenset(found), _pooled_moves, takes)


def _pooled_moves(split: SplitOp) -> Iterator[FormMove]:
    shapes = split.tensors.shapes
    so_far: tuple[dict[int, int], ...] = ({}, {})
    before: list[tuple[Hashable, ...]] = [(), ()]
    for dim in pooled_dims(split.op, shapes):
        parts = split.parts(1, dim)
        found = pooled(split.op, dim, shapes[0][dim], shapes[1][dim], parts)
        if parts == 1 or found is None:
            continue
        for place, rows in enumerate((found.cotangents, found.rows)):
            size = split.bytes(place, {**so_far[place], dim: 1})
            yield from halo_moves(split, place, dim, rows, size, before[place])
            so_far[place][dim] = rows.length
            filled = fills(split.op) if place else ""
            before[place] = (*before[place], dim, rows, filled)
