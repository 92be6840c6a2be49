"""Indexing along a split dimension: every device handles its own rows.

A read gives partial sums: a row is zero on every device but its owner. A write communicates
nothing.
"""

from __future__ import annotations

from dataclasses import replace

from shardwright.codegen.ops.forms.form import LocalForm, OpTensors


def gather(tensors: OpTensors) -> LocalForm | None:
    """Return the form of a gather from a table split along its rows. Return None if the rows are
    not indexed, or if the result cannot be a partial sum."""
    op, rule = tensors.op, tensors.rule
    indexed = set(op.integers("start_index_map")) & set(op.integers("collapsed_slice_dims"))
    factors = frozenset(tensors.factor(0, dim) for dim in indexed) & set(rule.reduction)
    return LocalForm(rule, factors) if factors and tensors.is_added else None


def scatter(tensors: OpTensors) -> LocalForm | None:
    """Return the form of a scatter into a table split along its rows, or None if the rows are not
    indexed."""
    op = tensors.op
    indexed = set(op.integers("scatter_dims_to_operand_dims"))
    dims = indexed & set(op.integers("inserted_window_dims"))
    factors = frozenset(tensors.factor(0, dim) for dim in dims)
    return LocalForm(tensors.rule, factors) if factors else None


def longest_cut(tensors: OpTensors) -> int | None:
    """Return the longest dimension of the operand that a slice takes only in part, or None."""
    op = tensors.op
    place = 1 if op.kind == "dynamic_update_slice" else tensors.result
    pairs = zip(tensors.shapes[0], tensors.shapes[place], strict=True)
    cut = [(extent, dim) for dim, (extent, part) in enumerate(pairs) if part != extent]
    return max(cut)[1] if cut else None


def read_slice(tensors: OpTensors) -> LocalForm | None:
    """Return the form of a slice along a split dimension, which is not split in the result. Return
    None if the slice takes all rows, or if its result cannot be a partial sum."""
    dim = longest_cut(tensors)
    if dim is None or not tensors.is_added:
        return None
    rule, factor, place = tensors.rule, tensors.factor(0, dim), tensors.result
    (dims,) = rule.results
    own = len(rule.sizes)
    kinds = {
        name: tuple(each for each in getattr(rule, name) if each != factor)
        for name in ("permutation", "blocked")
    }
    changed = replace(
        rule,
        sizes=(*rule.sizes, tensors.shapes[place][dim]),
        results=((*dims[:dim], (own,), *dims[dim + 1 :]),),
        reduction=(*rule.reduction, factor),
        need_replication=(*rule.need_replication, own),
        **kinds,
    )
    return LocalForm(changed, frozenset({factor}))


def write_slice(tensors: OpTensors) -> LocalForm | None:
    """Return the form of an update of a slice along a split dimension, or None if the slice covers
    the operand."""
    dim = longest_cut(tensors)
    if dim is None:
        return None
    return LocalForm(tensors.rule, frozenset({tensors.factor(0, dim)}))
