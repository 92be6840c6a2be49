"""Collectives that the user wrote in a `shard_map`. Along axes that are not manual, tensors keep
their shardings."""

from __future__ import annotations

import math

from shardwright.codegen.ops.build import Builder, Shape, aligned
from shardwright.codegen.ops.collective_text import PLACES, collective_call
from shardwright.codegen.ops.kind import OpKind
from shardwright.codegen.ops.text import Expression, MakeText, OpText
from shardwright.ir.axes import axes_text
from shardwright.ir.errors import InputError
from shardwright.ir.program import Op, Param, Rule

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
        return _ragged_rule(operands, results)
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


def _ragged_rule(operands: Shapes, results: Shapes) -> Rule:
    """Return the rule of a ragged all-to-all. Rows, and the tables of offsets and sizes, must not
    be split."""
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


def axes_of(op: Op) -> tuple[str, ...]:
    """Return the axes of a collective or of an `axis_index`."""
    known = dict(op.params)
    found: Param = known.get("axes", known.get("axis_name"))
    listed = found if isinstance(found, tuple) else (found,)
    return tuple(map(str, listed))


def _axes(text: OpText) -> str:
    """Return the expression for the axes of a collective. Axes that the program splits are replaced
    by their parts.

    Raises InputError for a collective between only some of the devices along an axis.
    """
    if text.has("axis_index_groups") is not None:
        raise InputError(
            "a collective in a shard_map must include all devices along its axes",
            argument="fn",
            got=f"axis_index_groups of {text.op.kind}{f', {text.op.line}' if text.op.line else ''}",
            expected="no axis_index_groups; make such groups an axis of the mesh instead",
        )
    return axes_text(text.axes.spelled(axes_of(text.op)))


def _permute(text: OpText) -> Expression:
    pairs = text.op.param("perm")
    listed = [pair for pair in pairs if isinstance(pair, tuple)] if isinstance(pairs, tuple) else []
    count = math.prod(text.axes.mesh.sizes[name] for name in axes_of(text.op))
    steps = {(int(str(to)) - int(str(at))) % count for at, to in listed}
    if len(listed) == count and len(steps) == 1:
        (step,) = steps
        said = f"[(i, (i + {step}) % {count}) for i in range({count})]"
    else:
        said = f"[{', '.join(map(str, listed))}]"
    return "lax.ppermute", [text.given[0], _axes(text), said]


def _along(op: str, *names: str) -> MakeText:
    """Return the text of `lax.op` along dimensions. `names`: the params that number them."""

    def made(text: OpText) -> Expression:
        dims = (text.op.integers(name)[0] for name in names)
        # jax adds and drops the extra dimension of an untiled all-to-all in ops of its own
        tiled = op == "all_to_all" or text.has("tiled") is not False
        return collective_call(op, text.given[0], _axes(text), *dims, tiled=tiled)

    return made


_gather = _along("all_gather", "all_gather_dimension")


def _ragged(text: OpText) -> Expression:
    return "lax.ragged_all_to_all", [*text.given, f"axis_name={_axes(text)}"]


def _collective(name: str, text: MakeText) -> OpKind:
    return OpKind(name, collective_rule, text, group="collective")


KINDS = (
    OpKind("axis_index", text=lambda text: ("lax.axis_index", [_axes(text)]), group="constant"),
    _collective("psum", _along("psum")),
    _collective("psum_invariant", _along("psum")),
    _collective("pmax", _along("pmax")),
    _collective("pmin", _along("pmin")),
    _collective("ppermute", _permute),
    _collective("all_gather", _gather),
    _collective("all_gather_invariant", _gather),
    _collective("reduce_scatter", _along("psum_scatter", "scatter_dimension")),
    _collective("all_to_all", _along("all_to_all", *PLACES["all_to_all"])),
    _collective("ragged_all_to_all", _ragged),
)
