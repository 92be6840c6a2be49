"""Read the shardings of JAX: a mesh and a PartitionSpec on it. JAX is not imported.

The device ids of a mesh are the `id`s of JAX devices.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shardwright.ir.axes import AxisRef
from shardwright.ir.errors import InputError
from shardwright.ir.foreign import ABSTRACT_MESH, is_a
from shardwright.ir.mesh import Mesh
from shardwright.ir.sharding import DimSharding, Sharding

if TYPE_CHECKING:
    from jax.sharding import NamedSharding


@dataclass(frozen=True)
class Spec:
    """The content of a PartitionSpec.

    Its `reduced` axes are ignored, because they concern the gradient of the tensor.
    """

    dims: tuple[tuple[str, ...] | None, ...]  # the axes of each dimension; None: UNCONSTRAINED
    unreduced: tuple[str, ...]  # the names of the unreduced axes
    text: str  # the printed form of the PartitionSpec

    @staticmethod
    def of(spec: Any) -> Spec:
        """Return the content of a `jax.sharding.PartitionSpec`."""
        dims = tuple(_axes(entry, type(spec).UNCONSTRAINED) for entry in spec.partitions)
        whole = ((),) * (len(spec) - len(dims))  # JAX drops trailing unsplit dimensions
        return Spec((*dims, *whole), tuple(sorted(spec.unreduced)), str(spec))

    def sharding(self, mesh: Mesh, rank: int) -> Sharding:
        """Convert the spec to a sharding on a mesh for a tensor of rank `rank`.

        Dimensions beyond the spec are not split. An UNCONSTRAINED dimension is open. Raises
        InputError for a spec longer than the rank.
        """
        if len(self.dims) > rank:
            raise InputError(
                "a PartitionSpec must not be longer than the rank of the tensor",
                got=f"{self.text} for rank {rank}",
                expected=f"a length of at most {rank}",
            )
        dims = tuple(
            DimSharding(open=True) if axes is None else DimSharding(tuple(map(AxisRef, axes)))
            for axes in self.dims
        )
        missing = (DimSharding(),) * (rank - len(dims))
        unreduced = tuple(map(AxisRef, self.unreduced))
        return Sharding(mesh, (*dims, *missing), unreduced=unreduced)


def _axes(entry: Any, unconstrained: object) -> tuple[str, ...] | None:
    if entry is unconstrained:
        return None
    return () if entry is None else (entry,) if isinstance(entry, str) else tuple(entry)


def from_named_sharding(named: NamedSharding, rank: int) -> Sharding:
    """Convert a `jax.sharding.NamedSharding` to a sharding for a tensor of rank `rank`.

    An UNCONSTRAINED dimension is open. The `reduced` axes of the spec are ignored, because they
    concern the gradient of the tensor. Raises InputError for a spec longer than the rank.
    """
    return Spec.of(named.spec).sharding(mesh_of_jax(named.mesh), rank)


def mesh_of_jax(mesh: Any) -> Mesh:
    """Return the mesh with the axes and device ids of a JAX mesh. An abstract mesh gets the device
    ids 0, 1, 2, …"""
    ids = None if is_a(mesh, ABSTRACT_MESH) else [device.id for device in mesh.devices.flat]
    return Mesh(zip(mesh.axis_names, mesh.axis_sizes, strict=True), ids)
