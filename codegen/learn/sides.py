"""The two kinds of sides of a comparison: a stored layout, and a loader."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from shardwright.codegen.learn.held import HeldBlock, of_held, of_layout
from shardwright.codegen.learn.probe import PADDED, HeldBuffer
from shardwright.codegen.learn.sampled import AnyHeld
from shardwright.ir.stored import Stored

Extents: TypeAlias = tuple[int, ...]


@dataclass(frozen=True)
class LayoutSide:
    """What a layout has, by device."""

    stored: Stored

    @property
    def tensors(self) -> Mapping[str, tuple[int, ...]]:
        return self.stored.tensors

    @property
    def devices(self) -> tuple[int, ...]:
        return tuple(self.stored.mesh.device_ids)

    def names(self, device: int) -> list[str]:
        """Return the buffers of a device."""
        return [*self.stored.bound]

    def dim(self, name: str) -> int | None:
        """Return the dimension along which a buffer's parts stand."""
        return self.stored.bound[name].dim

    def shape(self, device: int, name: str, like: Extents | None) -> Extents:
        """Return the shape of a buffer."""
        return self.stored.shape(name, device)

    def blocks(self, device: int, name: str, dim: int, shape: Extents) -> list[HeldBlock]:
        """Return the blocks of a buffer along a dimension."""
        return of_layout(self.stored, name, self.devices.index(device), dim)


@dataclass(frozen=True)
class HeldSide:
    """What a loader stores, by device."""

    tensors: Mapping[str, tuple[int, ...]]
    held: Mapping[int, Mapping[str, AnyHeld]]

    @property
    def devices(self) -> tuple[int, ...]:
        return tuple(self.held)

    def names(self, device: int) -> list[str]:
        """Return the buffers of a device."""
        return [*self.held[device]]

    def dim(self, name: str) -> int | None:
        """Return None: a loader says no dimension."""
        return None

    def shape(self, device: int, name: str, like: Extents | None) -> Extents:
        """Return the shape of a buffer: that of the other side if only dimensions of extent 1, or
        a dimension in several, are between them."""
        shape = self.held[device][name].shape
        return like if like is not None and _reshapes(shape, like) else shape

    def blocks(self, device: int, name: str, dim: int, shape: Extents) -> list[HeldBlock]:
        """Return the blocks of a buffer along a dimension."""
        return of_held(self.whole(device, name).reshaped(shape), self.tensors, dim)

    def whole(self, device: int, name: str) -> HeldBuffer:
        """Return a buffer of which every element is known: others are compared by their layouts."""
        held = self.held[device][name]
        assert isinstance(held, HeldBuffer)
        return held


Side: TypeAlias = LayoutSide | HeldSide


def walked(stored: Stored) -> HeldSide:
    """Return what a layout has, element by element."""
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
    return HeldSide(stored.tensors, held)


def _reshapes(shape: tuple[int, ...], like: tuple[int, ...]) -> bool:
    """Return whether a shape has more dimensions, but the same elements in order, so that each of
    the dimensions of the other is one or several neighbours of its."""
    ends = [{math.prod(each[:n]) for n in range(len(each) + 1)} for each in (shape, like)]
    return len(like) > len(shape) and math.prod(shape) == math.prod(like) and ends[0] <= ends[1]
