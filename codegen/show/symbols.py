"""Names and symbols of a derivation: sizes, coordinates, tensor and local indices, split axes.

If sub-axes cut a mesh axis, its size is a product, M = Ma * Mb, and its coordinate m has one digit
per factor.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import sympy

from shardwright.ir.algebra.index import Index, Value, extent_symbol
from shardwright.ir.axes import AxisRef, contains
from shardwright.ir.mesh import Digit, Mesh


@dataclass(frozen=True)
class Letters:
    """Letters for indices. If there are more indices than letters, the names are numbered."""

    extents: str = "KL"
    elements: str = "ij"
    local: str = "kl"
    sizes: str = "MN"
    coordinates: str = "mn"

    def name(self, kind: str, number: int, count: int) -> str:
        """Return the name of quantity `number` of the `count` quantities of a kind."""
        letters: str = getattr(self, kind)
        return letters[number] if count <= len(letters) else f"{letters[0]}{number}"


SOURCE = Letters()
# The target has its own letters for coordinates and local indices: d2(p, q)[u, v].
TARGET = Letters(local="uv", coordinates="pq")
# If the target's mesh has different axes, its sizes have their own letters too.
OTHER_TARGET = Letters(local="uv", coordinates="pq", sizes="PQ")


@dataclass(frozen=True)
class Axis:
    """A mesh axis: its coordinate, its stride in the position, and the pieces into which it is
    cut."""

    name: str
    coordinate: Index
    stride: Value
    pieces: tuple[tuple[AxisRef, Digit], ...]

    @property
    def size(self) -> Value:
        """The size of the axis: the product of its pieces."""
        return self.coordinate.extent


def in_pieces(
    refs: tuple[AxisRef, ...], mesh: Mesh, pieces: tuple[AxisRef, ...]
) -> tuple[AxisRef, ...]:
    """Express references as pieces of the refined mesh, major to minor."""
    return tuple(piece for ref in refs for piece in pieces if contains(ref, piece, mesh.sizes))


def axes_of(
    mesh: Mesh, refs: tuple[AxisRef, ...], letters: Letters, symbols: bool
) -> tuple[Axis, ...]:
    """Return the axes of a mesh, cut at the borders of the references, with strides."""
    refined = mesh.refine(refs)
    stride: Value = sympy.Integer(1)
    axes: list[Axis] = []
    for number in reversed(range(len(mesh.axes))):
        name = mesh.names[number]
        own = [ref for ref in refined if ref.name == name]
        size_name = letters.name("sizes", number, len(mesh.axes))
        sizes = [_size(mesh, ref, size_name, i, len(own), symbols) for i, ref in enumerate(own)]
        pieces: list[tuple[AxisRef, Digit]] = []
        inner = stride
        for ref, size in zip(reversed(own), reversed(sizes), strict=True):
            pieces.append((ref, Digit(inner, size)))
            inner = inner * size
        extent = math.prod(sizes)
        coordinate = Index(letters.name("coordinates", number, len(mesh.axes)), extent)
        axes.append(Axis(name, coordinate, stride, tuple(reversed(pieces))))
        stride = inner
    return tuple(reversed(axes))


def _size(mesh: Mesh, ref: AxisRef, name: str, piece: int, pieces: int, symbols: bool) -> Value:
    if not symbols:
        return sympy.Integer(mesh.full_size(ref))
    return extent_symbol(name if pieces == 1 else f"{name}{chr(ord('a') + piece)}")
