"""The four cases of a sharded matmul (How to Scale Your Model, "Sharded matrices"), for each axis.

    1  neither operand is split along the axis in its contracting dimension, and the operands are
       not split in different dimensions
    2  one operand is split in its contracting dimension
    3  both operands are split in their contracting dimension
    4  the operands are split in dimensions of different factors, neither contracting: without
       communication, a device would compute only a block on the diagonal of the result

If an operand is unreduced along the axis, the case is 0. The operand can then stay unreduced if the
other is replicated.
"""

from __future__ import annotations

from collections.abc import Iterator

from shardwright.ir import axes as algebra
from shardwright.ir.axes import AxisRef
from shardwright.ir.errors import InputError
from shardwright.ir.matmul import Matmul, Side
from shardwright.ir.matmul_plan import AxisCase


def cases_of(matmul: Matmul) -> tuple[AxisCase, ...]:
    """Return the case of each axis along which an operand is split or unreduced, in the order of
    the mesh."""
    return tuple(_cases(matmul))


def axes_of(matmul: Matmul) -> tuple[AxisRef, ...]:
    """Return the axes of the mesh, cut at the borders of the sub-axes that the operands and the
    result use. If these sub-axes cannot coexist, use only those of the operands, or only those
    of lhs."""
    sides = [matmul.lhs.sharding, matmul.rhs.sharding, matmul.out]
    for count in (3, 2):
        refs = [ref for side in sides[:count] for ref in (*side.used(), *side.unreduced)]
        try:
            return matmul.mesh.refine(refs)
        except InputError:
            continue
    lhs = sides[0]
    return matmul.mesh.refine((*lhs.used(), *lhs.unreduced))


def _cases(matmul: Matmul) -> Iterator[AxisCase]:
    for axis in axes_of(matmul):
        places = [_place(matmul, side, axis) for side in ("lhs", "rhs")]
        if matmul.mesh.full_size(axis) > 1 and places != ["", ""]:
            lhs, rhs = (_said(place) for place in places)
            yield AxisCase(axis, _number(*places), f"lhs {lhs}, rhs {rhs}")


def _place(matmul: Matmul, side: Side, axis: AxisRef) -> str:
    """Return the name of the factor that an axis splits in an operand, "terms" if the operand is
    unreduced along the axis, or "" if it is replicated."""
    sharding, sizes = matmul.sharding(side), matmul.mesh.sizes
    for factor, dim in zip(matmul.factors(side), sharding.dims, strict=True):
        if any(algebra.overlaps(axis, ref, sizes) for ref in dim.axes if ref.name == axis.name):
            return matmul.factor_name(factor)
    unreduced = (ref for ref in sharding.unreduced if ref.name == axis.name)
    return "terms" if any(algebra.overlaps(axis, ref, sizes) for ref in unreduced) else ""


def _number(lhs: str, rhs: str) -> int:
    if "terms" in (lhs, rhs):
        return 0
    if "j" in (lhs, rhs):
        return 3 if lhs == rhs else 2
    return 4 if lhs and rhs and lhs != rhs else 1


def _said(place: str) -> str:
    if place == "terms":
        return "holds terms of a sum along it"
    if place == "j":
        return "is split along its contracting dimension j"
    return f"is split along {place}" if place else "has replicas"
