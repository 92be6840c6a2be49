"""The two kinds of sides in a comparison: a stored layout, and the contents of a loader's
buffers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from shardwright.codegen.learn.held import HeldBlock, of_held, of_layout
from shardwright.codegen.learn.probe import PADDED, HeldBuffer
from shardwright.codegen.learn.sampled import AnyHeld
from shardwright.ir.errors import InputError
from shardwright.ir.stored import Stored

MOST_WALKED = 2**24
"""The maximum number of elements of layouts that are compared one by one."""

Extents: TypeAlias = tuple[int, ...]


@dataclass(frozen=True)
class LayoutSide:
    """A side of a comparison that is a stored layout. `fitted`: whether it was fitted to a loader,
    whose empty buffers may have any shape."""

    stored: Stored
    fitted: bool = False

    @property
    def tensors(self) -> Mapping[str, tuple[int, ...]]:
        return self.stored.tensors

    @property
    def devices(self) -> tuple[int, ...]:
        return tuple(self.stored.mesh.device_ids)

    def names(self, device: int) -> list[str]:
        """Return the names of a device's buffers."""
        return [*self.stored.bound]

    def dim(self, name: str) -> int | None:
        """Return the dimension along which a buffer's parts are stacked."""
        return self.stored.bound[name].dim

    def shape(self, device: int, name: str, like: Extents | None) -> Extents:
        """Return the shape of a buffer."""
        return _shape_beside(self.stored.shape(name, device), like, self.fitted)

    def blocks(self, device: int, name: str, dim: int, shape: Extents) -> list[HeldBlock]:
        """Return the blocks of a buffer along a dimension."""
        return of_layout(self.stored, name, self.devices.index(device), dim)


@dataclass(frozen=True)
class HeldSide:
    """A side of a comparison that has the contents of a loader's buffers, by device."""

    tensors: Mapping[str, tuple[int, ...]]
    held: Mapping[int, Mapping[str, AnyHeld]]
    fitted: bool = False  # as in `LayoutSide`

    @property
    def devices(self) -> tuple[int, ...]:
        return tuple(self.held)

    def names(self, device: int) -> list[str]:
        """Return the names of a device's buffers."""
        return [*self.held[device]]

    def dim(self, name: str) -> int | None:
        """Return None, because a loader states no stacking dimension."""
        return None

    def shape(self, device: int, name: str, like: Extents | None) -> Extents:
        """Return the shape of a buffer; return the other side's shape instead if the two differ
        only by dimensions of extent 1 or by a dimension split into several."""
        shape = _shape_beside(self.held[device][name].shape, like, self.fitted)
        return like if like is not None and _reshapes(shape, like) else shape

    def blocks(self, device: int, name: str, dim: int, shape: Extents) -> list[HeldBlock]:
        """Return the blocks of a buffer along a dimension."""
        return of_held(self.whole(device, name).reshaped(shape), self.tensors, dim)

    def whole(self, device: int, name: str) -> HeldBuffer:
        """Return a buffer, which must not be a sample; samples are compared by layout."""
        held = self.held[device][name]
        assert isinstance(held, HeldBuffer)
        return held


Side: TypeAlias = LayoutSide | HeldSide


def _shape_beside(shape: Extents, like: Extents | None, fitted: bool) -> Extents:
    """Return `like`, the other side's shape of the buffer, if this side is fitted and both buffers
    are empty; else return `shape`."""
    return like if fitted and like is not None and 0 in shape and 0 in like else shape


def walked(side: LayoutSide) -> HeldSide:
    """Convert a layout to the contents of its buffers, element by element. Raise InputError for
    more than MOST_WALKED elements."""
    stored = side.stored
    count = sum(map(math.prod, stored.tensors.values()))
    if count > MOST_WALKED:
        raise InputError(
            "layouts of different forms can be compared only element by element, and these have "
            "too many elements",
            argument="found",
            got=f"{count:,} elements",
            expected="the same rank, factors and stacked dimension in both layouts, or at most "
            f"{MOST_WALKED:,} elements",
        )
    names = [*stored.tensors]
    rank = max(1, *map(len, stored.tensors.values()))
    numbers = {name: np.full(shape, names.index(name)) for name, shape in stored.tensors.items()}
    places = [
        {
            name: np.indices(shape)[dim] if dim < len(shape) else np.zeros(shape, dtype=np.int64)
            for name, shape in stored.tensors.items()
        }
        for dim in range(rank)
    ]
    tensors = stored.shards(numbers, PADDED)
    index = [stored.shards(each) for each in places]
    held = {
        device: {
            name: HeldBuffer(
                each.astype(np.int64),
                np.stack([along[device][name].astype(np.int64) for along in index], axis=-1),
                np.ones(each.shape),
                *(np.zeros(each.shape) for _ in range(2)),
            )
            for name, each in buffers.items()
        }
        for device, buffers in tensors.items()
    }
    return HeldSide(stored.tensors, held, side.fitted)


def _reshapes(shape: tuple[int, ...], like: tuple[int, ...]) -> bool:
    """Return whether `like` results from splitting dimensions of `shape` into adjacent
    dimensions, which keeps the order of elements."""
    ends = [{math.prod(each[:n]) for n in range(len(each) + 1)} for each in (shape, like)]
    return len(like) > len(shape) and math.prod(shape) == math.prod(like) and ends[0] <= ends[1]
