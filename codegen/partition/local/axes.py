"""The mesh axes, cut wherever a sharding of the program cuts them, so that a sharding is a list of
names for each dimension."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any

from shardwright.codegen.ops.layout import LocalLayout, fitting
from shardwright.codegen.partition.local.rates import DEFAULT, Rates, rates_of
from shardwright.codegen.propagate.parts import AxisPart, merged, part_of, ref_of
from shardwright.ir.errors import InputError
from shardwright.ir.mesh import Mesh
from shardwright.ir.program import Param, Program
from shardwright.ir.sharding import DimSharding, Sharding


@dataclass(frozen=True)
class CutAxes:
    """The axes of a mesh cut into pieces, major to minor; a piece has a name and a size."""

    mesh: Mesh
    pieces: tuple[tuple[str, int], ...]
    parts: tuple[AxisPart, ...]  # the part of a mesh axis that each piece covers
    rates: Rates = DEFAULT

    @functools.cached_property
    def sizes(self) -> dict[str, int]:
        return dict(self.pieces)

    @functools.cached_property
    def known(self) -> dict[Hashable, Any]:
        """The cache of `assign.splits_of`: the splits of each distinct op so far."""
        return {}

    @property
    def whole(self) -> bool:
        """Whether every piece is a whole mesh axis."""
        return [name for name, _ in self.pieces] == list(self.mesh.names)

    def names(self, parts: Iterable[AxisPart]) -> tuple[str, ...]:
        """Return the names of the pieces that make up parts of axes, without pieces of size 1."""
        return tuple(
            name
            for part in parts
            for (name, size), own in zip(self.pieces, self.parts, strict=True)
            if size > 1 and own.axis == part.axis and part.low <= own.low and own.high <= part.high
        )

    def layout(self, sharding: Sharding | None, shape: tuple[int, ...]) -> LocalLayout:
        """Convert a sharding to a layout with equal shards. Axes that do not divide their dimension
        are dropped."""
        if sharding is None:
            return LocalLayout(((),) * len(shape))
        sizes = self.mesh.sizes
        dims = tuple(
            fitting(self.names(part_of(ref, sizes) for ref in dim.axes), extent, self.sizes)
            for dim, extent in zip(sharding.dims, shape, strict=True)
        )
        return LocalLayout(dims)

    def spilled(self, sharding: Sharding | None, shape: tuple[int, ...]) -> LocalLayout:
        """Convert a sharding to a layout in which axes that do not divide their dimension split the
        first other dimension that they divide."""
        layout = self.layout(sharding, shape)
        for dim, given in enumerate(() if sharding is None else sharding.dims):
            names = self.names(part_of(ref, self.mesh.sizes) for ref in given.axes)
            lost = names[len(layout.dims[dim]) :]
            for other, own in enumerate(layout.dims):
                if (
                    lost
                    and other != dim
                    and fitting((*own, *lost), shape[other], self.sizes)[-len(lost) :] == lost
                ):
                    layout = layout.with_dim(other, (*own, *lost))
                    break
        return layout

    def sharding(self, layout: LocalLayout) -> Sharding:
        """Convert a layout, which must not be partial, to a sharding with closed dimensions."""
        known = {name: part for (name, _), part in zip(self.pieces, self.parts, strict=True)}
        parts = (merged(known[name] for name in names) for names in layout.dims)
        sizes = self.mesh.sizes
        dims = (DimSharding(tuple(ref_of(each, sizes) for each in own)) for own in parts)
        return Sharding(self.mesh, tuple(dims))

    def whole_axes(self, names: Param) -> tuple[str, ...]:
        """Return the pieces of the mesh axes `names`, without pieces of size 1."""
        listed = names if isinstance(names, tuple) else (names,)
        sizes = self.mesh.sizes
        return self.names(AxisPart(str(name), 1, sizes[str(name)]) for name in listed)

    def spelled(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the names that emitted code uses for mesh axes: all their pieces, major to
        minor."""
        return tuple(
            name
            for axis in names
            for (name, _), own in zip(self.pieces, self.parts, strict=True)
            if own.axis == axis
        )

    def parts_of(self, names: Iterable[str]) -> int:
        """Return the number of shards into which pieces together split a dimension."""
        sizes = self.sizes
        return math.prod([sizes[name] for name in names])

    def ordered(self, names: Iterable[str]) -> tuple[str, ...]:
        wanted = set(names)
        return tuple(name for name, _ in self.pieces if name in wanted)


def cut_axes(program: Program, mesh: Mesh, topology: str | None = None) -> CutAxes:
    """Cut a mesh wherever a sharding of the program cuts its axes, and rate the axes on a topology.

    Raises InputError for a program with values on several meshes, and for an unknown topology.
    """
    cuts: dict[str, set[int]] = {name: {1, size} for name, size in mesh.axes}
    shardings = (*(value.sharding for value in program.values), *program.results)
    for sharding in filter(None, shardings):
        if sharding.mesh != mesh and sharding.used():
            raise InputError(
                "all values of an emitted program must be on the same mesh",
                got=f"{sharding} on {sharding.mesh}",
                expected=f"shardings on {mesh}",
            )
        for ref in sharding.used() if sharding.mesh == mesh else ():
            part = part_of(ref, mesh.sizes)
            cuts[ref.name] |= {part.low, part.high}
    pieces, parts = [], []
    for name, size in mesh.axes:
        borders = sorted(cuts[name])
        if any(high % low for low, high in itertools.pairwise(borders)):
            raise InputError(
                "all sub-axes of an axis must be cut at multiples of one another",
                got=f'"{name}"={size} cut at {", ".join(map(str, borders))}',
                expected="each cut a multiple of the previous cut",
            )
        stretches = list(itertools.pairwise(borders)) or [(1, 1)]
        for number, (low, high) in enumerate(stretches):
            own = name if len(stretches) == 1 else _fresh(f"{name}_{number}", mesh)
            pieces.append((own, high // low))
            parts.append(AxisPart(name, low, high))
    rates = rates_of(tuple(pieces), mesh.device_ids, topology)
    return CutAxes(mesh, tuple(pieces), tuple(parts), rates)


def _fresh(name: str, mesh: Mesh) -> str:
    while name in mesh.names:
        name += "_"
    return name
