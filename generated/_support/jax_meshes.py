"""Which device has what of a global array: meshes and shardings."""

import contextlib
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from .boxes import Side, extents, spread


class Sharded:
    """One side of a reshard: device ids by position, the box of the shard at a position, and the
    sharding of the global array. `axes`: names and sizes of the mesh refined into the sub-axes in
    use; `spec`: the sharding on these; `padded`: the shape of the global array, every shard padded
    at its ends to the largest; `terms`: whether dimension 0 stands for unreduced axes."""

    name = ""  # "source" or "target", as the host calls it
    hidden: tuple[int, ...] = ()  # its boxes number no terms beside what it gives
    new = 0

    def __init__(self, ids, box, padded, axes, spec, terms=False):
        self.padded, self.axes, self.spec, self.terms = padded, axes, spec, terms
        self.side = Side(ids, box)
        self.ids, self.box = ids, box
        # The axes that split each dimension.
        self._split = [() if e is None else (e,) if isinstance(e, str) else e for e in spec]
        counts = (math.prod(dict(axes)[name] for name in names) for names in self._split)
        self.local = tuple(size // count for size, count in zip(padded, counts, strict=True))

    def whole(self, shape):
        """Return the shape of the logical array of a tensor of a shape."""
        return (self.padded[0], *shape) if self.terms else tuple(shape)

    def shape(self, device_id):
        """Return the exact shape of the shard on a device."""
        box = self.box(self.side.position(device_id, self.name))
        return extents(box)[: len(self.local)]  # a scalar is moved as a vector of one element

    def holds_as(self, other):
        """Return whether devices hold what they hold on another side."""
        if tuple(self.ids) != tuple(other.ids) or self.padded != other.padded:
            return False
        places = spread(len(self.ids))
        return all(tuple(self.box(place)) == tuple(other.box(place)) for place in places)

    def _holders(self, axis):
        """Return the positions that have each of the shards along a dimension, one shard a row."""
        names, sizes = zip(*self.axes, strict=True)
        grid, split = np.arange(math.prod(sizes)), [*map(names.index, self._split[axis])]
        rows = np.moveaxis(grid.reshape(sizes), split, range(len(split)))
        return rows.reshape(math.prod(sizes[each] for each in split), -1)

    def _range(self, axis, position):
        low, high = self.box(int(position))[2 * axis : 2 * axis + 2]
        return min(low, high), high  # an empty one may begin beyond the tensor

    def ranges(self, axis):
        """Return the ranges of a dimension that shards have, in the order of the shards."""
        return [self._range(axis, row[0]) for row in self._holders(axis)]

    def fault(self, shape):
        """Return what is wrong with the boxes of a tensor of a shape: that they do not tile it, or
        that a device has another than its sharding gives it; "" if nothing is."""
        for axis, size in enumerate(self.whole(shape)):
            given = self.ranges(axis)
            filled = [each for each in given if each[0] < each[1]]
            if [0, *(high for _, high in filled)] != [*(low for low, _ in filled), size]:
                return f"{self.name} shards do not tile dimension {axis}, 0 to {size}: {given}"
            shard_of = np.argsort(self._holders(axis), None) // (len(self.ids) // len(given))
            for position in spread(len(self.ids)):
                found, wanted = self._range(axis, position), given[shard_of[position]]
                if found != wanted:
                    where = f"device {self.ids[position]}, {self.name} shard along dimension {axis}"
                    return "{}: {} to {}, by its sharding {} to {}".format(where, *found, *wanted)
        return ""

    def mesh(self, mesh):
        """Return a mesh with the axes that shardings name; the given one where it has them."""
        names, sizes = zip(*self.axes, strict=True)
        if not isinstance(mesh, Mesh):
            got = type(mesh).__name__
            raise TypeError(f"{self.name} mesh: got {got}, expected a jax.sharding.Mesh")
        if mesh.devices.size != math.prod(sizes):
            raise ValueError(
                f"{self.name} mesh: got {mesh.devices.size} devices, expected {math.prod(sizes)}"
            )
        if tuple(mesh.axis_names) == names and mesh.devices.shape == sizes:
            return mesh
        return Mesh(mesh.devices.reshape(sizes), names)

    def unlike(self, mesh):
        """Return what is wrong with a mesh that has axes of these names, but in another order or of
        other sizes; "" where it has these or parts of these, and where it has none of the names: it
        then says in which order the devices are."""
        given, wanted = self.mesh(mesh) and _whole(mesh.shape.items()), _whole(self.axes)
        swapped = [*given] != [*wanted] and {*given} == {*wanted}
        resized = {*given} & {*wanted} and [*given.values()] != [*wanted.values()]
        if swapped or resized:
            return f"{self.name} mesh: got axes {given}, expected {wanted}"
        return ""

    def mesh_of(self, devices):
        """Return the mesh of devices by position."""
        names, sizes = zip(*self.axes, strict=True)
        return Mesh(np.array(devices).reshape(sizes), names)

    def on(self, mesh):
        """Return how `reshard` takes its argument, or returns its result: the i-th id is that of
        mesh.devices.flat[i]."""
        return self.sharding(self.mesh(mesh))

    def sharding(self, mesh, batch=0):
        """Return how the global array is sharded, with so many dimensions of a batch before its
        own."""
        return NamedSharding(mesh, self.batched(batch))

    def batched(self, count):
        """Return the spec of an array with so many dimensions more, split by no axis."""
        return P(*[None] * count, *self.spec)


def _whole(axes):
    """Return the sizes of axes whose parts may stand alone, as `x:(1)2`, but of those of one."""
    sizes: dict = {}
    for name, size in axes:
        whole = name.partition(":")[0]
        sizes[whole] = sizes.get(whole, 1) * size
    return {name: size for name, size in sizes.items() if size > 1}


def end_ranks(exchange, by_id=False):
    """Return the ranks of source positions and of target positions: the positions themselves
    where both sides have one order, unless `by_id`, else places among the sorted ids."""
    alike = tuple(exchange.source.ids) == tuple(exchange.target.ids)
    if not by_id and alike and len(exchange.ranks) == len(exchange.source.ids):
        return range(len(exchange.ranks)), range(len(exchange.ranks))
    rank = {device_id: number for number, device_id in enumerate(exchange.ranks)}
    return tuple([rank[each] for each in side.ids] for side in (exchange.source, exchange.target))


def not_mapped(what):
    """Raise ValueError inside a shard_map, where arrays are shards."""
    manual = jax.sharding.get_abstract_mesh().manual_axes
    if manual:
        raise ValueError(
            f"{what} inside a shard_map over {', '.join(manual)}: it takes global arrays, and maps "
            "over shards itself; call it outside, before or after the shard_map"
        )


def apart(x):
    """Return a context with no mesh set, unless `x` is traced: an array is moved on its own
    devices, which need not be those of the mesh that a user has set."""
    if isinstance(x, jax.core.Tracer):
        return contextlib.nullcontext()
    try:
        return jax.set_mesh(Mesh(np.empty((), object), ()))
    except ValueError:  # JAX sets none while anything else is traced, as around a constant
        return contextlib.nullcontext()


def mapped(function, mesh, in_specs, out_specs):
    """Return the function over the shards of a mesh, whichever mesh is set where it is called."""
    # Without the types of the mesh's axes, so that it takes arrays with and without them.
    mesh = Mesh(mesh.devices, mesh.axis_names)
    over_shards = jax.shard_map(
        function, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False
    )

    @functools.wraps(function)
    def call(*arrays):
        with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
            return over_shards(*arrays)

    return call


def at(table, me):
    """Return the row of a rank in a table; the row itself where all are the same."""
    if (table == table[0]).all():
        return table[0]
    return lax.dynamic_index_in_dim(jnp.asarray(table), me, keepdims=False)


def expect(x, shape, dtype, what):
    """Raise TypeError for what is no array, ValueError for one of another shape or dtype."""
    if not hasattr(x, "dtype"):
        got = type(x).__name__
        raise TypeError(f"{what}: got {got}, expected an array of {shape} of {dtype}")
    if tuple(x.shape) != shape or x.dtype != dtype:
        raise ValueError(f"{what}: got {tuple(x.shape)} of {x.dtype}, expected {shape} of {dtype}")


def bits_of(dtype):
    """Return the integer type of an element's width."""
    return jnp.dtype(f"int{8 * jnp.dtype(dtype).itemsize}")
