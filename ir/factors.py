"""Factors: a reshape of logical dimensions into factors that are stored in a different order, such
as `(g h) d -> h g d`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from shardwright.ir.errors import InputError


class FactorAxis(NamedTuple):
    """A factor of logical dimension `dim`. A step of one along the factor is a step of `weight`
    along the dimension."""

    dim: int
    weight: int
    size: int


@dataclass(frozen=True)
class Factors:
    """A reshape of every logical dimension into factors, and the order in which they are stored."""

    # The name and size of each factor (None: implied), major to minor, by logical dimension.
    before: tuple[tuple[tuple[str, int | None], ...], ...]
    # The names of the factors, major to minor, by stored dimension.
    after: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        names = [name for group in self.before for name, _ in group]
        stored = [name for group in self.after for name in group]
        for side in (names, stored):
            twice = next((name for name in side if side.count(name) > 1), None)
            if twice is not None:
                raise InputError(
                    "each factor must occur once on each side",
                    got=f"{twice} twice",
                    expected="a different name for one of them",
                )
        if {*names} != {*stored}:
            lacking = sorted({*names} ^ {*stored})
            raise InputError(
                "both sides must have the same factors",
                got=f"{', '.join(lacking)} on only one side",
                expected="every factor on both sides",
            )

    def axes(self, shape: tuple[int, ...]) -> tuple[tuple[FactorAxis, ...], ...]:
        """Return the factors of each stored dimension for a tensor of this shape. Neighbouring
        factors are merged if they are also neighbours in the logical dimension. Raise InputError
        for a shape that does not fit."""
        if len(self.before) != len(shape):
            raise InputError(
                "there must be one group of factors for each dimension of the tensor",
                got=f"{len(self.before)} groups",
                expected=str(len(shape)),
            )
        found = {
            name: axis
            for dim, (group, extent) in enumerate(zip(self.before, shape, strict=True))
            for name, axis in self._axes_of(dim, group, extent)
        }
        return tuple(tuple(_merged(found[name] for name in group)) for group in self.after)

    @staticmethod
    def _axes_of(
        dim: int, group: tuple[tuple[str, int | None], ...], extent: int
    ) -> Iterator[tuple[str, FactorAxis]]:
        known = math.prod(size for _, size in group if size is not None)
        free = [name for name, size in group if size is None]
        if len(free) > 1 or extent % known or (not free and known != extent):
            said = " ".join(name if size is None else f"{name}={size}" for name, size in group)
            raise InputError(
                "the factors of a dimension must multiply to its extent",
                got=f"({said}) for dimension {dim} of extent {extent}",
                expected=f"sizes whose product is {extent}; one size may be omitted",
            )
        weight = extent
        for name, given in group:
            size = extent // known if given is None else given
            weight //= size
            yield name, FactorAxis(dim, weight, size)

    def __str__(self) -> str:
        before = (
            [name if size is None else f"{name}={size}" for name, size in group]
            for group in self.before
        )
        sides = (" ".join(map(_grouped, side)) for side in (before, self.after))
        return " -> ".join(sides)


def _grouped(names: list[str] | tuple[str, ...]) -> str:
    return names[0] if len(names) == 1 else f"({' '.join(names)})"


def _merged(axes: Iterator[FactorAxis]) -> list[FactorAxis]:
    found: list[FactorAxis] = []
    for axis in axes:
        last = found[-1] if found else None
        if last is not None and last.dim == axis.dim and last.weight == axis.weight * axis.size:
            axis = FactorAxis(axis.dim, axis.weight, found.pop().size * axis.size)
        found.append(axis)
    return found
