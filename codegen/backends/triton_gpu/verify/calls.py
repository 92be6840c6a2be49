"""Calls of an emitted reshard by all ranks, several in a row, in every way that tiles can go.

In a worker only. Between calls a caller writes source shards and reads results, as soon as each may
be: what a rank still reads or writes then, or in a later call, is found by the order of events.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from shardwright.codegen.backends.triton_gpu.verify.ranks import Rank, Ranks, every

CALLS = 4


class Way(NamedTuple):
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
    "pulled": Way(programs=1),
    "pulled, waited for later": Way(later=True),
    "pulled from where they are": Way(in_place=True, later=True),
    "pushed": Way(pushed=(True,)),
    "pushed or pulled, waited for later": Way(pushed=(True, True, False), later=True),
    "exchanged": Way("exchange", later=True),
    "exchanged in one": Way("exchange", by_pairs=False),
    "exchanged by CPUs": Way("exchange", on_gpus=False, by_pairs=False),
    "exchanged by CPUs, waited for later": Way("exchange", on_gpus=False, later=True),
}


def check_calls(module: Any) -> str:
    """Raise MismatchError for what two ranks, or two calls, do to the same bytes in no order;
    return what is checked."""
    for way in WAYS.values():
        if not any(way.pushed) or module._HOST.phases[-1].processes.pushes:
            check_way(module, way)
    return "order of ranks"


def check_way(module: Any, way: Way) -> None:
    """Check the calls of one way. Raises MismatchError."""
    ranks = Ranks(len(module._HOST.exchange.ranks), on_gpus=way.on_gpus, by_pairs=way.by_pairs)
    ranks.run(module, lambda rank: _Caller(module._HOST, rank, way).make())


class _Caller:
    """Who calls a module on a rank: two source shards and two results, in turn."""

    def __init__(self, host: Any, rank: Rank, way: Way) -> None:
        self._host, self._rank, self._way = host, rank, way
        exchange, device = host.exchange, host.exchange.ranks[rank.number]
        self._shards = self._outs = [None, None]
        if exchange.source_position(device) >= 0:
            self._shards = [
                self._tensor("the source shard", host.source_shape(device)) for _ in "ab"
            ]
        if exchange.target_position(device) >= 0:
            self._outs = [self._tensor("the result", host.target_shape(device)) for _ in "ab"]
        if way.in_place:
            self._shards = [host.symmetric_source(rank)] * 2
        self._pushed = list(self._outs)
        if any(way.pushed):
            self._pushed = [host.symmetric_result(rank, out=out) for out in self._outs]
            self._outs = [self._tensor("the result", host.target_shape(device)) for _ in "ab"]

    def _tensor(self, name: str, shape: Sequence[int]) -> Any:
        size = math.prod(shape)
        return self._rank.made(name, max(size, 1), self._host.dtype)[:size].view(shape)

    def make(self) -> None:
        """Make all calls."""
        under_way: Any = None
        for number in range(CALLS):
            under_way = self._call(number, under_way)
        self._end(CALLS - 1, under_way)

    def _call(self, number: int, under_way: Any) -> Any:
        """Make a call, and wait for the one before; return what waits for this one."""
        way, rank = self._way, self._rank
        if way.in_place:
            under_way = self._end(number - 1, under_way)
        shard = self._shards[number % 2]
        rank.said = f"the caller of rank {rank.number} before call {number}"
        if shard is not None:
            rank.note(writes=every(shard))
        rank.said = f"call {number} of rank {rank.number}"
        outs = self._pushed if way.pushed[number % len(way.pushed)] else self._outs
        made = self._host.reshard(
            shard,
            rank,
            out=outs[number % 2],
            transport=way.transport,
            programs=way.programs,
            async_op=way.later,
        )
        self._end(number - 1, under_way)
        if way.later:
            return made
        self._read(number, made)
        return None

    def _end(self, number: int, under_way: Any) -> None:
        if under_way is not None:
            self._rank.said = f"the end of call {number} of rank {self._rank.number}"
            self._read(number, under_way.wait())

    def _read(self, number: int, result: Any) -> None:
        self._rank.said = f"the caller of rank {self._rank.number} after call {number}"
        if result is not None:
            self._rank.note(reads=every(result))
