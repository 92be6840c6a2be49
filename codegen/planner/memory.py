"""What a device holds of a tensor, and the limit on it."""

from __future__ import annotations

import math

from shardwright.ir.errors import InputError, in_a_line
from shardwright.ir.mesh import as_integer
from shardwright.ir.reshard import Reshard


def shard_bytes(reshard: Reshard) -> tuple[int, int]:
    """Return bytes of the largest source shard and of the largest target shard."""
    source, target = (
        math.prod(side.local_shape(reshard.shape)) * reshard.itemsize
        for side in (reshard.source, reshard.target)
    )
    return source, target


def held_at_once(reshard: Reshard) -> int:
    """Return bytes that a device holds at least: both shards, where any device has one of each."""
    shared = set(reshard.source.mesh.device_ids) & set(reshard.target.mesh.device_ids)
    return sum(shard_bytes(reshard)) if shared else max(shard_bytes(reshard))


def check_limit(reshard: Reshard, memory_limit: int) -> None:
    """Raise InputError for a limit below what a device holds before and after."""
    source, target = shard_bytes(reshard)
    least = held_at_once(reshard)
    number = as_integer(memory_limit)
    if number is None:
        raise InputError(
            "a memory limit is a whole number of bytes",
            argument="memory_limit",
            got=in_a_line(memory_limit),
            expected=f"at least {least}",
        )
    if number < least:
        both = " and its target shard at once" if least == source + target else " or target shard"
        raise InputError(
            f"a device holds its source{both}",
            argument="memory_limit",
            got=f"{memory_limit} bytes",
            expected=f"at least {least}: {source} before and {target} after",
        )
