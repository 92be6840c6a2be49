"""Matmuls: `@` and `einsum` where possible, otherwise `lax`."""

from __future__ import annotations

import math
from typing import Any

from shardwright.codegen.ops.build import Builder, Shape, Shapes
from shardwright.codegen.ops.kind import OpKind
from shardwright.codegen.ops.literals import integers
from shardwright.codegen.ops.precision import precision, preferred
from shardwright.codegen.ops.text import Expression, OpText
from shardwright.ir.program import Op, Rule

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def _dims(numbers: Any) -> dict[str, Any]:
    (left, right), (batch_left, batch_right) = numbers
    names = ("contract_lhs", "contract_rhs", "batch_lhs", "batch_rhs")
    return dict(zip(names, (left, right, batch_left, batch_right), strict=True))


def _ragged_dims(numbers: Any) -> dict[str, Any]:
    own = {"ragged_lhs": numbers.lhs_ragged_dimensions, "group_rhs": numbers.rhs_group_dimensions}
    return _dims(numbers.dot_dimension_numbers) | own


def _dot_rule(op: Op, operands: Shapes, results: Shapes) -> Rule:
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


def _ragged_dot_rule(op: Op, operands: Shapes, results: Shapes) -> Rule:
    """Return the rule of a matmul in which each group of rows has, or produces, its own matrix.
    Rows and groups must not be split, because group sizes count rows of the whole tensor."""
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


def _scaled_dot_rule(op: Op, operands: Shapes, results: Shapes) -> Rule:
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


def _dot(text: OpText) -> Expression:
    """Return a matmul: `lax.dot_general` for operands of different dtypes, otherwise `x @ w` if
    possible, or an einsum."""
    given = list(text.given)
    ends = precision(text)
    if text.dtypes[0] != text.dtypes[1]:
        return "lax.dot_general", [*given, _numbers(text), *ends, *preferred(text, always=True)]
    ends += preferred(text)
    if _is_matmul(text) and not ends:
        return f"{given[0]} @ {given[1]}"
    return "jnp.einsum", [f'"{_subscripts(text)}"', *given, *ends]


def _ragged_dot(text: OpText) -> Expression:
    ends = [*precision(text), *preferred(text)]
    sides = ("contract_lhs", "contract_rhs", "batch_lhs", "batch_rhs", "ragged_lhs", "group_rhs")
    given = [*text.given[:3], *(f"group_offset={each}" for each in text.given[3:])]
    if [text.op.integers(name) for name in sides] == [(1,), (1,), (), (), (0,), (0,)]:
        return "lax.ragged_dot", [*given, *ends]
    numbers = (
        f"dot_dimension_numbers={_numbers(text)}",
        f"lhs_ragged_dimensions={integers(text.op.integers('ragged_lhs'))}",
        f"rhs_group_dimensions={integers(text.op.integers('group_rhs'))}",
    )
    ragged = f"lax.RaggedDotDimensionNumbers({', '.join(numbers)})"
    return "lax.ragged_dot_general", [*given[:3], ragged, *ends, *given[3:]]


def _scaled_dot(text: OpText) -> Expression:
    lhs, rhs, *scales = text.given
    scaled = [f"{side}_scale={x}" for side, x in zip(("lhs", "rhs"), scales, strict=True)]
    numbers = f"dimension_numbers={_numbers(text)}"
    return "lax.scaled_dot", [lhs, rhs, *scaled, numbers, *preferred(text, always=True)]


def _is_matmul(text: OpText) -> bool:
    sides = ("contract_lhs", "contract_rhs", "batch_lhs", "batch_rhs")
    lhs, rhs, *batch = (text.op.integers(name) for name in sides)
    ranks = [len(shape) for shape in text.shapes[:2]]
    return (
        ranks[1] == 2 and ranks[0] > 1 and not any(batch) and (lhs, rhs) == ((ranks[0] - 1,), (0,))
    )


def _numbers(text: OpText) -> str:
    op = text.op
    sides = (("contract_lhs", "contract_rhs"), ("batch_lhs", "batch_rhs"))
    pairs = tuple(tuple(op.integers(name) for name in pair) for pair in sides)
    return integers(pairs)


def _subscripts(text: OpText) -> str:
    """Return the subscripts of an einsum whose result has the batch dimensions first, followed by
    the remaining dimensions of each side."""
    op = text.op
    free = iter(LETTERS)
    ranks = [len(shape) for shape in text.shapes[:2]]
    sides: list[dict[int, str]] = [{}, {}]
    for name in ("batch", "contract"):
        pair = (op.integers(f"{name}_lhs"), op.integers(f"{name}_rhs"))
        for left, right in zip(*pair, strict=True):
            sides[0][left] = sides[1][right] = next(free)
    kept = [sides[0][dim] for dim in op.integers("batch_lhs")]
    for side, rank in zip(sides, ranks, strict=True):
        for dim in range(rank):
            if dim not in side:
                side[dim] = next(free)
                kept.append(side[dim])
    lhs, rhs = ("".join(side[dim] for dim in sorted(side)) for side in sides)
    return f"{lhs},{rhs}->{''.join(kept)}"


def _flops(op: Op, shapes: tuple[Shape, ...], rule: Rule) -> int:
    return 2 * math.prod(rule.sizes)


def _flops_of_rows(op: Op, shapes: tuple[Shape, ...], rule: Rule) -> int:
    """Return the number of operations of a matmul in which each row is multiplied by a single
    matrix."""
    names = {"contract_rhs", "batch_rhs", "group_rhs"} & dict(op.params).keys()
    others = {dim for name in names for dim in op.integers(name)}
    columns = (size for dim, size in enumerate(shapes[1]) if dim not in others)
    return 2 * math.prod(shapes[0]) * math.prod(columns)


KINDS = (
    OpKind(
        "dot_general",
        _dot_rule,
        _dot,
        stem="dot",
        symbol="@",
        dims=_dims,
        operator="sum",
        terms="either",
        flops=_flops,
        fill="zero",
        is_bilinear=True,
    ),
    OpKind(
        "ragged_dot_general",
        _ragged_dot_rule,
        _ragged_dot,
        dims=_ragged_dims,
        operator="sum",
        terms="either",
        flops=_flops_of_rows,
    ),
    OpKind("scaled_dot", _scaled_dot_rule, _scaled_dot, dims=_dims, flops=_flops_of_rows),
)
