"""Relabelling: choose the order of the target's devices that moves the fewest bytes.

The assignment of target shards to devices is often free. The overlaps of each device's source shard
with each target shard form a matrix. A linear assignment of this matrix gives the order that keeps
most elements in place, as in COSTA (arXiv 2106.06601).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from shardwright.codegen.moves.holders import Loads
from shardwright.ir.errors import InputError
from shardwright.ir.exchange import Exchange, HolderRule, ids_of, positions_of
from shardwright.ir.mesh import Mesh
from shardwright.ir.reshard import Reshard
from shardwright.ir.sharding import Sharding

# The matrix grows with the square of the number of devices. For 4096 devices it takes 128 MB, and
# the assignment takes seconds.
MOST_DEVICES = 4096


@dataclass(frozen=True)
class Relabelled:
    """The reshard to the target mesh in its new order, and the total bytes received in the old
    order and in the new one."""

    reshard: Reshard
    bytes_before: int
    bytes_after: int


def relabel(reshard: Reshard) -> Relabelled:
    """Return the reshard with the order of the target's devices that moves the fewest bytes. Keep
    the given order if no order is better.

    Raises InputError for unreduced axes, whose partial sums belong to particular devices, and for
    more than MOST_DEVICES devices.
    """
    mesh = reshard.target.mesh
    for name, side in (("source", reshard.source), ("target", reshard.target)):
        if side.unreduced:
            raise InputError(
                "devices with partial sums cannot be relabelled",
                argument=name,
                got=str(side),
                expected="no unreduced axes",
            )
    if mesh.size > MOST_DEVICES:
        raise InputError(
            "the mesh has too many devices to relabel",
            argument="relabel",
            got=f"{mesh.size} devices",
            expected=f"at most {MOST_DEVICES}",
        )
    before = _moved(reshard)
    other = _with_order(reshard, _assigned(reshard))
    after = _moved(other)
    if after >= before:
        return Relabelled(reshard, before, before)
    return Relabelled(other, before, after)


def _assigned(reshard: Reshard) -> np.ndarray:
    """Return the device id for each target position in the order that keeps most elements in
    place."""
    from scipy.optimize import linear_sum_assignment

    exchange = Exchange.of(reshard, HolderRule())
    ids = ids_of(reshard.target.mesh)
    held = positions_of(reshard.source.mesh, ids)
    own = exchange.source.boxes()[held, exchange.source.hidden :]
    wanted = exchange.target.boxes()[:, exchange.target.hidden :]
    kept = np.where(held >= 0, 1, 0)[None, :] * np.ones((ids.size, 1), dtype=np.int64)
    for dim in range(reshard.rank):
        low = np.maximum(wanted[:, None, dim, 0], own[None, :, dim, 0])
        high = np.minimum(wanted[:, None, dim, 1], own[None, :, dim, 1])
        kept *= np.maximum(high - low, 0)
    # Among equally good orders, prefer one that leaves devices in place.
    weight = 2.0 * kept + np.eye(ids.size)
    _, chosen = linear_sum_assignment(weight, maximize=True)
    order: np.ndarray = ids[chosen]
    return order


def _with_order(reshard: Reshard, ids: np.ndarray) -> Reshard:
    mesh = Mesh(reshard.target.mesh.axes, ids.tolist(), reshard.target.mesh.name)
    target = Sharding(mesh, reshard.target.dims, reshard.target.replicated)
    return replace(reshard, target=target)


def _moved(reshard: Reshard) -> int:
    """Return the bytes that all devices together lack of their target shards."""
    if reshard.source.unreduced:
        reshard = replace(reshard, source=Sharding(reshard.source.mesh, reshard.source.dims))
    return int(Loads.of(reshard).received().sum()) * reshard.itemsize
