"""Recognise values of JAX and torch without importing either package.

A value can be an instance of a class only if the module of the class has been imported, so classes
are looked up in the imported modules.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

NAMED_SHARDING = "jax.sharding.NamedSharding"
SINGLE_DEVICE = "jax.sharding.SingleDeviceSharding"
JAX_SHARDING = "jax.sharding.Sharding"
PARTITION_SPEC = "jax.sharding.PartitionSpec"
JAX_MESH = "jax.sharding.Mesh"
ABSTRACT_MESH = "jax.sharding.AbstractMesh"
JAX_ARRAY = "jax.Array"
PLACEMENT = "torch.distributed.tensor.placement_types.Placement"
DEVICE_MESH = "torch.distributed.device_mesh.DeviceMesh"
DTENSOR = "torch.distributed.tensor.DTensor"
TORCH_DTYPE = "torch.dtype"
TORCH_TENSOR = "torch.Tensor"

_DOORS = (
    ("Sharding", NAMED_SHARDING, "of a NamedSharding: sw.from_named_sharding(named, rank)"),
    ("Sharding", PARTITION_SPEC, "of a PartitionSpec: mesh.sharding(spec, rank)"),
    ("Sharding", PLACEMENT, "of placements: sw.from_torch(device_mesh, placements, rank)"),
    ("Sharding", DTENSOR, "of a DTensor x: sw.Mesh.of(x.device_mesh).sharding(x)"),
    ("Sharding", JAX_ARRAY, "of an array x: sw.from_named_sharding(x.sharding, x.ndim)"),
    ("Mesh", JAX_MESH, "of a JAX mesh: sw.Mesh.of(mesh)"),
    ("Mesh", ABSTRACT_MESH, "of a JAX mesh: sw.Mesh.of(mesh)"),
    ("Mesh", DEVICE_MESH, "of a DeviceMesh: sw.Mesh.of(device_mesh)"),
)
"""Triples: an expected type, a type that users pass instead, and how to convert it."""


def is_a(value: object, *paths: str) -> bool:
    """Return whether a value is an instance of one of these classes. `paths`: the module and the
    name of each class, joined by a dot."""
    return any(isinstance(value, found) for path in paths for found in _class(path))


def door(value: object, wanted: Iterable[str]) -> str | None:
    """Return instructions for converting a JAX or torch value to one of the wanted types, or
    None if there is no conversion. `wanted`: the names of types."""
    kinds = set(wanted)
    first = value[0] if isinstance(value, list | tuple) and value else value
    return next(
        (way for kind, path, way in _DOORS if kind in kinds and is_a(first, path)),
        None,
    )


def _class(path: str) -> tuple[type, ...]:
    module, _, name = path.rpartition(".")
    found = getattr(sys.modules.get(module), name, None)
    return (found,) if isinstance(found, type) else ()
