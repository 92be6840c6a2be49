"""The four cases of a sharded matmul (How to Scale Your Model, "Sharded matrices"), axis by axis.

    1  no operand splits its contracting dimension along the axis, and at most one splits another
    2  one operand splits its contracting dimension
    3  both split their contracting dimension
    4  both split a dimension, but of different factors: each device would have a block of the
       result's diagonal only

An axis along which an operand is unreduced is case 0: the operand stays unreduced if the other is
replicated.
"""

from __future__ import annotations

from collections.abc import Iterator

from shardwright.ir import axes as algebra
from shardwright.ir.axes import AxisRef
from shardwright.ir.errors import InputError
from shardwright.ir.matmul import Matmul, Side
from shardwright.ir.matmul_plan import AxisCase


def cases_of(matmul: Matmul) -> tuple[AxisCase, ...]:
    """Return the case of every axis that an operand uses, in the order of the mesh."""
    return tuple(_cases(matmul))


def axes_of(matmul: Matmul) -> tuple[AxisRef, ...]:
    """Return the axes of the mesh, cut into the sub-axes that operands and result use. If sub-axes
    of one axis cannot coexist, use only those of the operands, or of lhs."""
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
    """Return the factor that an axis splits in an operand, `terms` if the operand is unreduced
    along it, or ""."""
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
        return "splits its contracting dimension j"
    return f"splits {place}" if place else "has replicas"
