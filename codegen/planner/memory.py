"""What a device holds of a tensor, and the limit on it."""

from __future__ import annotations

import math

from shardwright.ir.errors import InputError, in_a_line
from shardwright.ir.mesh import as_integer
from shardwright.ir.reshard import Reshard


def shard_bytes(reshard: Reshard) -> tuple[int, int]:
    """Bytes of the largest source shard and of the largest target shard."""
    source, target = (
        math.prod(side.local_shape(reshard.shape)) * reshard.itemsize
        for side in (reshard.source, reshard.target)
    )
    return source, target


def check_limit(reshard: Reshard, memory_limit: int | None) -> None:
    """Raises InputError for a limit below what the source and the target shard take together."""
    if memory_limit is None:
        return
    source, target = shard_bytes(reshard)
    number = as_integer(memory_limit)
    if number is None:
        raise InputError(
            "a memory limit is a whole number of bytes",
            argument="memory_limit",
            got=in_a_line(memory_limit),
            expected=f"at least {source + target}",
        )
    if number < source + target:
        raise InputError(
            "a device holds its source and its target shard at once",
            argument="memory_limit",
            got=f"{memory_limit} bytes",
            expected=f"at least {source + target}: {source} before and {target} after",
        )
