"""List the ways to split the factors of a matmul over a mesh during the product.

An axis splits one factor, or an operand stays unreduced along it, or devices along it repeat the
product. The axes of a factor are in the order of the mesh, or in the order of an operand or the
result, followed by the axes that do not split this tensor.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from shardwright.codegen.moves.matmul.cases import axes_of
from shardwright.ir import axes as algebra
from shardwright.ir.axes import AxisRef
from shardwright.ir.matmul import SIDES, Matmul, Side
from shardwright.ir.multiplication import Multiplication, Refs

MOST = 4096
"""The maximum number of assignments of axes to factors to list. Beyond it, an axis may split
only the factors that it splits in an operand or in the result."""

Place = int | Side | None
"""The use of an axis: the factor that it splits, the operand that stays unreduced along it, or
None."""


def multiplications(matmul: Matmul) -> Iterator[Multiplication]:
    """Yield the splits of a matmul, each once. For some of them an operand cannot be resharded,
    because sub-axes cannot coexist."""
    axes = tuple(axis for axis in axes_of(matmul) if matmul.mesh.full_size(axis) > 1)
    seen: set[tuple[tuple[Refs, ...], tuple[Refs, Refs]]] = set()
    for places in itertools.product(*_places(matmul, axes)):
        lhs_terms, rhs_terms = (_at(side, axes, places) for side in ("lhs", "rhs"))
        chosen = [_at(factor, axes, places) for factor in range(len(matmul.extents))]
        orders = (_orders(matmul, factor, refs) for factor, refs in enumerate(chosen))
        for each in itertools.product(*orders):
            key = each, (lhs_terms, rhs_terms)
            if key not in seen:
                seen.add(key)
                yield Multiplication(matmul, *key)


def _at(place: Place, axes: Refs, places: tuple[Place, ...]) -> Refs:
    return tuple(axis for axis, found in zip(axes, places, strict=True) if found == place)


def _places(matmul: Matmul, axes: Refs) -> list[tuple[Place, ...]]:
    """Return the possible uses of each axis: all factors of extent above 1 or, with more than
    MOST combinations, only the factors that the axis splits in an operand or in the result;
    `lhs` or `rhs` for an operand that stays unreduced; None for no use."""
    stays = [_terms(matmul, axis) for axis in axes]
    every = [factor for factor, extent in enumerate(matmul.extents) if extent > 1]
    wide = [(*every, *terms, None) for terms in stays]
    if math.prod(map(len, wide)) <= MOST:
        return wide
    return [(*_used(matmul, axis), *terms, None) for axis, terms in zip(axes, stays, strict=True)]


def _terms(matmul: Matmul, axis: AxisRef) -> tuple[Side, ...]:
    found: list[Side] = []
    for side in ("lhs", "rhs"):
        sharding = matmul.sharding(side)
        if sharding.operator == "sum" and _holds(matmul, sharding.unreduced, axis):
            found.append(side)
    return tuple(found)


def _used(matmul: Matmul, axis: AxisRef) -> tuple[int, ...]:
    found = {
        factor
        for side in SIDES
        for factor, dim in zip(matmul.factors(side), matmul.sharding(side).dims, strict=True)
        if _holds(matmul, dim.axes, axis)
    }
    return tuple(sorted(found))


def _holds(matmul: Matmul, refs: Refs, axis: AxisRef) -> bool:
    sizes = matmul.mesh.sizes
    return any(ref.name == axis.name and algebra.contains(ref, axis, sizes) for ref in refs)


def _orders(matmul: Matmul, factor: int, refs: Refs) -> tuple[Refs, ...]:
    """Return the orders of the axes of a factor to consider. `refs`: the axes in the order of the
    mesh."""
    if len(refs) < 2:
        return (refs,)
    found = [refs]
    for side in SIDES:
        if factor in matmul.factors(side):
            dim = matmul.sharding(side).dims[matmul.factors(side).index(factor)]
            first = tuple(axis for ref in dim.axes for axis in refs if _holds(matmul, (ref,), axis))
            found.append((*first, *(axis for axis in refs if axis not in first)))
    return tuple(dict.fromkeys(found))
