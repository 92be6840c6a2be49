"""The same reshards on fewer devices, for meshes too large to run here.

Every mesh is cut where any of its shardings cuts it, and each piece of an axis gets a smaller size,
so the order of axes and cuts stays the same. The devices at the first coordinates are kept; a later
mesh with the devices of an earlier one, in any order, keeps the same devices. Device ids keep their
order. An extent shrinks with its numbers of parts and is still cut in the same way: evenly or not,
with or without empty shards.

A smaller reshard is valid only if its module has the same form, which the caller checks.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from shardwright.codegen.checks.oracle import definition as oracle
from shardwright.ir import axes as algebra
from shardwright.ir.arrays import Integers
from shardwright.ir.axes import AxisRef
from shardwright.ir.errors import InputError
from shardwright.ir.exchange import ids_of
from shardwright.ir.mesh import Mesh
from shardwright.ir.reshard import Reshard
from shardwright.ir.sharding import DimSharding, Sharding

ENOUGH = 8
"""Meshes with fewer devices are tried last: with few devices, many wrong index functions give the
right results."""


def smaller_meshes(reshards: Sequence[Reshard], most: int) -> Iterator[tuple[Reshard, ...]]:
    """Yield the reshards on smaller meshes, all on the same devices and on at most `most` of them.
    The last reshards have extents that cannot be cut in the same way as the original ones."""
    sides = [side for each in reshards for side in (each.source, each.target)]
    cuts = [_Cut.of(mesh, sides) for mesh in dict.fromkeys(side.mesh for side in sides)]
    first = min(1, *(int(cut.ids.min()) for cut in cuts))
    differing = []
    for kept in sorted(_kept(cuts, most), key=_order):
        numbers = kept.numbers(first)
        meshes = {cut.mesh: cut.shrunk(ids, numbers) for cut, ids in kept.pairs()}
        smaller = tuple(_moved(each, meshes) for each in reshards)
        if all(_is_cut_alike(*pair) for pair in zip(reshards, smaller, strict=True)):
            yield smaller
        else:
            differing.append(smaller)
    yield from differing


@dataclass(frozen=True)
class _Cut:
    """A mesh, and the pieces of its axes, major to minor."""

    mesh: Mesh
    pieces: tuple[AxisRef, ...]

    @staticmethod
    def of(mesh: Mesh, sides: Iterable[Sharding]) -> _Cut:
        """Return a mesh whose axes are cut where its shardings cut them. An axis stays whole if its
        cuts do not divide one another."""
        refs = [ref for side in sides if side.mesh == mesh for ref in _refs(side)]
        pieces: list[AxisRef] = []
        for name, size in mesh.axes:
            ends = {end for ref in refs if ref.name == name for end in algebra.borders(ref, size)}
            try:
                pieces += algebra.pieces(name, size, sorted({1, size} | ends))
            except InputError:
                pieces.append(AxisRef(name))
        return _Cut(mesh, tuple(pieces))

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(map(self.mesh.full_size, self.pieces))

    @property
    def ids(self) -> Integers:
        """The device ids, as an array with one dimension per piece."""
        return ids_of(self.mesh).reshape(self.sizes)

    def choices(self, most: int) -> Iterator[tuple[int, ...]]:
        found: list[tuple[int, ...]] = [()]
        for size in self.sizes:
            found = [
                (*chosen, less)
                for chosen in found
                for less in _sizes(size)
                if math.prod(chosen) * less <= most
            ]
        yield from found

    def first(self, sizes: Sequence[int]) -> Integers:
        """Return the ids of the devices whose coordinate along each piece is below its size in
        `sizes`."""
        return self.ids[tuple(slice(0, size) for size in sizes)]

    def among(self, kept: Integers) -> Integers | None:
        """Return the ids in `kept` as an array with one dimension per piece, or None if they do not
        form a grid."""
        places = [np.unique(along) for along in np.nonzero(np.isin(self.ids, kept))]
        if any(len(p) < min(size, 2) for p, size in zip(places, self.sizes, strict=True)):
            return None
        return self.ids[np.ix_(*places)] if math.prod(map(len, places)) == kept.size else None

    def shrunk(self, ids: Integers, numbers: dict[int, int]) -> _Shrunk:
        sizes = dict(zip(self.pieces, ids.shape, strict=True))
        axes = [
            (name, math.prod(size for piece, size in sizes.items() if piece.name == name))
            for name in self.mesh.names
        ]
        renumbered = [numbers[each] for each in ids.reshape(-1).tolist()]
        return _Shrunk(self.mesh, Mesh(axes, renumbered), sizes)


@dataclass(frozen=True)
class _Shrunk:
    """A mesh, its smaller version, and the size of each piece of an axis in the smaller version."""

    whole: Mesh
    mesh: Mesh
    sizes: dict[AxisRef, int]

    def sharding(self, side: Sharding) -> Sharding:
        dims = tuple(DimSharding(self._all(dim.axes), dim.open, dim.priority) for dim in side.dims)
        replicated, unreduced = self._all(side.replicated), self._all(side.unreduced)
        return Sharding(self.mesh, dims, replicated, unreduced, side.operator)

    def _all(self, refs: Iterable[AxisRef]) -> tuple[AxisRef, ...]:
        return tuple(map(self._ref, refs))

    def _ref(self, ref: AxisRef) -> AxisRef:
        sizes = self.whole.sizes
        own = [piece for piece in self.sizes if piece.name == ref.name]
        if own == [AxisRef(ref.name)]:
            return ref
        low, high = algebra.borders(ref, sizes[ref.name])
        ends = [algebra.borders(piece, sizes[ref.name]) for piece in own]
        before = math.prod(
            self.sizes[p] for p, (_, end) in zip(own, ends, strict=True) if end <= low
        )
        inside = math.prod(
            self.sizes[p]
            for p, (start, end) in zip(own, ends, strict=True)
            if low <= start and end <= high
        )
        return algebra.between(ref.name, before, before * inside, self.mesh.sizes[ref.name])


@dataclass(frozen=True)
class _Kept:
    """The device ids to keep of each mesh, as arrays with one dimension per piece."""

    cuts: tuple[_Cut, ...]
    chosen: tuple[Integers, ...]

    @property
    def ids(self) -> Integers:
        return np.unique(np.concatenate([ids.reshape(-1) for ids in self.chosen]))

    def numbers(self, first: int) -> dict[int, int]:
        return {each: number for number, each in enumerate(self.ids.tolist(), first)}

    def pairs(self) -> Iterator[tuple[_Cut, Integers]]:
        return zip(self.cuts, self.chosen, strict=True)


def _order(kept: _Kept) -> tuple[bool, int]:
    """Return the sort key of a choice: fewest devices first, but fewer than ENOUGH devices last."""
    count = len(kept.ids)
    return count < ENOUGH, count


def _kept(cuts: Sequence[_Cut], most: int) -> Iterator[_Kept]:
    """Yield choices of the devices to keep in which any two meshes share all, some or none of their
    devices, as they did before."""
    found: list[tuple[Integers, ...]] = [()]
    for number, cut in enumerate(cuts):
        twin = next((n for n in range(number) if _shares(cuts[n].ids, cut.ids) == "all"), None)
        found = [
            (*chosen, ids)
            for chosen in found
            for ids in _options(cut, None if twin is None else chosen[twin], most)
            if all(
                _shares(cuts[n].ids, cut.ids) == _shares(other, ids)
                for n, other in enumerate(chosen)
            )
        ]
    yield from (kept for kept in (_Kept(tuple(cuts), c) for c in found) if len(kept.ids) <= most)


def _options(cut: _Cut, kept: Integers | None, most: int) -> Iterator[Integers]:
    if kept is None:
        yield from map(cut.first, cut.choices(most))
        return
    found = cut.among(kept)
    if found is not None:
        yield found


def _shares(one: Integers, other: Integers) -> str:
    """Describe the devices that two meshes share: all, all of one mesh, some, or none."""
    common = int(np.isin(one, other).sum())
    if common in (one.size, other.size):
        return {
            (True, True): "all",
            (True, False): "all of the first",
            (False, True): "all of the second",
        }[common == one.size, common == other.size]
    return "some" if common else "none"


def _sizes(size: int) -> list[int]:
    """Return candidates for the size of a piece: its divisors or, for a prime, 2 to 4; then three,
    because powers of two are easily confused; and the size itself."""
    divisors = [less for less in range(2, size) if size % less == 0]
    return sorted({*(divisors or range(2, min(size, 5))), min(size, 3), size})


def _refs(side: Sharding) -> Iterator[AxisRef]:
    yield from (*side.used(), *side.replicated, *side.unreduced)


def _moved(reshard: Reshard, meshes: dict[Mesh, _Shrunk]) -> Reshard:
    source, target = (meshes[s.mesh].sharding(s) for s in (reshard.source, reshard.target))
    small = dataclasses.replace(reshard, source=source, target=target)
    shape = (
        _extent(extent, _sides(reshard, dim), _sides(small, dim))
        for dim, extent in enumerate(reshard.shape)
    )
    return dataclasses.replace(small, shape=tuple(shape))


_Side = tuple[tuple[int, ...], str]
"""The cut of a dimension on one side: the number of parts at each level, and the split."""


def _is_cut_alike(large: Reshard, small: Reshard) -> bool:
    return all(
        _cut(large.shape[dim], _sides(large, dim)) == _cut(small.shape[dim], _sides(small, dim))
        for dim in range(large.rank)
    )


def _sides(reshard: Reshard, dim: int) -> tuple[_Side, _Side]:
    source, target = (
        tuple(digit.size for digit in side.digits(dim)) for side in (reshard.source, reshard.target)
    )
    return (source, reshard.source_split), (target, reshard.target_split)


def _extent(extent: int, before: Sequence[_Side], after: Sequence[_Side]) -> int:
    wanted, counts = _cut(extent, before), [math.prod(sizes) for sizes, _ in after]
    pairs = zip(counts, (math.prod(sizes) for sizes, _ in before), strict=True)
    sizes = [-(-extent * less // count) for less, count in pairs if count > 1]
    least = max(sizes, default=extent)
    tried = itertools.chain(range(least, least + 2 * math.lcm(*counts)), range(1, least))
    return next((each for each in tried if _cut(each, after) == wanted), least)


def _cut(extent: int, sides: Sequence[_Side]) -> tuple[object, ...]:
    """Return the properties of an extent's cuts that a smaller extent must keep: for each side,
    whether all shards are equal, some are empty, or none has more than one element; and whether the
    shards of one side nest in those of the other."""
    found: list[object] = []
    for sizes, split in sides:
        widths = [len(shard) for shard in oracle.shard_indices(extent, sizes, split)]
        found += [len({*widths}) == 1, 0 in widths, max(widths) == 1]
    one, other = (-(-extent // math.prod(sizes)) for sizes, _ in sides)
    return (*found, one % other == 0, other % one == 0)
