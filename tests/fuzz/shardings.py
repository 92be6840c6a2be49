"""Random meshes and shardings, and those that are near a given one."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from .dice import Dice

MOST_IDS = 16
"""Device ids are less than this."""


@dataclass(frozen=True)
class Mesh:
    """Axes, major to minor, and devices by flat position."""

    axes: tuple[tuple[str, int], ...]
    ids: tuple[int, ...]


@dataclass(frozen=True)
class Ref:
    """`"name":(pre)size` of an axis whose size is `whole`."""

    name: str
    pre: int
    size: int
    whole: int

    def __str__(self) -> str:
        if self.size == self.whole:
            return f'"{self.name}"'
        return f'"{self.name}":({self.pre}){self.size}'


@dataclass(frozen=True)
class Drawn:
    """What splits each dimension, major to minor, and what is unreduced."""

    dims: tuple[tuple[Ref, ...], ...]
    unreduced: tuple[Ref, ...] = ()


def mesh_of(dice: Dice, count: int) -> Mesh:
    """A mesh of so many devices; ids in order, from some number, with gaps, or permuted."""
    kind = dice.choice(["iota", "iota", "iota", "offset", "gaps", "permuted", "permuted"])
    ids = list(range(count))
    if dice.plain:
        return Mesh(axes_of(dice, count), tuple(ids))
    if kind == "offset":
        start = dice.randint(0, min(4, MOST_IDS - count))
        ids = list(range(start, start + count))
    elif kind == "gaps":
        ids = sorted(dice.sample(range(MOST_IDS), count))
    elif kind == "permuted":
        dice.shuffle(ids)
    return Mesh(axes_of(dice, count), tuple(ids))


def axes_of(dice: Dice, count: int) -> tuple[tuple[str, int], ...]:
    """Axes whose sizes multiply to `count`; sometimes one of size 1 among them, or none at all."""
    sizes, left = [], count
    while left > 1:
        divisors = [d for d in range(2, left + 1) if left % d == 0]
        size = dice.choice([*divisors, divisors[0], divisors[0]])
        sizes.append(size)
        left //= size
    if dice.rarely(0.15) or (not sizes and dice.happens(0.7)):
        sizes.insert(dice.randint(0, len(sizes)), 1)
    names = list("xyzw") if dice.happens(0.7) else ["data", "tp", "x-1", "y"]
    dice.shuffle(names)
    return tuple(zip([*names, *"vut"], sizes, strict=False))


def other_mesh(dice: Dice, mesh: Mesh) -> Mesh:
    """The mesh of a target: the same; its devices otherwise; other devices."""
    kind = dice.choice(["same"] * 4 + ["axes", "axes", "permuted", "axes permuted", "others"] * 2)
    if dice.plain:
        return mesh
    ids = list(mesh.ids)
    if "permuted" in kind:
        dice.shuffle(ids)
    if kind == "others":
        count = dice.choice([1, 2, 3, 4, 6, 8])
        apart = [device for device in range(MOST_IDS) if device not in mesh.ids]
        among = apart if len(apart) >= count and dice.happens(0.4) else list(range(MOST_IDS))
        ids = dice.sample(among, count)
        if dice.happens(0.5):
            ids.sort()
    axes = mesh.axes if kind in ("same", "permuted") else axes_of(dice, len(ids))
    return Mesh(axes, tuple(ids))


def same_devices(dice: Dice, mesh: Mesh, *, moves: bool, renames: bool) -> Mesh:
    """A mesh of the same devices: perhaps in another order, perhaps of other axes."""
    ids, axes = list(mesh.ids), mesh.axes
    if moves and dice.rarely(0.25):
        dice.shuffle(ids)
    if renames and dice.rarely(0.4):
        axes = axes_of(dice, len(ids))
    return Mesh(axes, tuple(ids))


def elsewhere(dice: Dice, mesh: Mesh) -> Mesh:
    """The same axes of as many devices, any of all."""
    return Mesh(mesh.axes, tuple(dice.sample(range(MOST_IDS), len(mesh.ids))))


def pieces_of(dice: Dice, mesh: Mesh, forced: Sequence[Ref] = ()) -> list[Ref]:
    """Every axis cut into sub-axes, or left whole; the ends of `forced` are among the cuts."""
    found = []
    for name, whole in mesh.axes:
        ends = [end for r in forced if r.name == name for end in (r.pre, r.pre * r.size)]
        cuts = {1, whole, *ends}
        for cut in range(2, whole):
            divides = all(cut % other == 0 or other % cut == 0 for other in cuts)
            if whole % cut == 0 and divides and dice.happens(0.4):
                cuts.add(cut)
        pairs = list(itertools.pairwise(sorted(cuts))) or [(1, 1)]
        found += [Ref(name, low, high // low, whole) for low, high in pairs]
    return found


def sharding_of(dice: Dice, mesh: Mesh, rank: int, unreduced: Sequence[Ref] = ()) -> Drawn:
    """A sharding by axes and sub-axes of what `unreduced` leaves of the mesh."""
    pieces = pieces_of(dice, mesh, unreduced)
    refs = [piece for piece in pieces if not any(_within(piece, ref) for ref in unreduced)]
    dice.shuffle(refs)
    dims: list[list[Ref]] = [[] for _ in range(rank)]
    together = dice.happens(0.5)
    dim = dice.choice(dims) if dims else []
    for ref in refs:
        if dims and dice.happens(0.85):
            dim = dim if together and dice.happens(0.7) else dice.choice(dims)
            dim.append(ref)
    return Drawn(tuple(map(tuple, dims)), tuple(unreduced))


def _within(piece: Ref, ref: Ref) -> bool:
    """Whether a piece of an axis that is cut at the reference's ends is part of it."""
    starts_within = piece.name == ref.name and ref.pre <= piece.pre
    return starts_within and piece.pre * piece.size <= ref.pre * ref.size


def near(dice: Dice, given: Drawn, unreduced: Sequence[Ref] = ()) -> Drawn:
    """A sharding by the same references, of which some that stand together split another dimension,
    none, or the same one in another place."""
    dims = [[ref for ref in dim if ref not in unreduced] for dim in given.dims]
    freed = [ref for ref in given.unreduced if ref not in unreduced]
    for _ in range(dice.randint(1, 2)):
        full = [dim for dim in dims if dim]
        if full and dice.happens(0.9):
            dim = max(full, key=len) if dice.happens(0.5) else dice.choice(full)
            taken = dice.run(dim, whole=0.5)
            freed += dim[taken]
            del dim[taken]
        if freed and dims and dice.happens(0.8):
            put, dim = dice.run(freed), dice.choice(dims)
            at = dice.randint(0, len(dim))
            dim[at:at] = freed[put]
            del freed[put]
    return Drawn(tuple(map(tuple, dims)), tuple(unreduced))


def text_of(dice: Dice, mesh: Mesh, drawn: Drawn, kind: str = "") -> str:
    """The text of a sharding; sometimes it says what is replicated, open, or has a priority."""
    used = {ref.name for dim in (*drawn.dims, drawn.unreduced) for ref in dim}
    free = [f'"{name}"' for name, _ in mesh.axes if name not in used and dice.rarely(0.3)]
    says = dice.rarely(0.15)
    dims = ", ".join(_dim(dice, dim, says) for dim in drawn.dims)
    replicated = f", replicated={{{', '.join(free)}}}" if free else ""
    unreduced = ", ".join(map(str, drawn.unreduced))
    return f"[{dims}]{replicated}" + (f", unreduced={kind}{{{unreduced}}}" if unreduced else "")


def _dim(dice: Dice, refs: Sequence[Ref], says: bool) -> str:
    """One dimension; `says`: open or not, and a priority where there may be one."""
    is_open = says and dice.happens(0.5)
    inside = [*map(str, refs), *("?" if is_open else "")]
    priority = f"p{dice.randint(0, 3)}" if says and inside and dice.happens(0.5) else ""
    return f"{{{', '.join(inside)}}}{priority}"
