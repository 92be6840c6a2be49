"""The table that maps each kind of op to its rule and to its role, which determines its priority.

Kinds are the primitives of jaxprs. An op without an entry stops propagation: the shardings of its
tensors stay as they are, and tracing warns.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from shardwright.codegen.ops.build import Builder, Shape, aligned
from shardwright.codegen.ops.collectives import COLLECTIVES, collective_rule
from shardwright.codegen.ops.elementwise import ELEMENTWISE
from shardwright.codegen.ops.kinds import (
    CONSTANT,
    CONTROL,
    CUMULATIVE,
    MATRICES,
    REDUCTIONS,
    SCATTERS,
    WINDOWS,
)
from shardwright.codegen.ops.reshapes import reshape_rule
from shardwright.codegen.ops.windows import convolution, gather, scatter
from shardwright.ir.program import Op, Rule, Value


def is_known(kind: str) -> bool:
    """Return whether propagation supports this kind of op."""
    return kind in _RULES or kind in CONTROL or kind in CONSTANT


def rule_of(op: Op, values: Sequence[Value]) -> Rule | None:
    """Return the rule of an op: the rule that the op states, or that of its kind; None if no
    sharding propagates through the op."""
    if op.rule is not None:
        return op.rule
    make = _RULES.get(op.kind)
    if make is None:
        return None
    operands = tuple(values[operand].shape for operand in op.operands)
    results = tuple(values[result].shape for result in op.results)
    return _made(make, op.kind, op.params, operands, results)


@functools.cache
def _made(
    make: Callable[[Op, Shapes, Shapes], Rule],
    kind: str,
    params: tuple[tuple[str, object], ...],
    operands: Shapes,
    results: Shapes,
) -> Rule:
    """Return the rule that `make` returns for an op. Equal ops share one rule object, so visits can
    be cached."""
    return make(Op(kind, (), (), params), operands, results)  # type: ignore[arg-type]


Shapes = tuple[Shape, ...]


def _elementwise(op: Op, operands: Shapes, results: Shapes) -> Rule:
    return aligned(operands, results)


def _bitcast(op: Op, operands: Shapes, results: Shapes) -> Rule:
    """Return the rule of a bitcast: elementwise, but if the widths of the dtypes differ, the side
    of the narrower one has an additional last dimension."""
    build = Builder(operands, results)
    (source,), (target,) = operands, results
    for dim in range(min(len(source), len(target))):
        build.factor(source[dim], {0: dim, 1: dim})
    for dim in range(len(target), len(source)):
        build.factor(source[dim], {0: dim}, kind="need_replication")
    for dim in range(len(source), len(target)):
        build.factor(target[dim], {1: dim}, kind="need_replication")
    return build.rule()


def _broadcast(op: Op, operands: Shapes, results: Shapes) -> Rule:
    build = Builder(operands, results)
    source, (target,) = operands[0], results
    place = {to: dim for dim, to in enumerate(op.integers("broadcast_dimensions"))}
    for to, extent in enumerate(target):
        dim = place.get(to)
        same = dim is not None and source[dim] == extent
        if dim is not None and not same:
            build.factor(source[dim], {0: dim})
        build.factor(extent, {0: dim, len(operands): to} if same else {len(operands): to})
    return build.rule()


def _tile(op: Op, operands: Shapes, results: Shapes) -> Rule:
    """Return the rule of a tile op, which concatenates copies of a tensor: in each dimension, the
    index of the copy is the major factor."""
    build = Builder(operands, results)
    for dim, count in enumerate(op.integers("reps")):
        build.factor(count, {1: dim})
        build.factor(operands[0][dim], {0: dim, 1: dim})
    return build.rule()


def _transpose(op: Op, operands: Shapes, results: Shapes) -> Rule:
    build = Builder(operands, results)
    for to, dim in enumerate(op.integers("permutation")):
        build.factor(results[0][to], {0: dim, 1: to})
    return build.rule()


def _reduce(op: Op, operands: Shapes, results: Shapes) -> Rule:
    build = Builder(operands, results)
    axes = op.integers("axes")
    kept = [dim for dim in range(len(operands[0])) if dim not in axes]
    for to, dim in enumerate(kept):
        build.factor(operands[0][dim], {0: dim, 1: to})
    for dim in sorted(axes):
        build.factor(operands[0][dim], {0: dim}, kind="reduction")
    return build.rule()


def _dot(op: Op, operands: Shapes, results: Shapes) -> Rule:
    build = Builder(operands, results)
    lhs, rhs = operands[:2]
    contract, batch = _pair(op, "contract"), _pair(op, "batch")
    to = 0
    for left, right in zip(*batch, strict=True):
        build.factor(lhs[left], {0: left, 1: right, 2: to})
        to += 1
    for side, shape in enumerate((lhs, rhs)):
        for dim, extent in enumerate(shape):
            if dim not in contract[side] and dim not in batch[side]:
                build.factor(extent, {side: dim, 2: to})
                to += 1
    for left, right in zip(*contract, strict=True):
        build.factor(lhs[left], {0: left, 1: right}, kind="reduction")
    return build.rule()


def _ragged_dot(op: Op, operands: Shapes, results: Shapes) -> Rule:
    """Return the rule of a matmul in which each group of rows has, or produces, its own matrix.
    Rows and groups must not be split, because group sizes count the rows of the whole tensor."""
    build = Builder(operands, results)
    contract, batch = _pair(op, "contract"), _pair(op, "batch")
    (ragged,), grouped = op.integers("ragged_lhs"), op.integers("group_rhs")
    shared = ragged in batch[0] or len(operands[2]) > 1  # group sizes per batch element
    to = 0
    if ragged in contract[0]:
        build.factor(results[0][0], {len(operands): 0}, kind="need_replication")
        to = 1
    for left, right in zip(*batch, strict=True):
        kind = "need_replication" if shared else "pass"
        build.factor(operands[0][left], {0: left, 1: right, len(operands): to}, kind=kind)
        to += 1
    for side, shape in enumerate(operands[:2]):
        for dim, extent in enumerate(shape):
            if side == 1 and dim in grouped:
                build.factor(extent, {1: dim}, kind="need_replication")
            elif dim not in contract[side] and dim not in batch[side]:
                kind = "need_replication" if side == 0 and dim == ragged else "pass"
                build.factor(extent, {side: dim, len(operands): to}, kind=kind)
                to += 1
    for left, right in zip(*contract, strict=True):
        kind = "need_replication" if left == ragged else "reduction"
        build.factor(operands[0][left], {0: left, 1: right}, kind=kind)
    for place, shape in enumerate(operands[2:], start=2):
        for dim, extent in enumerate(shape):
            build.factor(extent, {place: dim}, kind="need_replication")
    return build.rule()


def _scaled_dot(op: Op, operands: Shapes, results: Shapes) -> Rule:
    """Return the rule of a matmul whose operands are scaled in blocks along the contracted
    dimension. That dimension must not be split, because each scale covers one block."""
    build = Builder(operands, results)
    contract, batch = _pair(op, "contract"), _pair(op, "batch")
    end, to = len(operands), 0
    for left, right in zip(*batch, strict=True):
        build.factor(operands[0][left], {0: left, 1: right, 2: left, 3: right, end: to})
        to += 1
    for side in (0, 1):
        for dim, extent in enumerate(operands[side]):
            if dim not in contract[side] and dim not in batch[side]:
                build.factor(extent, {side: dim, side + 2: dim, end: to})
                to += 1
    for left, right in zip(*contract, strict=True):
        build.factor(operands[0][left], {0: left, 1: right}, kind="need_replication")
        for scale, dim in ((2, left), (3, right)):
            build.factor(operands[scale][dim], {scale: dim}, kind="need_replication")
    return build.rule()


def _pair(op: Op, name: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    left, right = (op.integers(f"{name}_{side}") for side in ("lhs", "rhs"))
    return left, right


def _slice(op: Op, operands: Shapes, results: Shapes) -> Rule:
    """Return the rule of a slice. A dimension that is not taken whole is a permutation, because its
    elements move between shards."""
    build = Builder(operands, results)
    for dim, extent in enumerate(operands[0]):
        cut = any(extent != result[dim] for result in results)
        everywhere = {0: dim, **{1 + i: dim for i in range(len(results))}}
        build.factor(extent, everywhere, kind="permutation" if cut else "pass")
    return build.rule()


def _pad(op: Op, operands: Shapes, results: Shapes) -> Rule:
    build = Builder(operands, results)
    for dim, extent in enumerate(operands[0]):
        cut = extent != results[0][dim]
        build.factor(extent, {0: dim, 2: dim}, kind="permutation" if cut else "pass")
    return build.rule()


def _shift(op: Op, operands: Shapes, results: Shapes) -> Rule:
    """Return the rule of a shift, whose result concatenates stretches of its operands along a
    dimension."""
    build = Builder(operands, results)
    (dimension,) = op.integers("dimension")
    for dim, extent in enumerate(results[0]):
        ranked = [place for place, shape in enumerate(operands) if shape]
        alike = {place: dim for place in ranked if operands[place][dim] == extent}
        kind = "permutation" if dim == dimension else "pass"
        build.factor(extent, {**alike, len(operands): dim}, kind=kind)
        for place in ranked:
            if place not in alike:
                build.factor(operands[place][dim], {place: dim}, kind="need_replication")
    return build.rule()


def _rev(op: Op, operands: Shapes, results: Shapes) -> Rule:
    build = Builder(operands, results)
    reversed_ = op.integers("dimensions")
    for dim, extent in enumerate(operands[0]):
        kind = "permutation" if dim in reversed_ else "pass"
        build.factor(extent, {0: dim, 1: dim}, kind=kind)
    return build.rule()


def _along_one(op: Op, operands: Shapes, results: Shapes, name: str, kind: str) -> Rule:
    """Return the rule of tensors that are equal except in one dimension, whose factor has this
    kind. `name`: the parameter that states the dimension."""
    build = Builder(operands, results)
    dimension = op.integers(name)[0]
    for dim, extent in enumerate(results[0]):
        everywhere = dict.fromkeys(range(len(operands) + len(results)), dim)
        build.factor(extent, everywhere, kind=kind if dim == dimension else "pass")
    return build.rule()


def _concatenate(op: Op, operands: Shapes, results: Shapes) -> Rule:
    return _along_one(op, operands, results, "dimension", "need_replication")


def _sort(op: Op, operands: Shapes, results: Shapes) -> Rule:
    return _along_one(op, operands, results, "dimension", "need_replication")


def _cumulative(op: Op, operands: Shapes, results: Shapes) -> Rule:
    return _along_one(op, operands, results, "axis", "permutation")


def _top_k(op: Op, operands: Shapes, results: Shapes) -> Rule:
    """Return the rule of top-k. The last dimension must not be split. Shardy has no rule for this
    op."""
    build = Builder(operands, results)
    last = len(operands[0]) - 1
    for dim in range(last):
        build.factor(operands[0][dim], {0: dim, 1: dim, 2: dim})
    build.factor(operands[0][last], {0: last}, kind="need_replication")
    build.factor(results[0][last], {1: last, 2: last}, kind="need_replication")
    return build.rule()


def _dynamic_slice(op: Op, operands: Shapes, results: Shapes) -> Rule:
    build = Builder(operands, results)
    place = len(operands)
    for dim, extent in enumerate(results[0]):
        cut = extent != operands[0][dim]
        kind = "blocked" if cut else "pass"
        build.factor(operands[0][dim], {0: dim, place: dim}, kind=kind)
    return build.rule()


def _dynamic_update_slice(op: Op, operands: Shapes, results: Shapes) -> Rule:
    build = Builder(operands, results)
    place = len(operands)
    for dim, extent in enumerate(results[0]):
        update = operands[1][dim]
        if update == extent:
            build.factor(extent, {0: dim, 1: dim, place: dim})
            continue
        build.factor(extent, {0: dim, place: dim})
        build.factor(update, {1: dim}, kind="need_replication")
    return build.rule()


def _window(op: Op, operands: Shapes, results: Shapes) -> Rule:
    build = Builder(operands, results)
    size = op.integers("window_dimensions")
    for dim, extent in enumerate(results[0]):
        moves = size[dim] != 1 or extent != operands[0][dim]
        kind = "permutation" if moves else "pass"
        build.factor(extent, {0: dim, len(operands): dim}, kind=kind)
    return build.rule()


def _select_and_scatter_add(op: Op, operands: Shapes, results: Shapes) -> Rule:
    """Return the rule of the gradient of a maximum over windows: its operands are the cotangents of
    windows, and the tensor from which windows were selected."""
    build = Builder(operands, results)
    size = op.integers("window_dimensions")
    for dim, extent in enumerate(results[0]):
        if size[dim] == 1 and operands[0][dim] == extent:
            build.factor(extent, {0: dim, 1: dim, 2: dim})
            continue
        build.factor(extent, {1: dim, 2: dim}, kind="permutation")
        build.factor(operands[0][dim], {0: dim}, kind="need_replication")
    return build.rule()


def _fft(op: Op, operands: Shapes, results: Shapes) -> Rule:
    """Return the rule of a Fourier transform of the last dimensions, which must not be split. If a
    dimension differs between operand and result, as for real numbers, each side has a separate
    factor."""
    build = Builder(operands, results)
    source, target = operands[0], results[0]
    moved = len(source) - len(op.integers("fft_lengths"))
    for dim, extent in enumerate(source):
        kind = "need_replication" if dim >= moved else "pass"
        same = target[dim] == extent
        build.factor(extent, {0: dim, 1: dim} if same else {0: dim}, kind=kind)
        if not same:
            build.factor(target[dim], {1: dim}, kind=kind)
    return build.rule()


def _matrices(op: Op, operands: Shapes, results: Shapes) -> Rule:
    """Return the rule of linear algebra. Batch dimensions correspond in every tensor, and matrix
    dimensions must not be split."""
    build = Builder(operands, results)
    batch = len(operands[0]) - MATRICES[op.kind]
    every = (*operands, *results)
    for dim in range(batch):
        build.factor(operands[0][dim], dict.fromkeys(range(len(every)), dim))
    for place, shape in enumerate(every):
        for dim in range(batch, len(shape)):
            build.factor(shape[dim], {place: dim}, kind="need_replication")
    return build.rule()


def _triangular_solve(op: Op, operands: Shapes, results: Shapes) -> Rule:
    """Return the rule of a triangular solve. Right-hand sides are independent."""
    build = Builder(operands, results)
    rank, is_left = len(operands[1]), bool(op.param("left_side"))
    alone = rank - 1 if is_left else rank - 2  # the dimension of right-hand sides
    for dim in range(rank - 2):
        build.factor(operands[0][dim], dict.fromkeys(range(3), dim))
    build.factor(operands[1][alone], {1: alone, 2: alone})
    for place, dims in enumerate(((rank - 2, rank - 1), *[(2 * rank - 3 - alone,)] * 2)):
        for dim in dims:
            build.factor((*operands, *results)[place][dim], {place: dim}, kind="need_replication")
    return build.rule()


def _whole(op: Op, operands: Shapes, results: Shapes) -> Rule:
    build = Builder(operands, results)
    for place, shape in enumerate((*operands, *results)):
        for dim, extent in enumerate(shape):
            build.factor(extent, {place: dim}, kind="need_replication")
    return build.rule()


def _approx_top_k(op: Op, operands: Shapes, results: Shapes) -> Rule:
    build = Builder(operands, results)
    (whole,) = op.integers("reduction_dimension")
    for dim, extent in enumerate(operands[0]):
        if dim != whole:
            build.factor(extent, {0: dim, 1: dim, 2: dim})
            continue
        build.factor(extent, {0: dim}, kind="need_replication")
        build.factor(results[0][dim], {1: dim, 2: dim}, kind="need_replication")
    return build.rule()


def _reshape(op: Op, operands: Shapes, results: Shapes) -> Rule:
    return reshape_rule(operands[0], results[0])


def _made_per_position(op: Op, operands: Shapes, results: Shapes) -> Rule:
    """Return the rule of values computed from a key independently at each position, such as random
    bits."""
    build = Builder(operands, results)
    for dim, extent in enumerate(results[0]):
        build.factor(extent, {len(operands): dim})
    return build.rule()


_RULES: dict[str, Callable[[Op, Shapes, Shapes], Rule]] = {
    **dict.fromkeys(ELEMENTWISE - {"stop_gradient"}, _elementwise),
    **dict.fromkeys(REDUCTIONS, _reduce),
    **dict.fromkeys(CUMULATIVE, _cumulative),
    **dict.fromkeys(WINDOWS, _window),
    "stop_gradient": _elementwise,
    "constrain": _elementwise,
    "optimization_barrier": _elementwise,
    "bitcast_convert_type": _bitcast,
    "broadcast_in_dim": _broadcast,
    "tile": _tile,
    "reshape": _reshape,
    "squeeze": _reshape,
    "transpose": _transpose,
    "dot_general": _dot,
    "ragged_dot_general": _ragged_dot,
    "scaled_dot": _scaled_dot,
    "conv_general_dilated": convolution,
    "slice": _slice,
    "split": _slice,
    "pad": _pad,
    "shift": _shift,
    "rev": _rev,
    "take_rows": _rev,
    "concatenate": _concatenate,
    "sort": _sort,
    "top_k": _top_k,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "select_and_scatter_add": _select_and_scatter_add,
    "gather": gather,
    **dict.fromkeys(SCATTERS, scatter),
    "fft": _fft,
    **dict.fromkeys(MATRICES, _matrices),
    "triangular_solve": _triangular_solve,
    **dict.fromkeys(("pallas_call", "pure_callback"), _whole),
    "approx_top_k": _approx_top_k,
    "random_bits": _made_per_position,
    "random_fold_in": _made_per_position,
    "random_split": _made_per_position,
    "threefry2x32": _elementwise,
    **dict.fromkeys(COLLECTIVES, collective_rule),
}
