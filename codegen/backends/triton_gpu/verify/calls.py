"""Calls of an emitted reshard by all ranks, several in a row, in every way that tiles can go.

In a worker only. Between calls a caller writes source shards and reads results, as soon as each may
be: what a rank still reads or writes then, or in a later call, is found by the order of events.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from shardwright.codegen.backends.triton_gpu.verify.ranks import Rank, Ranks, every

CALLS = 3
MAX_BYTES = 1 << 16
"""How many calls of each way are made, and of how large shards together."""


class Manner(NamedTuple):
    """How tiles go: out of symmetric memory or not, into it or not; `later`: whether calls are
    waited for later, the next having been started, unless that would have the same memory."""

    transport: str = "symmetric"
    on_gpus: bool = True
    by_pairs: bool = True
    in_place: bool = False
    pushed: tuple[bool, ...] = (False,)
    later: bool = False
    programs: int | None = None


WAYS = {
    "pulled": Manner(programs=1),
    "pulled, waited for later": Manner(later=True),
    "pulled from where they are": Manner(in_place=True, later=True),
    "pushed": Manner(pushed=(True,)),
    "pushed or pulled, waited for later": Manner(pushed=(True, True, False), later=True),
    "exchanged": Manner("exchange", later=True),
    "exchanged in one": Manner("exchange", by_pairs=False),
    "exchanged by CPUs": Manner("exchange", on_gpus=False),
    "exchanged by CPUs, waited for later": Manner("exchange", on_gpus=False, later=True),
}


def check_calls(module: Any) -> tuple[str, ...]:
    """Raise MismatchError for what two ranks, or two calls, do to the same bytes in no order;
    return what is checked: nothing of a module without calls (`reshard` is None), and of shards too
    large to be watched byte by byte."""
    if module.reshard is None or _bytes(module._HOST) > MAX_BYTES:
        return ()
    for way in WAYS.values():
        if not any(way.pushed) or module._HOST.phases[-1].processes.pushes:
            check_way(module, way)
    return ("order of ranks",)


def _bytes(host: Any) -> int:
    """Return how many bytes all shards have."""
    exchange = host.exchange
    shapes = [host.source_shape(device) for device in exchange.source.ids]
    shapes += [host.target_shape(device) for device in exchange.target.ids]
    return sum(map(math.prod, shapes)) * int(host.dtype.itemsize)


def check_way(module: Any, way: Manner) -> None:
    """Check the calls of one way. Raises MismatchError."""
    ranks = Ranks(len(module._HOST.exchange.ranks), on_gpus=way.on_gpus, by_pairs=way.by_pairs)
    ranks.run(module, lambda rank: _Caller(module._HOST, rank, way).make())


class _Caller:
    """Who calls a module on a rank: always with the same source shard and result, or where calls
    are waited for later, with two of each in turn."""

    def __init__(self, host: Any, rank: Rank, way: Manner) -> None:
        self._host, self._rank, self._way = host, rank, way
        self._under_way: Any = None
        exchange, device = host.exchange, host.exchange.ranks[rank.number]
        count = 1 + way.later
        self._shards: list[Any] = [None] * count
        self._outs = self._shards
        if exchange.source_position(device) >= 0:
            self._shards = [
                self._tensor("the source shard", host.source_shape(device)) for _ in range(count)
            ]
        if exchange.target_position(device) >= 0:
            self._outs = [
                self._tensor("the result", host.target_shape(device)) for _ in range(count)
            ]
        if way.in_place:
            self._shards = [host.symmetric_source(rank)] * count
        self._pushed = list(self._outs)
        if any(way.pushed):
            self._pushed = [host.symmetric_result(rank, out=out) for out in self._outs]
            self._outs = [
                self._tensor("the result", host.target_shape(device)) for _ in range(count)
            ]

    def _tensor(self, name: str, shape: Sequence[int]) -> Any:
        size = math.prod(shape)
        return self._rank.made(name, max(size, 1), self._host.dtype)[:size].view(shape)

    def make(self) -> None:
        """Make all calls; each ends once the next has been started."""
        for number in range(CALLS):
            if self._way.in_place:
                self._end(number - 1)
            made = self._call(number)
            self._end(number - 1)
            if self._way.later:
                self._under_way = made
            else:
                self._read(number, made)
        self._end(CALLS - 1)

    def _call(self, number: int) -> Any:
        """Write the source shard, and make a call."""
        way, rank, shard = self._way, self._rank, self._shards[number % len(self._shards)]
        rank.said = f"the caller of rank {rank.number} before call {number}"
        if shard is not None:
            rank.note(writes=every(shard))
        rank.said = f"call {number} of rank {rank.number}"
        outs = self._pushed if way.pushed[number % len(way.pushed)] else self._outs
        return self._host.reshard(
            shard,
            rank,
            out=outs[number % len(outs)],
            transport=way.transport,
            programs=way.programs,
            async_op=way.later,
        )

    def _end(self, number: int) -> None:
        """Wait for a call, if it is under way."""
        work, self._under_way = self._under_way, None
        if work is not None:
            self._rank.said = f"the end of call {number} of rank {self._rank.number}"
            self._read(number, work.wait())

    def _read(self, number: int, result: Any) -> None:
        self._rank.said = f"the caller of rank {self._rank.number} after call {number}"
        if result is not None:
            self._rank.note(reads=every(result))
