"""Shardings from and to the shardings of jax and of torch.

Neither is imported before a conversion needs it. In both directions the device ids of a mesh are
the `id`s of jax devices, or the ranks of torch processes.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from shardwright.ir.axes import AxisRef, between, contains
from shardwright.ir.errors import InputError
from shardwright.ir.mesh import Mesh
from shardwright.ir.sharding import OPERATORS, DimSharding, Operator, Sharding

if TYPE_CHECKING:
    from jax import Device
    from jax.sharding import NamedSharding
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor.placement_types import Placement


def from_named_sharding(named: NamedSharding, rank: int) -> Sharding:
    """Return the sharding of a `jax.sharding.NamedSharding` for a tensor of a rank.

    A dimension that is UNCONSTRAINED is open. `reduced` axes of the spec say how a gradient is
    placed, not how the tensor is, and are passed over.
    """
    spec = named.spec
    partitions = tuple(spec.partitions)
    if len(partitions) > rank:
        raise InputError(
            "a PartitionSpec must not be longer than the rank of the tensor",
            got=f"{spec} for rank {rank}",
            expected=f"at most {rank} entries",
        )
    mesh = mesh_of_jax(named.mesh)
    dims = tuple(_from_entry(entry, spec) for entry in partitions)
    unreduced = tuple(AxisRef(name) for name in mesh.names if name in spec.unreduced)
    missing = (DimSharding(),) * (rank - len(dims))
    return Sharding(mesh, (*dims, *missing), unreduced=unreduced)


def mesh_of_jax(mesh: Any) -> Mesh:
    """Return a jax mesh by its device ids; an abstract mesh stands for devices 0, 1, 2, …"""
    abstract = type(mesh).__name__ == "AbstractMesh"
    device_ids = None if abstract else [device.id for device in mesh.devices.flat]
    return Mesh(zip(mesh.axis_names, mesh.axis_sizes, strict=True), device_ids)


def _from_entry(entry: Any, spec: Any) -> DimSharding:
    if entry is None:
        return DimSharding()
    if entry is type(spec).UNCONSTRAINED:
        return DimSharding(open=True)
    names = (entry,) if isinstance(entry, str) else tuple(entry)
    return DimSharding(tuple(map(AxisRef, names)))


def to_named_sharding(sharding: Sharding, devices: Iterable[Device] | None = None) -> NamedSharding:
    """Return the `jax.sharding.NamedSharding` that places a tensor like `sharding`.

    `devices` (all of jax's by default) are found by their `id`. Where sub-axes are used, the jax
    mesh is refined: axis `x` becomes axes `x:(1)2`, `x:(2)2` over the same devices in the same
    order. Openness, priorities and explicit replication have no counterpart and are left out.
    """
    jax = _imported("jax", "jax", "jax")
    numpy = importlib.import_module("numpy")
    if sharding.mesh.is_empty:
        raise InputError(
            "a jax mesh has devices, and the empty mesh none of its own",
            got=sharding.mesh,
            expected="a sharding on a mesh of devices, replicated on them",
        )
    if sharding.operator != "sum":
        raise InputError(
            "a PartitionSpec has unreduced axes for sums only",
            got=sharding,
            expected="unreduced={…}",
        )
    pieces = sharding.mesh.refine((*sharding.used(), *sharding.unreduced))
    refined = Mesh([(_axis_name(ref), sharding.mesh.full_size(ref)) for ref in pieces])
    by_id = {device.id: device for device in (jax.devices() if devices is None else devices)}
    grid = numpy.empty(sharding.mesh.size, dtype=object)
    grid[:] = [_device(by_id, wanted) for wanted in sharding.mesh.device_ids]
    unreduced = frozenset(_names(sharding.mesh, sharding.unreduced, pieces))
    kinds = jax.sharding.AxisType  # jax wants unreduced axes to be explicit ones
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
    """Return what the jax mesh calls a piece of an axis: `x`, or `x:(1)2` if it is a sub-axis."""
    return str(ref).replace('"', "")


def _names(mesh: Mesh, refs: Iterable[AxisRef], pieces: Sequence[AxisRef]) -> tuple[str, ...]:
    """Return the names of the pieces that references are made of, major to minor."""
    return tuple(
        _axis_name(piece) for ref in refs for piece in pieces if contains(ref, piece, mesh.sizes)
    )


def _entry(names: tuple[str, ...]) -> str | tuple[str, ...] | None:
    """Return an entry of a PartitionSpec in the form jax itself prefers."""
    return names if len(names) > 1 else names[0] if names else None


def _device(by_id: Mapping[int, Device], wanted: int) -> Device:
    if wanted in by_id:
        return by_id[wanted]
    raise InputError(
        "every device id of the mesh must be the id of a jax device",
        argument="devices",
        got=f"no device with id {wanted} among {len(by_id)} devices",
        expected=f"ids {', '.join(map(str, sorted(by_id)))}",
    )


def from_torch(device_mesh: DeviceMesh, placements: Sequence[Placement], rank: int) -> Sharding:
    """Return the sharding of a torch DTensor: `Shard`, `Replicate`, and `Partial` as an unreduced
    axis of its operator (sum, max or min, one for all axes); `_StridedShard`, by which FSDP shards
    what is sharded already, as an axis that is more minor than axes after it.

    torch cuts extents that do not divide chunk by chunk, so a reshard of such a tensor names the
    split `nested`. (Where the split factor of a strided placement is that of several axes, or of a
    part of one, torch's shards are those of no split unless the extent divides.) Mesh dimensions
    without names become `dim_0`, `dim_1`, …
    """
    mesh = _from_device_mesh(device_mesh)
    if len(placements) != len(mesh.axes):
        raise InputError(
            "there must be one placement for each dimension of the device mesh",
            argument="placements",
            got=f"{len(placements)} placements",
            expected=str(len(mesh.axes)),
        )
    axes: list[list[AxisRef]] = [[] for _ in range(rank)]
    unreduced: list[AxisRef] = []
    operators: dict[Operator, str] = {}  # with the name of an axis that has it
    types = _imported("torch.distributed.tensor.placement_types", "torch", "gpu")
    # From the last placement, which is of the most minor axis, unless later ones are strided.
    for name, placement in reversed(list(zip(mesh.names, placements, strict=True))):
        if type(placement) is types.Shard:
            axes[_dim(placement.dim, rank)].insert(0, AxisRef(name))
        elif type(placement) is types._StridedShard:
            dim = _dim(placement.dim, rank)
            axes[dim] = _strided(mesh, axes[dim], name, placement)
        elif type(placement) is types.Partial and placement.reduce_op in OPERATORS:
            unreduced.append(AxisRef(name))
            operators[placement.reduce_op] = name
        elif type(placement) is not types.Replicate:
            raise InputError(
                "a placement must be one this representation has",
                argument="placements",
                got=f"{placement!r} along {name}",
                expected="Shard(dim), Replicate() or Partial of sum, max or min",
            )
    if len(operators) > 1:
        raise InputError(
            "all unreduced axes of a sharding have one operator",
            argument="placements",
            got=" and ".join(f"{name} along {operators[name]}" for name in sorted(operators)),
            expected="Partial of one operator",
        )
    dims = tuple(DimSharding(tuple(refs)) for refs in axes)
    return Sharding(mesh, dims, (), tuple(unreduced), next(iter(operators), "sum"))


def _strided(mesh: Mesh, refs: list[AxisRef], name: str, placement: Any) -> list[AxisRef]:
    """Return the axes of a dimension with one more, after the major-most ones, or parts of them,
    that make as many shards as the placement's split factor says."""
    left, before, after = int(placement.split_factor), list[AxisRef](), list(refs)
    while left > 1 and after:
        first = after.pop(0)
        size, pre = mesh.full_size(first), first.pre or 1
        cut = math.gcd(left, size)
        if cut < size and cut < left:
            break
        left //= cut
        whole = mesh.axis_size(first.name)
        before.append(between(first.name, pre, pre * cut, whole))
        if cut < size:
            after.insert(0, between(first.name, pre * cut, pre * size, whole))
    if left == 1:
        return [*before, AxisRef(name), *after]
    count = math.prod(map(mesh.full_size, refs))
    raise InputError(
        "the shards of a strided placement must be cut by the placements after it",
        argument="placements",
        got=f"{placement!r} along {name}, before placements that make {count} shards",
        expected="a split factor of as many shards as some of the major ones make",
    )


def _from_device_mesh(device_mesh: DeviceMesh) -> Mesh:
    ranks = device_mesh.mesh
    names = device_mesh.mesh_dim_names or [f"dim_{i}" for i in range(ranks.ndim)]
    return Mesh(zip(names, ranks.shape, strict=True), ranks.flatten().tolist())


def _dim(dim: int, rank: int) -> int:
    if -rank <= dim < rank:
        return dim % rank
    raise InputError(
        "a placement must shard a dimension of the tensor",
        argument="placements",
        got=f"Shard(dim={dim})",
        expected=f"a dimension of a tensor of rank {rank}",
    )


def _imported(module: str, package: str, extra: str) -> Any:
    """Return a module of an optional package; an InputError that names the extra if it is
    missing."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != package:
            raise
        raise InputError(
            f"this conversion needs {package}, which is not installed",
            got=f"no module named {package}",
            expected=f"pip install 'shardwright[{extra}]'",
        ) from None
