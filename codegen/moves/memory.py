"""The bytes of a tensor that a device holds during a reshard, and the limit on them."""

from __future__ import annotations

import math

from shardwright.ir.errors import InputError, in_a_line
from shardwright.ir.mesh import as_integer
from shardwright.ir.reshard import Reshard


def shard_bytes(reshard: Reshard) -> tuple[int, int]:
    """Return the bytes of the largest source shard and of the largest target shard."""
    source, target = (
        math.prod(side.local_shape(reshard.shape)) * reshard.itemsize
        for side in (reshard.source, reshard.target)
    )
    return source, target


def terms_bytes(reshard: Reshard) -> int:
    """Return the bytes of all partial sums of a target shard, which a device receives in an
    exchange before it reduces them. Return 0 if the reshard reduces nothing."""
    if not reshard.adds:
        return 0
    mesh = reshard.source.mesh
    return shard_bytes(reshard)[1] * math.prod(map(mesh.full_size, reshard.fate.reduced))


def held_at_once(reshard: Reshard, terms: int = 0) -> int:
    """Return the minimum bytes that a device holds at once in any plan: its source shard and its
    target shard, or the larger of them if no device has both. `terms`: bytes that arrive in
    addition to the target shard."""
    source, target = shard_bytes(reshard)
    shared = set(reshard.source.mesh.device_ids) & set(reshard.target.mesh.device_ids)
    return source + terms + target if shared else max(source, terms + target)


def held_in_exchange(reshard: Reshard) -> int:
    """Return the bytes that a device holds in a single exchange: both shards, and the partial sums
    that arrive."""
    return held_at_once(reshard, terms_bytes(reshard))


def beyond_limit(memory_limit: int, least: int) -> InputError:
    """Return the error for a limit that is too small to reduce partial sums. `least`: the
    smallest sufficient limit."""
    return InputError(
        "a device cannot hold both shards and the terms that arrive in the exchange",
        argument="memory_limit",
        got=f"{memory_limit} bytes",
        expected=f"at least {least}, or the backend jax_xla, whose collectives reduce terms",
    )


def check_limit(reshard: Reshard, memory_limit: int) -> None:
    """Raise InputError if a limit is not an integer, or is smaller than the shards that a device
    must hold at once (`held_at_once`)."""
    source, target = shard_bytes(reshard)
    least = held_at_once(reshard)
    number = as_integer(memory_limit)
    if number is None:
        raise InputError(
            "a memory limit must be a whole number of bytes",
            argument="memory_limit",
            got=in_a_line(memory_limit),
            expected=f"at least {least}",
        )
    if number < least:
        both = " and target shards at once" if least == source + target else " or its target shard"
        raise InputError(
            f"a device cannot hold its source{both}",
            argument="memory_limit",
            got=f"{memory_limit} bytes",
            expected=f"at least {least}: {source} before and {target} after",
        )
