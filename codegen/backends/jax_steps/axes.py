"""The axes into which a program divides its devices and which its collectives name.

The steps of a plan are over digits (stride, size) of a device's position. The borders of a digit
are its stride and its stride times its size. If one of any two borders divides the other, the
devices form an array with one axis between neighbouring borders, and every collective names its
axes. Otherwise the axes are the source's, and a step over other digits uses groups of devices.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass

from shardwright.codegen.backends.jax_host import axis_name
from shardwright.codegen.moves.basis.digits import Digits
from shardwright.ir.mesh import Mesh
from shardwright.ir.refs import refs_of
from shardwright.ir.sharding import Sharding


@dataclass(frozen=True)
class ProgramAxes:
    """The names and digits of the axes, major to minor. Together, the digits cover the whole
    position."""

    names: tuple[str, ...]
    digits: Digits

    @staticmethod
    def of(source: Sharding, cuts: Iterable[Digits]) -> ProgramAxes:
        """Return the coarsest axes that can name the source's axes and the digits of all cuts, or
        the source's axes if there are none."""
        mesh = source.mesh
        own = mesh.refine((*source.used(), *source.unreduced))
        digits = tuple((mesh.digit(ref).stride, mesh.digit(ref).size) for ref in own)
        cut = _between(_borders([digits, *cuts], mesh.size))
        return _named(mesh, digits if cut is None else cut)

    def over(self, digits: Digits) -> tuple[str, ...] | None:
        """Return the names of the axes that make up digits, major to minor, or None if a digit is
        not made of whole axes."""
        found: list[str] = []
        for stride, size in digits:
            inside = [
                (name, own)
                for name, (low, own) in zip(self.names, self.digits, strict=True)
                if low >= stride and low * own <= stride * size and own > 1
            ]
            if math.prod(own for _, own in inside) != size:
                return None
            found += [name for name, _ in inside]
        return tuple(found)


def _borders(all_digits: Iterable[Digits], size: int) -> list[int]:
    """Return the borders of digits in ascending order, including 1 and the number of devices."""
    pairs = itertools.chain.from_iterable(all_digits)
    return sorted({1, size, *(end for low, count in pairs for end in (low, low * count))})


def _between(borders: list[int]) -> Digits | None:
    """Return the digits between neighbouring borders, major to minor, or None if a border does not
    divide the next."""
    pairs = list(itertools.pairwise(borders))
    if any(high % low for low, high in pairs):
        return None
    return tuple((low, high // low) for low, high in reversed(pairs))


def _named(mesh: Mesh, digits: Digits) -> ProgramAxes:
    """Return axes for digits. Each is named after the mesh axis or sub-axis that equals it, if any,
    otherwise `devices`."""
    names = []
    for low, count in digits or ((1, 1),):
        refs = refs_of(mesh, ((low, count),))
        if refs is not None and len(refs) == 1:
            names.append(axis_name(refs[0]))
        else:
            names.append(f"devices:({mesh.size // (low * count)}){count}")
    return ProgramAxes(tuple(names), digits or ((1, 1),))
