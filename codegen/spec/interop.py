"""Convert shardings to JAX's; jax is imported at the first conversion.

The device ids of a mesh are the `id`s of jax devices. `ir/jax_specs.py` and
`ir/torch_placements.py` convert in the other direction.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from shardwright.ir.axes import AxisRef, contains
from shardwright.ir.errors import InputError, install
from shardwright.ir.mesh import Mesh
from shardwright.ir.sharding import Sharding

if TYPE_CHECKING:
    from jax import Device
    from jax.sharding import NamedSharding


def to_named_sharding(sharding: Sharding, devices: Iterable[Device] | None = None) -> NamedSharding:
    """Return the `jax.sharding.NamedSharding` that places a tensor like `sharding`.

    `devices`, by default all JAX devices, are looked up by `id`. If the sharding uses sub-axes, the
    jax mesh is refined: axis `x` becomes axes `x:(1)2`, `x:(2)2` over the same devices in the same
    order. Openness, priorities and explicit replication have no counterpart in jax and are dropped.
    """
    jax = _imported("jax", "jax", "jax")
    numpy = importlib.import_module("numpy")
    if sharding.mesh.is_empty:
        raise InputError(
            "the sharding must be on a mesh with devices; the empty mesh has none",
            got=sharding.mesh,
            expected="a sharding that is replicated on a mesh of devices",
        )
    if sharding.operator != "sum":
        raise InputError(
            "a PartitionSpec can have unreduced axes for sums only",
            got=sharding,
            expected="unreduced={…}",
        )
    pieces = sharding.mesh.refine((*sharding.used(), *sharding.unreduced))
    refined = Mesh([(_axis_name(ref), sharding.mesh.full_size(ref)) for ref in pieces])
    by_id = {device.id: device for device in (jax.devices() if devices is None else devices)}
    grid = numpy.empty(sharding.mesh.size, dtype=object)
    grid[:] = [_device(by_id, wanted) for wanted in sharding.mesh.device_ids]
    unreduced = frozenset(_names(sharding.mesh, sharding.unreduced, pieces))
    kinds = jax.sharding.AxisType  # jax requires unreduced axes to be explicit
    mesh = jax.sharding.Mesh(
        grid.reshape([size for _, size in refined.axes]),
        refined.names,
        axis_types=tuple(
            kinds.Explicit if name in unreduced else kinds.Auto for name in refined.names
        ),
    )
    entries = (_entry(_names(sharding.mesh, dim.axes, pieces)) for dim in sharding.dims)
    return jax.sharding.NamedSharding(
        mesh, jax.sharding.PartitionSpec(*entries, unreduced=unreduced)
    )


def _axis_name(ref: AxisRef) -> str:
    """Return the jax mesh's name for a piece of an axis: `x`, or `x:(1)2` for a sub-axis."""
    return str(ref).replace('"', "")


def _names(mesh: Mesh, refs: Iterable[AxisRef], pieces: Sequence[AxisRef]) -> tuple[str, ...]:
    return tuple(
        _axis_name(piece) for ref in refs for piece in pieces if contains(ref, piece, mesh.sizes)
    )


def _entry(names: tuple[str, ...]) -> str | tuple[str, ...] | None:
    """Return the PartitionSpec entry for these axes in jax's preferred form: None, a name, or a
    tuple of names."""
    return names if len(names) > 1 else names[0] if names else None


def _device(by_id: Mapping[int, Device], wanted: int) -> Device:
    if wanted in by_id:
        return by_id[wanted]
    raise InputError(
        "every device id of the mesh must be the id of a JAX device",
        argument="devices",
        got=f"no device with id {wanted} among {len(by_id)} devices",
        expected=f"ids {', '.join(map(str, sorted(by_id)))}",
    )


def _imported(module: str, package: str, extra: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != package:
            raise
        raise InputError(
            f"this conversion needs {package}, which is not installed",
            got=f"no module named {package}",
            expected=install(extra),
        ) from None
