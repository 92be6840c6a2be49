"""Padding of shards: JAX requires all shards of an array to have one shape."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from .jax_bits import by_bits
from .jax_meshes import apart


class Padding:
    """Padding of one side's array: a logical array of shape `whole` becomes one whose shards have
    equal shapes.

    Floats move as integers of their width: XLA may turn moves of floats into sums with zeros, which
    change -0.0, subnormals and NaNs.
    """

    def __init__(self, side, whole):
        self.side, self.whole, self._padded = side, whole, side.padded
        self._changed = tuple(axis for axis, size in enumerate(whole) if side.padded[axis] != size)
        self._sizes = side.local
        # By dimension along which some shard does not begin at its slot, the ranges of
        # all shards.
        self._apart = {}
        for axis in self._changed:
            ranges, size = self._ranges(axis), side.local[axis]
            if any(low not in (slot * size, high) for slot, (low, high) in enumerate(ranges)):
                self._apart[axis] = ranges

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
        differs from its range in the sharding; "" if there is none."""
        side = self.side
        for axis, size in enumerate(self.whole):
            given = self._ranges(axis)
            filled = [each for each in given if each[0] < each[1]]
            if [0, *(high for _, high in filled)] != [*(low for low, _ in filled), size]:
                return f"{side.name} shards do not tile dimension {axis}, 0 to {size}: {given}"
            for position, slot in enumerate(self._slots(axis).tolist()):
                found = self._range(axis, position)
                if found != given[slot]:
                    return side.misplaced(axis, position, found, given[slot])
        return ""

    def where(self):
        """Return a mask of an array's padding."""
        return np.asarray(self.add(jnp.ones(self.whole, jnp.int8))) == 0

    def add(self, x):
        """Pad a logical array."""
        return self._moved(self.added, x)

    def take_off(self, y):
        """Remove the padding of an array."""
        return self._moved(self.taken_off, y)

    def _moved(self, move, x):
        if not self._changed:
            return x
        with apart(x):
            return _by_bits(move, x) if jnp.issubdtype(x.dtype, jnp.floating) else move(x)

    def added(self, x):
        """Return a padded copy of an array of integers or tangents."""
        x = _in_one_piece(x, self._changed)
        if self._apart:
            from .jax_slotted import slotted

            x = slotted(x, self._apart, self._sizes)
        sizes = zip(x.shape, self._padded, strict=True)
        return jnp.pad(x, [(0, padded - size) for size, padded in sizes])

    def taken_off(self, y):
        """Return a copy, without padding, of an array of integers or tangents."""
        y = _in_one_piece(y, self._changed)
        if self._apart:
            from .jax_slotted import gathered

            y = gathered(y, self._apart, self._sizes)
        return y[tuple(slice(size) for size in self.whole)]


def _in_one_piece(x, axes):
    """Return an array unsharded along these axes if its mesh has Explicit axes, over which JAX
    requires even shards, or if it is traced integers, whose uneven shards XLA may compute as sums
    with zeros. Return any other array unchanged."""
    sharding = jax.typeof(x).sharding
    if AxisType.Explicit in sharding.mesh.axis_types:
        spec = [None if axis in axes else names for axis, names in enumerate(sharding.spec)]
        return jax.sharding.reshard(x, NamedSharding(sharding.mesh, P(*spec)))
    tangent = jnp.issubdtype(x.dtype, jnp.inexact)  # float values move as integers
    if sharding.mesh.empty or tangent or not isinstance(x, jax.core.Tracer):
        return x
    spec = P(*[None if axis in axes else P.UNCONSTRAINED for axis in range(x.ndim)])
    try:
        return lax.with_sharding_constraint(x, NamedSharding(sharding.mesh, spec))
    except TypeError:  # under vmap without jit, the array is on one device and needs no constraint
        return x


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _by_bits(move, x):
    """Apply `move` to the elements as integers; tangents move as they are."""
    return by_bits(move, x)


@_by_bits.defjvp
def _by_bits_jvp(move, primals, tangents):
    return _by_bits(move, *primals), move(*tangents)
