"""Shardings as the placements of a torch DTensor, where they can be said so."""

from __future__ import annotations

from dataclasses import dataclass

from shardwright.ir.layout import Layout
from shardwright.ir.mesh import AxisRef
from shardwright.ir.sharding import Sharding


@dataclass(frozen=True)
class Placements:
    """A placement for each mesh axis: the dimension that it splits, None where it replicates."""

    dims: tuple[int | None, ...]

    def __str__(self) -> str:
        """Return `(Shard(0), Replicate())`."""
        placed = ["Replicate()" if dim is None else f"Shard({dim})" for dim in self.dims]
        return f"({', '.join(placed)})" if len(placed) > 1 else f"({placed[0]},)"

    @property
    def names(self) -> frozenset[str]:
        """The names of torch's that the text uses."""
        return frozenset("Replicate" if dim is None else "Shard" for dim in self.dims)


def placements(sharding: Sharding, layout: Layout) -> Placements | None:
    """Return a placement for each mesh axis; None where DTensor has no words.

    It splits a dimension over whole axes, in the order of the mesh, chunk by chunk: what is split
    over several axes and does not divide is split as `nested`.
    """
    names = list(sharding.mesh.names)
    placed: list[int | None] = [None] * len(names)
    for number, (dim, split) in enumerate(zip(sharding.dims, layout.dims, strict=True)):
        order = [names.index(ref.name) for ref in dim.axes if ref == AxisRef(ref.name)]
        if len(order) < len(dim.axes) or order != sorted(order):
            return None
        if len(order) > 1 and split.is_flat and not split.is_even:
            return None
        for axis in order:
            placed[axis] = number
    return Placements(tuple(placed)) if placed else None
