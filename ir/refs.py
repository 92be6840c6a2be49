"""Convert digits of a mesh position to axis references."""

from __future__ import annotations

from collections.abc import Iterable

from shardwright.ir import axes as algebra
from shardwright.ir.axes import AxisRef
from shardwright.ir.mesh import Mesh


def refs_of(mesh: Mesh, digits: Iterable[tuple[int, int]]) -> tuple[AxisRef, ...] | None:
    """Return the axis references for digits of a mesh position, or None if a digit is not a product
    of axes and sub-axes.

    `digits`: pairs (stride, size), major to minor.
    """
    found: list[AxisRef] = []
    for stride, size in digits:
        refs, at, top = [], stride, stride * size
        minor = 1
        for name, extent in reversed(mesh.axes):
            major = minor * extent
            if at < top and minor <= at < major:
                end = min(top, major)
                if at % minor or end % at or major % end:
                    return None
                refs.append(algebra.between(name, major // end, major // at, extent))
                at = end
            minor = major
        if at != top:
            return None
        found += reversed(refs)
    return tuple(found)
