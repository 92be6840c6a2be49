"""Padding of shards of which not only the last ones are short, such as those of nested splits."""

import math

import jax.numpy as jnp
import numpy as np
from jax import lax

from .jax_padding import Padding, in_one_piece


class SlottedPadding(Padding):
    """`Padding` of a side whose shards each have padding at their own end. The slot of a shard is
    its part of the padded array."""

    def __init__(self, side, whole):
        super().__init__(side, whole)
        self._by_axis = {axis: self._ranges(axis) for axis in self._changed}

    def _slots(self, axis):
        """Return the index of the shard along a dimension, by position."""
        side, names = self.side, self.side.spec[axis]
        split = [side.names.index(n) for n in ((names,) if isinstance(names, str) else names or ())]
        count, shards = math.prod(side.sizes), math.prod(side.sizes[each] for each in split)
        grid = np.moveaxis(np.arange(count).reshape(side.sizes), split, range(len(split)))
        return np.argsort(grid, None) // (count // shards)

    def _ranges(self, axis):
        """Return the ranges of a dimension that the shards hold, in shard order."""
        _, first = np.unique(self._slots(axis), return_index=True)
        return [self._range(axis, position) for position in first.tolist()]

    def _range(self, axis, position):
        low, high = self.side.box(position)[2 * axis : 2 * axis + 2]
        return min(low, high), high  # an empty range may begin beyond the tensor

    def fault(self, _mesh):
        """Describe a fault of a side: boxes that do not tile the tensor, or a device's box that
        differs from its shard's range; "" if there is none."""
        side = self.side
        for axis, size in enumerate(self.whole):
            given = self._ranges(axis)
            filled = [each for each in given if each[0] < each[1]]
            if [0, *(high for _, high in filled)] != [*(low for low, _ in filled), size]:
                return f"{side.name} shards do not tile dimension {axis}, 0 to {size}: {given}"
            for position, slot in enumerate(self._slots(axis).tolist()):
                found = self._range(axis, position)
                if found != given[slot]:
                    where = f"device {side.ids[position]}, {side.name}, dimension {axis}"
                    return f"{where}: got {found}, expected {given[slot]}"
        return ""

    def added(self, x):
        """Return a padded copy of an array of integers or tangents."""
        x = in_one_piece(x, self._changed)
        return super().added(slotted(x, self._by_axis, self.side.local))

    def taken_off(self, y):
        """Return a copy, without padding, of an array of integers or tangents."""
        y = in_one_piece(y, self._changed)
        return super().taken_off(gathered(y, self._by_axis, self.side.local))


def slotted(x, axes, sizes):
    """Return an array with the ranges of each axis in `axes` one after another, each padded to the
    axis's slot size."""
    for axis, ranges in axes.items():
        parts = [lax.slice_in_dim(x, low, high, axis=axis) for low, high in ranges]
        lacks = [sizes[axis] - part.shape[axis] for part in parts]
        ends = [[(0, lack * (a == axis)) for a in range(x.ndim)] for lack in lacks]
        x = jnp.concatenate([*map(jnp.pad, parts, ends)], axis)
    return x


def gathered(y, axes, sizes):
    """Invert `slotted`: return the ranges in slots of each axis, without their padding."""
    for axis, ranges in axes.items():
        starts = (slot * sizes[axis] for slot in range(len(ranges)))
        ends = ((at, at + high - low) for at, (low, high) in zip(starts, ranges, strict=True))
        y = jnp.concatenate([lax.slice_in_dim(y, *each, axis=axis) for each in ends], axis)
    return y
