"""Shardings of JAX: a mesh and a PartitionSpec on it. JAX is not imported.

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
    """The content of a PartitionSpec: the axes that split each dimension (None if UNCONSTRAINED),
    the unreduced axes, and `text`, its printed form.

    Its `reduced` axes place a gradient, not the tensor, and are ignored.
    """

    dims: tuple[tuple[str, ...] | None, ...]
    unreduced: tuple[str, ...]
    text: str

    @staticmethod
    def of(spec: Any) -> Spec:
        """Return the content of a `jax.sharding.PartitionSpec`."""
        dims = tuple(_axes(entry, type(spec).UNCONSTRAINED) for entry in spec.partitions)
        whole = ((),) * (len(spec) - len(dims))  # partitions end at the last split dimension
        return Spec((*dims, *whole), tuple(sorted(spec.unreduced)), str(spec))

    def sharding(self, mesh: Mesh, rank: int) -> Sharding:
        """Return the sharding of a tensor on a mesh; its rank may exceed the length of the spec.

        An UNCONSTRAINED dimension is open.
        """
        if len(self.dims) > rank:
            raise InputError(
                "a PartitionSpec must not be longer than the rank of the tensor",
                got=f"{self.text} for rank {rank}",
                expected=f"at most {rank} entries",
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
    """Return the sharding of a `jax.sharding.NamedSharding` for a tensor of a rank.

    A dimension that is UNCONSTRAINED is open. `reduced` axes of the spec place a gradient, not the
    tensor, and are ignored.
    """
    return Spec.of(named.spec).sharding(mesh_of_jax(named.mesh), rank)


def mesh_of_jax(mesh: Any) -> Mesh:
    """Return a JAX mesh by its device ids; an abstract mesh gets devices 0, 1, 2, …"""
    ids = None if is_a(mesh, ABSTRACT_MESH) else [device.id for device in mesh.devices.flat]
    return Mesh(zip(mesh.axis_names, mesh.axis_sizes, strict=True), ids)
