"""Arrays in programs whose meshes have Explicit axes, which belong to an array's type."""

import jax
from jax.sharding import AxisType


def retyped(x, sharding):
    """Put the sharding into the type of an array if the sharding's mesh or the array's has
    Explicit axes; otherwise return the array unchanged."""
    if AxisType.Explicit in sharding.mesh.axis_types:
        return jax.sharding.reshard(x, sharding)
    there = AxisType.Explicit in jax.typeof(x).sharding.mesh.axis_types
    return jax.device_put(x, sharding) if there else x


def refuse_mix(context, target):
    """Raise ValueError if `context`, the mesh that is set in a traced program, differs from the
    result's mesh."""
    if context != target.abstract_mesh:
        raise ValueError(
            f"the result is on a mesh of axes {dict(target.shape)}, which a traced program "
            f"cannot mix with the Explicit axes that are set, {dict(context.shape)}: if "
            "the axes are the same, pass the mesh that is set as target_mesh; else call "
            "reshard(x, mesh) outside jit, on a concrete array, or trace without jax.set_mesh"
        )
