"""The reshard equivalent to a gather followed by a slice, as input for `emit`."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from shardwright.codegen.audit.tiling import HloTiling
from shardwright.codegen.moves.xla_cost import digits_of
from shardwright.codegen.spec.hlo.text import HloArray
from shardwright.ir.errors import InputError
from shardwright.ir.mesh import Mesh
from shardwright.ir.refs import refs_of
from shardwright.ir.reshard import Reshard
from shardwright.ir.sharding import Sharding

_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def reshard_between(
    before: HloTiling, after: HloTiling, array: HloArray, mesh: Mesh | None
) -> Reshard | None:
    """Return the reshard from one tiling of an array to another, or None if mesh axes cannot
    express both tilings.

    If several groups of devices reshard independently, return the reshard of the first group.
    """
    devices = _within(before, after)
    places = list(range(len(before.tiles)))
    if mesh is not None and devices == places:
        where = mesh
        ids = [int(device) for device in mesh.device_ids]
    else:
        where, ids = Mesh({"d": len(devices)}, devices), places
    moved = [HloTiling(each.counts, _by_id(each, ids)) for each in (before, after)]
    listed = [int(device) for device in where.device_ids]
    source, target = (each.sharding(where, listed) for each in moved)
    if source is None or target is None:
        return None
    if where is not mesh:
        source, target = _renamed(source, target)
    try:
        return Reshard(array.shape, array.dtype, source, target)
    except InputError:
        return None


def _by_id(tiling: HloTiling, ids: list[int]) -> tuple[int, ...]:
    """Return the tile of each device, by device id. `ids`: the device id at each position."""
    tiles = [0] * (1 + max(ids))
    for place, device in enumerate(ids):
        tiles[device] = tiling.tiles[place]
    return tuple(tiles)


def _within(before: HloTiling, after: HloTiling) -> list[int]:
    """Return the devices of a reshard: all, or the first of several equal groups."""
    devices = range(len(before.tiles))
    kept: dict[int, set[int]] = {}
    for device in devices:
        kept.setdefault(before.tiles[device], set()).add(after.tiles[device])
    if any(len(tiles) > 1 for tiles in kept.values()):
        return list(devices)
    first: dict[int, int] = {}
    for device in devices:
        first.setdefault(before.tiles[device], device)
    return sorted(first.values())


def _renamed(source: Sharding, target: Sharding) -> tuple[Sharding, Sharding]:
    """Move two shardings to a mesh that has one axis, named by a letter, for each sub-axis that
    they use."""
    mesh = source.mesh
    try:
        pieces = mesh.refine((*source.used(), *target.used()))
    except InputError:
        return source, target
    if len(pieces) > len(_LETTERS):
        return source, target
    names = {str(ref): _LETTERS[number] for number, ref in enumerate(pieces)}
    sizes = {names[str(ref)]: mesh.full_size(ref) for ref in pieces}
    finer = Mesh(sizes, mesh.device_ids)
    first, second = (finer.sharding(_hlo(each), len(each.dims)) for each in (source, target))
    return first, second


def _hlo(sharding: Sharding) -> str:
    mesh = sharding.mesh
    ids = np.array(list(mesh.device_ids))
    places = np.arange(mesh.size)
    number = np.zeros(mesh.size, dtype=np.int64)
    counts = []
    for dim in sharding.dims:
        counts.append(1)
        for ref in dim.axes:
            digit = mesh.digit(ref)
            number = number * digit.size + places // digit.stride % digit.size
            counts[-1] *= digit.size
    order = np.argsort(number, kind="stable")
    copies = mesh.size // max(1, int(np.prod(counts)))
    listed = ",".join(map(str, ids[order].tolist()))
    grid = ",".join(map(str, (*counts, copies)))
    return f"{{devices=[{grid}]{listed} last_tile_dim_replicate}}"


def axes_of(groups: list[list[int]], mesh: Mesh) -> str | None:
    """Return the axes along which the members of every group differ, as `x, y`, or None if groups
    are not a product of axes.

    The numbers in groups are positions in the program's device order, which is also the mesh's.
    """
    if any(len(group) == 1 for group in groups):
        return "" if all(len(group) == 1 for group in groups) else None
    if {member for group in groups for member in group} != set(range(mesh.size)):
        return None
    digits = digits_of(groups, mesh.size)
    refs = None if digits is None else refs_of(mesh, tuple(reversed(digits)))
    if refs is None:
        return None
    return ", ".join(re.sub(r'"', "", str(ref)) for ref in refs)


def faults_of(groups: list[list[int]], devices: int) -> str:
    """Describe the first fault in groups of devices, or return ""."""
    members = [member for group in groups for member in group]
    if beyond := sorted({member for member in members if not 0 <= member < devices}):
        return f"device {beyond[0]} is not one of the program's {devices}"
    if twice := sorted({member for member in members if members.count(member) > 1}):
        return f"device {twice[0]} is in two groups"
    if lacking := sorted(set(range(devices)) - set(members)):
        return f"device {lacking[0]} is in no group"
    if len(sizes := sorted({*map(len, groups)})) > 1:
        return f"groups of {' and of '.join(map(str, sizes))} devices"
    return ""


def moved_along(pairs: Iterable[list[int]], mesh: Mesh) -> str:
    """Return the axes along which the senders and receivers of a permute differ, or "" if a number
    is not a position in the mesh."""
    sizes = [size for _, size in mesh.axes]
    named: set[str] = set()
    for pair in pairs:
        if max(pair) >= mesh.size:
            return ""
        ends = [np.unravel_index(device, sizes) for device in pair]
        named |= {name for name, a, b in zip(mesh.names, *ends, strict=True) if a != b}
    return ", ".join(name for name in mesh.names if name in named)


def permute_faults_of(pairs: list[list[int]], devices: int) -> str:
    """Describe the first fault in the pairs of a permute, or return ""."""
    members = [device for pair in pairs for device in pair]
    if beyond := sorted({device for device in members if not 0 <= device < devices}):
        return f"device {beyond[0]} is not one of the program's {devices}"
    for side, does in ((0, "sends"), (1, "receives")):
        ends = [pair[side] for pair in pairs]
        if twice := sorted({device for device in ends if ends.count(device) > 1}):
            return f"device {twice[0]} {does} twice"
    return ""
