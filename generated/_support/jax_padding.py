"""Padding of shards: JAX requires all shards of an array to have one shape."""

import functools

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
    equal shapes. Here all shards but the last ones are full, so all padding is at the end of the
    array; `SlottedPadding` is for other shards.

    Floats move as integers of their width: XLA may turn moves of floats into sums with zeros, which
    change -0.0, subnormals and NaNs.
    """

    def __init__(self, side, whole):
        self.side, self.whole = side, whole
        self._changed = tuple(axis for axis, size in enumerate(whole) if side.padded[axis] != size)

    def fault(self, mesh):
        """Return a message about the first device whose box differs from its shard in JAX's own
        sharding of the padded array, without the padding; "" if there is none."""
        return self.side.fault(mesh, self.whole)

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
        x = in_one_piece(x, self._changed)
        sizes = zip(x.shape, self.side.padded, strict=True)
        return jnp.pad(x, [(0, padded - size) for size, padded in sizes])

    def taken_off(self, y):
        """Return a copy, without padding, of an array of integers or tangents."""
        y = in_one_piece(y, self._changed)
        return y[tuple(slice(size) for size in self.whole)]


def in_one_piece(x, axes):
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
