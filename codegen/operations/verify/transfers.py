"""Check that a plan's transfers give every device exactly its shard, according to the definition of
a sharding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from shardwright.codegen.checks.oracle import definition as oracle
from shardwright.codegen.checks.oracle import sums as oracle_terms
from shardwright.codegen.checks.oracle.definition import Placement

if TYPE_CHECKING:
    from shardwright.ir.transfers import Transfers

Ranges = npt.NDArray[np.int64]
"""Half-open ranges, [n, rank, 2]."""


def disagreement(
    transfers: Transfers,
    source: Placement,
    target: Placement,
    shape: Sequence[int],
    *,
    transposed: bool = False,
) -> str:
    """Return the first fault in the transfers, or "".

    Senders must have the elements that they send, local ranges must match the tensor's, and the
    tiles that a device receives, for each term of its values, must be disjoint and cover its target
    shard.
    """
    sides = (
        ("sender", transfers.sender, transfers.source, source),
        ("receiver", transfers.receiver, transfers.target, target),
    )
    for role, devices, local, placement in sides:
        boxes = intervals(placement, shape)
        own = np.stack([boxes[device] for device in devices.tolist()])
        outside = (transfers.tensor[..., 0] < own[..., 0]) | (
            transfers.tensor[..., 1] > own[..., 1]
        )
        shifted = local != transfers.tensor - own[..., :1]
        for fault, where in (
            ("outside the shard", outside),
            ("at the wrong place in the shard", shifted),
        ):
            wrong = np.flatnonzero(where.reshape(len(devices), -1).any(axis=1))
            if len(wrong):
                return (
                    f"transfer {wrong[0]}: it is {fault} of the {role}, device {devices[wrong[0]]}"
                )
    made_of = oracle_terms.made_of(source, target, transposed=transposed)
    held, made = oracle_terms.terms_held(source), oracle_terms.terms_held(target)
    sent = np.array([held[device] for device in transfers.sender.tolist()])
    order = np.argsort(transfers.receiver, kind="stable")
    receivers = transfers.receiver[order]
    for device, box in intervals(target, shape).items():
        first, end = np.searchsorted(receivers, [device, device + 1])
        mine, wanted = order[first:end], made_of[made[device]]
        for term in sorted({*wanted, *sent[mine].tolist()}):
            if term not in wanted:
                return f"device {device}: it receives term {term}, which none of its values needs"
            fault = partition_fault(transfers.tensor[mine[sent[mine] == term]], box)
            if fault:
                of_term = f" of term {term}" if len(wanted) > 1 else ""
                return f"device {device}: its tiles{of_term} {fault}"
    return ""


def as_rows(transfers: Transfers) -> tuple[tuple[int, ...], ...]:
    """Return a row per transfer: its sender, its receiver, then low and high along each
    dimension."""
    count = len(transfers.sender)
    ends = transfers.tensor.reshape(count, -1)
    columns = (transfers.sender[:, None], transfers.receiver[:, None], ends)
    return tuple(map(tuple, np.concatenate(columns, axis=1).tolist()))


def intervals(placement: Placement, shape: Sequence[int]) -> dict[int, Ranges]:
    """Return every device's half-open range along each dimension, [rank, 2]."""
    result = {}
    for device, held in oracle.holdings(placement, shape).items():
        ends = [(along.start, along.stop) for along in held if isinstance(along, range)]
        result[device] = np.array(ends, dtype=np.int64).reshape(len(held), 2)
    return result


def partition_fault(tiles: Ranges, box: Ranges) -> str:
    """Return why tiles inside a box do not partition it, or ""."""
    for first in range(0, len(tiles), _AT_ONCE):
        some = tiles[first : first + _AT_ONCE]
        low = np.maximum(some[:, None, :, 0], tiles[None, :, :, 0])
        high = np.minimum(some[:, None, :, 1], tiles[None, :, :, 1])
        if np.count_nonzero((high > low).all(axis=2)) > len(some):  # each tile overlaps itself
            return "overlap"
    total = int(np.prod(box[:, 1] - box[:, 0]))
    have = int(np.prod(tiles[..., 1] - tiles[..., 0], axis=1).sum())
    return "" if have == total else f"have {have} elements of {total}"


_AT_ONCE = 256
"""The number of tiles to compare with all others in one step, which bounds memory use."""
