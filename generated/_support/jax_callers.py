"""Calls that are not plain: wrong arrays and meshes, meshes with Explicit axes, and a mesh that is
current, set by `jax.set_mesh`, by an enclosing `shard_map`, or by JAX for arrays whose mesh has
Explicit axes."""

import math

import jax
from jax.sharding import AxisType, Mesh


def refuse_array(x, shape, dtype, what):
    """Raise TypeError for a value that is not an array, and ValueError for an array that is not of
    a shape and dtype."""
    dtype_of = getattr(x, "dtype", None)
    if dtype_of is None:
        got = type(x).__name__
        raise TypeError(f"{what}: got {got}, expected an array of {shape} of {dtype}")
    raise ValueError(f"{what}: got {tuple(x.shape)} of {dtype_of}, expected {shape} of {dtype}")


def refuse(side, mesh):
    """Raise TypeError for a value that is not a mesh, and ValueError for a mesh whose number of
    devices is not that of a reshard's side."""
    if not isinstance(mesh, Mesh):
        got = type(mesh).__name__
        raise TypeError(f"{side.name} mesh: got {got}, expected a jax.sharding.Mesh")
    got, expected = mesh.devices.size, math.prod(side.sizes)
    raise ValueError(f"{side.name} mesh: got {got} devices, expected {expected}")


def refuse_axes(side, mesh):
    """Raise ValueError if the axes of a mesh share names with a side's axes but differ in order or
    sizes."""
    given, wanted = (_whole(axes) for axes in (mesh.shape_tuple, side.axes))
    swapped = [*given] != [*wanted] and {*given} == {*wanted}
    resized = {*given} & {*wanted} and [*given.values()] != [*wanted.values()]
    if swapped or resized:
        raise ValueError(f"{side.name} mesh: got axes {given}, expected {wanted}")


def refuse_order(mesh, target_mesh):
    """Raise ValueError for two meshes that do not list the same devices in the same order."""
    got, expected = ([each.id for each in m.devices.flat] for m in (target_mesh, mesh))
    both = f"{got}, expected {expected}, the devices of mesh in the same order"
    raise ValueError(f"target_mesh: got devices {both}")


def _whole(axes):
    """Return the size of each axis, merging its sub-axes (such as `x:(1)2`) and omitting axes of
    size 1."""
    sizes: dict = {}
    for name, size in axes:
        whole = name.partition(":")[0]
        sizes[whole] = sizes.get(whole, 1) * size
    return {name: size for name, size in sizes.items() if size > 1}


def check_current(host, x, mesh, target_mesh):
    """Raise ValueError if `reshard` of a host cannot run under the current mesh."""
    not_mapped("reshard")
    current = jax.sharding.get_abstract_mesh()
    one_program = tuple(host.source.ids) == tuple(host.target.ids)
    if not one_program or not isinstance(x, jax.core.Tracer):
        return
    _, target = host.meshes(mesh, target_mesh)
    if AxisType.Explicit in current.axis_types and current != target.abstract_mesh:
        raise ValueError(
            f"the result is on a mesh of axes {dict(target.shape)}, which a traced program "
            f"cannot mix with the Explicit axes that are set, {dict(current.shape)}: if "
            "the axes are the same, pass the mesh that is set as target_mesh; else call "
            "reshard(x, mesh) outside jit, on a concrete array, or trace without jax.set_mesh"
        )


def not_mapped(what):
    """Raise ValueError if called inside a shard_map, where arrays are shards."""
    manual = jax.sharding.get_abstract_mesh().manual_axes
    if manual:
        raise ValueError(
            f"{what} inside a shard_map over {', '.join(manual)}: it takes global arrays, and maps "
            "over shards itself; call it outside, before or after the shard_map"
        )


def retyped(x, sharding):
    """Put the sharding into the type of an array if the sharding's mesh or the array's has
    Explicit axes; otherwise return the array unchanged."""
    if AxisType.Explicit in sharding.mesh.axis_types:
        return jax.sharding.reshard(x, sharding)
    there = AxisType.Explicit in jax.typeof(x).sharding.mesh.axis_types
    return jax.device_put(x, sharding) if there else x
