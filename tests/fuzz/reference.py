"""What must come out, from the texts of both shardings and the definition alone.

Imports numpy and nothing of what is tested. A dimension is told element by element which shard owns
it, a device by its coordinates which shard it has; nothing else is computed.

A tensor of partial sums is an array with a dimension more, the first: one term for every place
along the unreduced axes, in the order of the mesh, sharded over them.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .case import Case, Side

Bits = npt.NDArray[np.unsignedinteger]
Terms = tuple[int, ...]


@dataclass(frozen=True)
class Ref:
    """`size` places of an axis, with `pre` parts before them and the rest within."""

    name: str
    pre: int
    size: int

    def value(self, coordinate: int, axis_size: int) -> int:
        """Where a coordinate of the axis lies along the reference."""
        rest = axis_size // (self.pre * self.size)
        return int(np.unravel_index(coordinate, (self.pre, self.size, rest))[1])


@dataclass(frozen=True)
class Read:
    """A side as its text says: what splits each dimension, and what is unreduced."""

    axes: Mapping[str, int]
    dims: tuple[tuple[Ref, ...], ...]
    terms: tuple[Ref, ...]  # in the order of the mesh
    operation: str  # that terms are put together by: "", "max" or "min"

    def coordinates(self, position: int) -> dict[str, int]:
        """The coordinates of a flat position of the mesh."""
        sizes = tuple(self.axes.values())
        found = np.unravel_index(position, sizes) if sizes else ()
        return dict(zip(self.axes, map(int, found), strict=True))

    def number(self, refs: Sequence[Ref], at: Mapping[str, int]) -> int:
        """The mixed-radix number of coordinates along references, the first the most major."""
        number = 0
        for ref in refs:
            number = number * ref.size + ref.value(at[ref.name], self.axes[ref.name])
        return number

    @property
    def split_by(self) -> tuple[tuple[Ref, ...], ...]:
        """What splits each dimension of the array: that of terms, if any, comes first."""
        return (self.terms, *self.dims) if self.terms else self.dims


def read(side: Side) -> Read:
    """The references of a side, by their text."""
    axes = dict(side.axes)
    dims, _, named = side.sharding.removeprefix("[").partition("]")
    lists = re.findall(r"\{([^}]*)\}", dims)
    found = re.search(r"unreduced=(max|min|)\{([^}]*)\}", named)
    terms = _refs(found[2], axes) if found else ()
    order = list(axes)
    return Read(
        axes,
        tuple(_refs(text, axes) for text in lists),
        tuple(sorted(terms, key=lambda ref: (order.index(ref.name), ref.pre))),
        found[1] if found else "",
    )


def _refs(text: str, axes: Mapping[str, int]) -> tuple[Ref, ...]:
    """References in their order; neighbours that are one sub-axis together are that one, which
    makes a difference where chunks are cut again."""
    refs: list[Ref] = []
    for name, pre, size in re.findall(r'"([^"]*)"(?::\((\d+)\)(\d+))?', text):
        ref = Ref(name, int(pre or 1), int(size or axes[name]))
        if refs and refs[-1].name == name and refs[-1].pre * refs[-1].size == ref.pre:
            refs[-1] = Ref(name, refs[-1].pre, refs[-1].size * ref.size)
        else:
            refs.append(ref)
    return tuple(refs)


def owners(extent: int, sizes: Sequence[int], split: str) -> list[int]:
    """For every element along a dimension the number of the shard that it is in."""
    if split == "flat":
        length = -(-extent // math.prod(sizes))
        return [element // length for element in range(extent)]
    return [_nested(element, extent, sizes) for element in range(extent)]


def _nested(element: int, extent: int, sizes: Sequence[int]) -> int:
    """The shard of an element where each chunk is cut again."""
    low, high, number = 0, extent, 0
    for size in sizes:
        length = -(-(high - low) // size)
        chunk = (element - low) // length
        low, high = low + chunk * length, min(high, low + (chunk + 1) * length)
        number = number * size + chunk
    return number


@dataclass(frozen=True)
class Array:
    """How the array of a side is laid out: the owner of every element along every dimension."""

    side: Side
    read: Read
    shape: tuple[int, ...]  # of terms first, if there are any
    owners: tuple[tuple[int, ...], ...]

    @staticmethod
    def of(case: Case, side: Side) -> Array:
        """The array of a side of a case."""
        found = read(side)
        terms = (math.prod(ref.size for ref in found.terms),) if found.terms else ()
        shape = (*terms, *case.shape)
        sizes = [[ref.size for ref in refs] for refs in found.split_by]
        along = (tuple(owners(n, k, side.split)) for n, k in zip(shape, sizes, strict=True))
        return Array(side, found, shape, tuple(along))

    @property
    def parts(self) -> tuple[int, ...]:
        """Into how many shards each dimension is cut."""
        return tuple(math.prod(ref.size for ref in refs) for refs in self.read.split_by)

    @property
    def local_shape(self) -> tuple[int, ...]:
        """The shape of the largest shard."""
        return tuple(max(map(along.count, set(along))) for along in self.owners)

    @property
    def padded_shape(self) -> tuple[int, ...]:
        """The shape of shards in slots of one size."""
        return tuple(n * k for n, k in zip(self.parts, self.local_shape, strict=True))

    def shard_of(self, device: int) -> tuple[int, ...]:
        """The number of a device's shard along every dimension."""
        at = self.read.coordinates(self.side.device_ids.index(device))
        return tuple(self.read.number(refs, at) for refs in self.read.split_by)

    def elements(self, device: int) -> tuple[npt.NDArray[np.intp], ...]:
        """The elements along every dimension that a device holds, as an index of the array."""
        held = zip(self.owners, self.shard_of(device), strict=True)
        return np.ix_(*([i for i, own in enumerate(along) if own == mine] for along, mine in held))

    def shard(self, device: int, array: Bits) -> Bits:
        """What a device holds, without padding."""
        held: Bits = array[self.elements(device)].copy()
        return held

    def slots(self) -> tuple[npt.NDArray[np.intp], ...]:
        """Where the elements along every dimension stand among slots of one size."""
        places = []
        for along, size in zip(self.owners, self.local_shape, strict=True):
            firsts = {own: along.index(own) for own in set(along)}
            places.append([own * size + i - firsts[own] for i, own in enumerate(along)])
        return np.ix_(*places)

    def slot(self, device: int) -> tuple[slice, ...]:
        """The slot of a device's shard in the padded array."""
        shards = zip(self.shard_of(device), self.local_shape, strict=True)
        return tuple(slice(number * size, (number + 1) * size) for number, size in shards)


def _pairs(source: Read, target: Read) -> dict[tuple[int, int], None]:
    """The pairs of a source's and a target's term that belong to the same coordinates."""
    names = sorted({ref.name for ref in (*source.terms, *target.terms)})
    sizes = [source.axes.get(name, target.axes.get(name, 1)) for name in names]
    pairs: dict[tuple[int, int], None] = {}
    for coordinates in itertools.product(*map(range, sizes)):
        at = dict(zip(names, coordinates, strict=True))
        pairs[source.number(source.terms, at), target.number(target.terms, at)] = None
    return pairs


def groups(case: Case) -> tuple[tuple[Terms, Terms], ...]:
    """Terms of the source that are put together, with the terms of the target that hold them."""
    pairs = _pairs(read(case.source), read(case.target))
    found: dict[Terms, Terms] = {}
    for _, after in pairs:
        befores = tuple(b for b, a in pairs if a == after)
        found[befores] = tuple(sorted({a for b, a in pairs if b in befores}))
    return tuple(found.items())


def adds(case: Case) -> bool:
    """Whether any terms are put together."""
    return any(len(befores) > 1 for befores, _ in groups(case))
