"""Which device has what of a global array: meshes and shardings."""

import contextlib
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from .boxes import extents


class Sharded:
    """One side of a reshard: device ids by position, the box of the shard at a position, and the
    sharding of the global array. `axes`: names and sizes of the mesh refined into the sub-axes in
    use; `spec`: the sharding on these; `padded`: the shape of the global array, every shard padded
    at its ends to the largest; `terms`: whether dimension 0 stands for unreduced axes."""

    name = ""  # "source" or "target", as the host calls it
    hidden: tuple[int, ...] = ()  # its boxes number no terms beside what it gives
    new = 0

    def __init__(self, ids, box, padded, axes, spec, terms=False):
        self.ids, self.box, self.padded, self.axes = ids, box, padded, axes
        self.spec, self.terms = spec, terms
        self.names, self.sizes = zip(*axes, strict=True)
        self.local = NamedSharding(AbstractMesh(self.sizes, self.names), spec).shard_shape(padded)

    def whole(self, shape):
        """Return the shape of the logical array of a tensor of a shape."""
        return (self.padded[0], *shape) if self.terms else tuple(shape)

    def shape(self, device_id):
        """Return the exact shape of the shard on a device."""
        if device_id not in self.ids:
            expected = f"one of the {self.name} mesh, {[*self.ids]}"
            raise ValueError(f"device {device_id}: expected {expected}")
        # A scalar is moved as a vector of one element.
        return extents(self.box(self.ids.index(device_id)))[: len(self.local)]

    def slots(self, axis):
        """Return, by position, the number of the shard along a dimension."""
        names, count = self.spec[axis], math.prod(self.sizes)
        split = [self.names.index(n) for n in ((names,) if isinstance(names, str) else names or ())]
        grid = np.moveaxis(np.arange(count).reshape(self.sizes), split, range(len(split)))
        shards = math.prod(self.sizes[each] for each in split)
        return np.argsort(grid, None) // (count // shards)

    def fault(self):
        """Return where the box of a device is not its shard of an array without padding; "" if
        nowhere."""
        for axis, size in enumerate(self.local):
            for position, slot in enumerate(self.slots(axis).tolist()):
                found = self.box(position)[2 * axis : 2 * axis + 2]
                wanted = slot * size, (slot + 1) * size
                if found != wanted:
                    return self.misplaced(axis, position, found, wanted)
        return ""

    def misplaced(self, axis, position, found, wanted):
        """Return that a device has another range of a dimension than its sharding gives it."""
        where = f"device {self.ids[position]}, {self.name} shard along dimension {axis}"
        return "{}: {} to {}, by its sharding {} to {}".format(where, *found, *wanted)

    def mesh(self, mesh):
        """Return a mesh with the axes that shardings name; the given one where it has them."""
        if not isinstance(mesh, Mesh):
            got = type(mesh).__name__
            raise TypeError(f"{self.name} mesh: got {got}, expected a jax.sharding.Mesh")
        got, expected = mesh.devices.size, math.prod(self.sizes)
        if got != expected:
            raise ValueError(f"{self.name} mesh: got {got} devices, expected {expected}")
        return mesh if mesh.shape_tuple == self.axes else self.mesh_of(mesh.devices)

    def mesh_of(self, devices):
        """Return the mesh of devices by position."""
        return Mesh(np.reshape(devices, self.sizes), self.names)

    def unlike(self, mesh):
        """Return what is wrong with a mesh that has axes of these names, but in another order or of
        other sizes; "" where it has these or parts of these, and where it has none of the names: it
        then says in which order the devices are."""
        given, wanted = (_whole(axes) for axes in (mesh.shape_tuple, self.axes))
        swapped = [*given] != [*wanted] and {*given} == {*wanted}
        resized = {*given} & {*wanted} and [*given.values()] != [*wanted.values()]
        if swapped or resized:
            return f"{self.name} mesh: got axes {given}, expected {wanted}"
        return ""

    def on(self, mesh, batch=0):
        """Return how `reshard` takes its argument, or returns its result: the i-th id is that of
        mesh.devices.flat[i]. `batch`: how many dimensions it has before its own."""
        return NamedSharding(self.mesh(mesh), P(*[None] * batch, *self.spec))


def _whole(axes):
    """Return the sizes of axes whose parts may stand alone, as `x:(1)2`, but of those of one."""
    sizes: dict = {}
    for name, size in axes:
        whole = name.partition(":")[0]
        sizes[whole] = sizes.get(whole, 1) * size
    return {name: size for name, size in sizes.items() if size > 1}


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


def typed(sharding, x):
    """Return an array of a program as a sharding has it: of that type, where axes are Explicit, of
    its mesh or of another one that the array is on."""
    meshes = sharding.mesh, jax.typeof(x).sharding.mesh, jax.sharding.get_abstract_mesh()
    here, there, context = (AxisType.Explicit in mesh.axis_types for mesh in meshes)
    if here or there:
        from .jax_explicit import retyped  # where axes are Explicit

        return retyped(x, sharding, on_mesh=here)
    return x if context else lax.with_sharding_constraint(x, sharding)


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


def over_devices(function, given, result):
    """Return the function of global arrays that makes the shard of a result on each device of
    shards that it has. `given`, `result`: the shardings of the arrays, on the same devices in the
    same order."""
    first = given[0].mesh
    if all(each.mesh.shape_tuple == first.shape_tuple for each in (*given, result)):
        return mapped(function, first, tuple(each.spec for each in given), result.spec)
    from .jax_axes import over_axes  # where a side cuts devices into other axes

    return over_axes(mapped, function, given, result)


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
