"""The layout of a value on devices, in equal shards. Each dimension is split by a list of pieces of
axes.

A layout may be partial: along the pieces `partial`, devices have partial results, and the value is
their sum, maximum or minimum.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

Names = tuple[str, ...]


@dataclass(frozen=True)
class LocalLayout:
    """The pieces of axes that split each dimension, major to minor. No piece occurs twice."""

    dims: tuple[Names, ...]
    partial: Names = ()  # in mesh order
    operator: str = "sum"  # the operator that combines the partial results: sum, max or min

    @property
    def used(self) -> Names:
        return tuple(name for dim in self.dims for name in dim)

    @property
    def whole(self) -> LocalLayout:
        """This layout after its partial results are reduced."""
        return replace(self, partial=(), operator="sum")

    def with_dim(self, dim: int, names: Iterable[str]) -> LocalLayout:
        """Return this layout with dimension `dim` split by the pieces `names`."""
        dims = (*self.dims[:dim], tuple(names), *self.dims[dim + 1 :])
        return LocalLayout(dims, self.partial, self.operator)

    def scattered(self, shape: tuple[int, ...], sizes: Mapping[str, int]) -> Iterator[LocalLayout]:
        """Yield the layouts to which a reduce-scatter leads: each splits one dimension of the sum
        along the pieces `partial`, if these make equal shards.

        >>> found = LocalLayout((("d",), (), ()), ("t",)).scattered((4, 3, 6), {"d": 2, "t": 2})
        >>> [str(each) for each in found]
        ['[{"d", "t"}, {}, {}]', '[{"d"}, {}, {"t"}]']
        """
        for dim, names in enumerate(self.dims if self.operator == "sum" and self.partial else ()):
            more = (*names, *self.partial)
            if fitting(more, shape[dim], sizes) == more:
                yield self.whole.with_dim(dim, more)

    def local(self, shape: tuple[int, ...], sizes: Mapping[str, int]) -> tuple[int, ...]:
        """Return the shape of a shard of a tensor of this shape."""
        return tuple(
            extent // math.prod([sizes[name] for name in dim])
            for extent, dim in zip(shape, self.dims, strict=True)
        )

    def __str__(self) -> str:
        dims = ", ".join("{" + ", ".join(f'"{name}"' for name in dim) + "}" for dim in self.dims)
        if not self.partial:
            return f"[{dims}]"
        return f"[{dims}], terms of a {self.operator} along {', '.join(self.partial)}"


def fitting(names: Iterable[str], extent: int, sizes: Mapping[str, int]) -> Names:
    """Return the longest prefix of `names` that splits an extent into equal shards, or () for an
    extent of zero."""
    out: list[str] = []
    for name in names:
        if not extent or extent % sizes[name]:
            break
        extent //= sizes[name]
        out.append(name)
    return tuple(out)
