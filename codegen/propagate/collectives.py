"""The rules of collectives that the user wrote in a `shard_map`. Along axes that are not manual,
tensors keep their shardings."""

from __future__ import annotations

from shardwright.codegen.propagate.build import Builder, Shape, aligned
from shardwright.ir.program import Op, Rule

Shapes = tuple[Shape, ...]
ALIKE = frozenset({"psum", "psum_invariant", "pmax", "pmin", "ppermute"})
GATHERS = frozenset({"all_gather", "all_gather_invariant"})
COLLECTIVES = ALIKE | GATHERS | {"reduce_scatter", "all_to_all", "ragged_all_to_all"}


def collective_rule(op: Op, operands: Shapes, results: Shapes) -> Rule:
    """Return the rule of a collective. Dimensions that a gather, scatter or exchange changes must
    not be split."""
    if op.kind in ALIKE:
        return aligned(operands, results)
    if op.kind == "ragged_all_to_all":
        return _ragged(operands, results)
    build = Builder(operands, results)
    (source,), (target,) = operands, results
    changed = _changed(op)
    if len(source) == len(target):
        pairs = [(dim, dim) for dim in range(len(source)) if dim not in changed]
    else:  # one side has an extra dimension with one entry per device
        (new,) = changed
        longer = max(len(source), len(target))
        kept = [dim for dim in range(longer) if dim != new]
        pairs = [(dim, at) for at, dim in enumerate(kept)]
        pairs = pairs if len(source) > len(target) else [(at, dim) for dim, at in pairs]
    for here, there in pairs:
        build.factor(source[here], {0: here, 1: there})
    for tensor, shape in enumerate((source, target)):
        known = {pair[tensor] for pair in pairs}
        for dim, extent in enumerate(shape):
            if dim not in known:
                build.factor(extent, {tensor: dim}, kind="need_replication")
    return build.rule()


def _ragged(operands: Shapes, results: Shapes) -> Rule:
    """Return the rule of a ragged all-to-all. Rows and the tables of offsets and sizes must not be
    split."""
    build = Builder(operands, results)
    tensors = operands + results
    arrays = {0: tensors[0], 1: tensors[1], len(operands): results[0]}
    for dim, extent in enumerate(results[0][1:], start=1):
        build.factor(extent, dict.fromkeys(arrays, dim))
    for tensor, shape in enumerate(tensors):
        for dim, extent in enumerate(shape):
            if dim == 0 or tensor not in arrays:
                build.factor(extent, {tensor: dim}, kind="need_replication")
    return build.rule()


def _changed(op: Op) -> tuple[int, ...]:
    if op.kind in GATHERS:
        return op.integers("all_gather_dimension")
    if op.kind == "reduce_scatter":
        return op.integers("scatter_dimension")
    return (*op.integers("split_axis"), *op.integers("concat_axis"))
