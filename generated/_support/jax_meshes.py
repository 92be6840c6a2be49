"""Meshes and shardings, which determine each device's part of a global array."""

import contextlib
import math

import jax
import numpy as np
from jax import lax
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from .boxes import extents, ranges


class Sharded:
    """One side of a reshard: device ids by position, the box of the shard at a position, and the
    sharding of the global array. `axes`: names and sizes of the mesh's axes, split into the
    sub-axes in use; `spec`: the `PartitionSpec` over these; `padded`: the shape of the global array
    with every shard padded at its end to the largest; `terms`: whether dimension 0 numbers the
    terms along unreduced axes."""

    hidden: tuple[int, ...] = ()  # extents of the leading box dimensions, as in `Exchange`
    new = 0

    def __init__(self, ids, box, padded, axes, spec, terms=False):
        self.ids, self.box, self.padded, self.axes = ids, box, padded, axes
        self.spec, self.terms, self.name = spec, terms, ""  # the host names sides for messages
        self.names, self.sizes = zip(*axes, strict=True)
        self.local = NamedSharding(AbstractMesh(self.sizes, self.names), spec).shard_shape(padded)

    def whole(self, shape):
        """Return the logical array's shape for a tensor of this shape."""
        return (self.padded[0], *shape) if self.terms else tuple(shape)

    def shape(self, device_id):
        """Return the shape, without padding, of the shard on a device. Raises ValueError for a
        device outside the mesh."""
        if device_id not in self.ids:
            expected = f"a device of the {self.name} mesh, {[*self.ids]}"
            raise ValueError(f"device {device_id}: expected {expected}")
        # A scalar moves as a vector of one element, so its box has one range.
        return extents(self.box(self.ids.index(device_id)))[: len(self.local)]

    def fault(self, mesh, whole=None):
        """Return a message about the first device whose box differs from its shard in JAX's own
        sharding; "" if there is none. `whole`: the shape without the padding at its end, if any."""
        shards = self.on(mesh).devices_indices_map(self.padded).values()
        for position, shard in enumerate(shards):
            ends = (part.indices(size)[:2] for part, size in zip(shard, self.padded, strict=True))
            cut = zip(ends, whole or self.padded, strict=True)
            wanted = [(min(low, end), min(high, end)) for (low, high), end in cut]
            # An empty range may begin beyond the tensor; a scalar's box has one range.
            found = [(min(each), each[1]) for each in ranges(self.box(position))][: len(wanted)]
            if found != wanted:
                return f"device {self.ids[position]}, {self.name}: got {found}, expected {wanted}"
        return ""

    def mesh(self, mesh):
        """Return a mesh with the axes that shardings name: the given mesh if it has these axes,
        else a mesh of the same devices. Raises TypeError or ValueError for a wrong mesh."""
        if not isinstance(mesh, Mesh) or mesh.devices.size != math.prod(self.sizes):
            from .jax_callers import refuse  # only if the mesh is wrong

            refuse(self, mesh)
        return mesh if mesh.shape_tuple == self.axes else self.mesh_of(mesh.devices)

    def mesh_of(self, devices):
        """Return the mesh of devices given by position."""
        return Mesh(np.reshape(devices, self.sizes), self.names)

    def checked(self, mesh):
        """Return `mesh(mesh)` of a user's mesh. Raises ValueError also if its axes share names with
        this side's axes but differ in order or sizes."""
        found = self.mesh(mesh)
        if found is not mesh:
            from .jax_callers import refuse_axes  # only if it divides devices into other axes

            refuse_axes(self, mesh)
        return found

    def on(self, mesh, batch=0):
        """Return the sharding of the argument or result of `reshard`: the device at position i is
        mesh.devices.flat[i]. `batch`: the number of leading batch dimensions."""
        return NamedSharding(self.mesh(mesh), P(*[None] * batch, *self.spec))


def apart(x):
    """Return a context manager that unsets the current mesh, unless `x` is traced. An array
    moves on its own devices, which may differ from the devices of the user's current mesh."""
    try:
        traced = isinstance(x, jax.core.Tracer)
        return contextlib.nullcontext() if traced else jax.set_mesh(Mesh(np.empty((), object), ()))
    except ValueError:  # raised during any trace, even if `x` is a constant
        return contextlib.nullcontext()


def typed(sharding, x):
    """Constrain a program's array to this sharding, as part of its type if axes are Explicit."""
    meshes = sharding.mesh, jax.typeof(x).sharding.mesh, jax.sharding.get_abstract_mesh()
    if any(AxisType.Explicit in mesh.axis_types for mesh in meshes):
        from .jax_callers import retyped

        return retyped(x, sharding)
    return lax.with_sharding_constraint(x, sharding)


def mapped(function, mesh, in_specs, out_specs):
    """Return the function mapped over the shards of a mesh, independent of the current mesh."""
    # Drop the types of the mesh's axes, so that arrays over Auto and Explicit axes are valid.
    mesh = Mesh(mesh.devices, mesh.axis_names)
    specs = {"in_specs": in_specs, "out_specs": out_specs}
    over_shards = jax.shard_map(function, mesh=mesh, **specs, check_vma=False)

    def call(*arrays):
        with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
            return over_shards(*arrays)

    return call


def over_devices(function, given, result):
    """Return a function of global arrays that computes the result's shard on each device from the
    device's shards. `given`, `result`: the shardings of the arrays, on the same devices in the same
    order."""
    if len({each.mesh.shape_tuple for each in (*given, result)}) > 1:
        from .jax_axes import over_axes  # only if the sides divide devices into different axes

        return over_axes(mapped, function, given, result)
    return mapped(function, result.mesh, tuple(each.spec for each in given), result.spec)


def expect(x, shape, dtype, what):
    """Raise TypeError for a value that is not an array, and ValueError for a wrong shape or
    dtype."""
    if getattr(x, "dtype", None) != dtype or tuple(x.shape) != shape:
        from .jax_callers import refuse_array  # only if the array is wrong

        refuse_array(x, shape, dtype, what)
