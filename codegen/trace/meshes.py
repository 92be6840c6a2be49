"""The meshes of a program: the mesh passed to `partition`, and other meshes of the same devices."""

from __future__ import annotations

from jax.sharding import AbstractMesh, NamedSharding

from shardwright.ir.errors import InputError
from shardwright.ir.jax_specs import from_named_sharding
from shardwright.ir.mesh import Mesh
from shardwright.ir.sharding import Sharding


class ProgramMeshes:
    """Read shardings and record their meshes. A sharding given as a string is on the first mesh."""

    def __init__(self, first: Mesh) -> None:
        self.first = first
        self.known: dict[Mesh, None] = {first: None}

    def read(self, given: Sharding | str, rank: int | None = None) -> Sharding:
        """Read a sharding, given as an object or a string. `rank`: the rank of the value; missing
        trailing dimensions are replicated.

        Raises InputError for a mesh whose devices are not the program's.
        """
        sharding = self.first.sharding(given, rank) if isinstance(given, str) else given
        if set(sharding.mesh.device_ids) != set(self.first.device_ids):
            raise InputError(
                "all meshes of a program must have the same devices",
                got=_said(sharding.mesh),
                expected=f"the devices of {_said(self.first)}",
            )
        self.known[sharding.mesh] = None
        return sharding

    def of_jax(self, named: NamedSharding, rank: int) -> Sharding:
        """Convert a JAX sharding. An abstract mesh is replaced by the first known mesh with the
        same axes.

        Raises InputError as `read` does, or if the specification is longer than the rank.
        """
        sharding = from_named_sharding(named, rank)
        if isinstance(named.mesh, AbstractMesh):
            alike = (mesh for mesh in self.known if mesh.axes == sharding.mesh.axes)
            mesh = next(alike, sharding.mesh)
            sharding = Sharding(mesh, sharding.dims, unreduced=sharding.unreduced)
        return self.read(sharding)


def _said(mesh: Mesh) -> str:
    """Format a mesh as text, with the number of its devices if the text does not list them."""
    return f"{mesh} of {mesh.size} devices" if mesh.is_iota else str(mesh)
