"""The rules of convolutions, gathers and scatters."""

from __future__ import annotations

from collections.abc import Callable

from shardwright.codegen.ops.build import Builder, Shape
from shardwright.ir.program import Op, Rule

Shapes = tuple[Shape, ...]
Extents = tuple[int, int, int]  # dimensions of the input, the kernel and the output
Spatial = Callable[[Builder, Extents, tuple[int, int, int]], None]


def _spatial(build: Builder, extents: Extents, dims: tuple[int, int, int]) -> None:
    """Add the factors of one spatial dimension of input, kernel and output.

    If a stride gives the input `ratio` positions per output position, input and kernel share a
    reduction factor of size `ratio`. Otherwise the kernel's dimension is not split.
    """
    (source, kernel, target), (left, right, to) = extents, dims
    ratio = min(source // target, kernel)
    if target == 1 < ratio:
        build.factor(1, {2: to})
    else:
        build.factor(min(source, target), {0: left, 2: to}, kind="permutation")
    if ratio > 1:
        build.factor(ratio, {0: left, 1: right}, kind="reduction")
    else:
        build.factor(1, {1: right})


def convolution(op: Op, operands: Shapes, results: Shapes, spatial: Spatial = _spatial) -> Rule:
    """Return the rule of a convolution: batch and features as in a matmul; a spatial dimension is a
    permutation, because shards exchange halos.

    `spatial`: adds the factors of one spatial dimension.
    """
    build = Builder(operands, results)
    (lhs, rhs), (out,) = operands, results
    lhs_spec, rhs_spec, out_spec = (op.integers(f"{name}_spec") for name in ("lhs", "rhs", "out"))
    groups, batches = op.integers("feature_group_count")[0], op.integers("batch_group_count")[0]
    n, c, o = lhs_spec[0], lhs_spec[1], rhs_spec[0]
    if batches > 1:  # the group is the major factor of the batch and of the output's features
        build.factor(batches, {0: n, 1: o, 2: out_spec[1]})
    build.factor(lhs[n] // batches, {0: n, 2: out_spec[0]})
    if groups > 1:
        build.factor(groups, {0: c, 1: o, 2: out_spec[1]})
    build.factor(rhs[o] // (groups * batches), {1: o, 2: out_spec[1]})
    build.factor(lhs[c] // groups, {0: c, 1: rhs_spec[1]}, kind="reduction")
    for left, right, to in zip(lhs_spec[2:], rhs_spec[2:], out_spec[2:], strict=True):
        spatial(build, (lhs[left], rhs[right], out[to]), (left, right, to))
    return build.rule()


def gather(op: Op, operands: Shapes, results: Shapes) -> Rule:
    """Return the rule of a gather. A dimension that is indexed and collapsed is a reduction,
    because only one shard has each row.

    A dimension that is taken whole passes through, and so do the dimensions of the indices;
    batching dimensions occur in all three tensors. The dimension of index vectors must not be
    split.
    """
    build = Builder(operands, results)
    (table, indices), (out,) = operands, results
    offsets, sizes = op.integers("offset_dims"), op.integers("slice_sizes")
    gone = (*op.integers("collapsed_slice_dims"), *op.integers("operand_batching_dims"))
    window = dict(zip(_rest(len(table), gone), offsets, strict=True))
    rows = _rest(len(out), offsets)
    batching = _batching(op, "operand", "start_indices")
    _along_rows(build, indices, rows, batching, 2, out)
    for dim, to in window.items():
        if sizes[dim] == table[dim]:
            build.factor(table[dim], {0: dim, 2: to})
    for dim in set(gone) - set(batching.values()):
        build.factor(table[dim], {0: dim}, kind="reduction")
    for dim, to in window.items():
        if sizes[dim] != table[dim]:
            build.factor(table[dim], {0: dim}, kind="need_replication")
            build.factor(out[to], {2: to}, kind="need_replication")
    return build.rule()


def scatter(op: Op, operands: Shapes, results: Shapes) -> Rule:
    """Return the rule of a scatter, which is that of a gather in reverse. If updates are added, the
    rows of updates are a reduction."""
    build = Builder(operands, results)
    table, indices, updates = operands
    windows = op.integers("update_window_dims")
    gone = (*op.integers("inserted_window_dims"), *op.integers("operand_batching_dims"))
    window = dict(zip(_rest(len(table), gone), windows, strict=True))
    rows = _rest(len(updates), windows)
    kind = "reduction" if op.kind == "scatter-add" else "need_replication"
    batching = _batching(op, "operand", "scatter_indices")
    _along_rows(build, indices, rows, batching, 2, updates, kind, also=3)
    for dim, to in window.items():
        if updates[to] == table[dim]:
            build.factor(table[dim], {0: dim, 2: to, 3: dim})
        else:
            build.factor(table[dim], {0: dim, 3: dim}, kind="need_replication")
            build.factor(updates[to], {2: to}, kind="need_replication")
    for dim in set(gone) - set(batching.values()):
        build.factor(table[dim], {0: dim, 3: dim})
    return build.rule()


def _rest(rank: int, without: tuple[int, ...]) -> list[int]:
    return [dim for dim in range(rank) if dim not in without]


def _batching(op: Op, table: str, indices: str) -> dict[int, int]:
    left, right = (op.integers(f"{name}_batching_dims") for name in (indices, table))
    return dict(zip(left, right, strict=True))


def _along_rows(
    build: Builder,
    indices: Shape,
    rows: list[int],
    batching: dict[int, int],
    tensor: int,
    shape: Shape,
    kind: str = "pass",
    also: int | None = None,
) -> None:
    """Add factors for the dimensions of the indices and the corresponding dimensions `rows` of
    `tensor`. The last dimension of the indices, that of index vectors, must not be split."""
    for dim, to in enumerate(rows):
        table = batching.get(dim)
        places = {1: dim, tensor: to}
        if table is not None:
            places[0] = table
            if also is not None:
                places[also] = table
        build.factor(shape[to], places, kind="pass" if table is not None else kind)
    if len(indices) > len(rows):
        build.factor(indices[-1], {1: len(indices) - 1}, kind="need_replication")
