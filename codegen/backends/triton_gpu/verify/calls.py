"""Successive calls of an emitted reshard by all ranks, by every transport of tiles.

Used in workers only. Between calls a caller writes source shards and reads results as early as
allowed: conflicting accesses of a rank, then or in a later call, are found from the order of
events, and wrong elements from their values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from shardwright.codegen.backends.triton_gpu.verify.ranks import Rank, Ranks
from shardwright.codegen.backends.triton_gpu.verify.stand_ins import StandIns
from shardwright.codegen.backends.triton_gpu.verify.values import Values
from shardwright.codegen.checks.compare import MismatchError

CALLS = 3
"""Calls made in each way."""


class Manner(NamedTuple):
    """A way to call a module. `in_place`, `pushed`: whether it reads from, and each call writes to,
    symmetric memory; `later`: whether calls are awaited after the next one has started, unless
    that would share memory; `kernels`: the number of ranks whose kernel copies listed rows;
    `calls`: the number of calls."""

    transport: str = "symmetric"
    on_gpus: bool = True
    by_pairs: bool = True
    in_place: bool = False
    pushed: tuple[bool, ...] = (False,)
    later: bool = False
    programs: int | None = None
    kernels: int = 0
    calls: int = CALLS


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
    "exchanged by the kernel": Manner("exchange", on_gpus=False, programs=1, kernels=2, calls=1),
}
UNWATCHED = "pulled", "pushed", "exchanged in one", "exchanged by CPUs"
"""The ways for larger shards, of which only values are compared."""


def check_calls(module: Any, values: Values, *, noted: bool, interpreted: bool = True) -> None:
    """Make calls by all transports. Raises MismatchError for wrong values and, if accesses are
    recorded, for unordered conflicting accesses of two ranks or calls.

    `interpreted`: whether this process interprets kernels; otherwise transports with kernels are
    skipped.
    """
    for name, way in WAYS.items():
        shares = way.in_place or any(way.pushed)
        pushes = not any(way.pushed) or "push" in module._HOST.phases[-1].features
        lacks = shares and "symmetric_source" not in module.__all__
        runs = (interpreted or not way.kernels) and pushes and not lacks
        later = way.later and "async" in module._HOST.features
        if runs and (noted or name in UNWATCHED):
            check_way(module, values, way._replace(later=later), noted=noted)


def check_way(module: Any, values: Values, way: Manner, *, noted: bool = True) -> None:
    """Check the calls by one transport. Raises MismatchError."""
    ranks = Ranks(len(module._HOST.exchange.ranks), noted=noted)
    stand_ins = StandIns(ranks, on_gpus=way.on_gpus, by_pairs=way.by_pairs, kernels=way.kernels)
    with stand_ins.of(module):
        ranks.run(lambda rank: _Caller(module, values, rank, way).make())


class CallerTensors:
    """Makes the tensors of a rank's caller, in memory that may be symmetric."""

    def __init__(self, host: Any, rank: Rank) -> None:
        self._host, self._rank = host, rank
        self.device = host.exchange.ranks[rank.number]
        self.is_source = host.exchange.source_position(self.device) >= 0
        self.is_target = host.exchange.target_position(self.device) >= 0

    def source(self) -> Any:
        """Return another source shard, None outside the source mesh."""
        if not self.is_source:
            return None
        return self._tensor("the source shard", self._host.source_shape(self.device))

    def result(self) -> Any:
        """Return another tensor for results, None outside the target mesh."""
        if not self.is_target:
            return None
        return self._tensor("the result", self._host.target_shape(self.device))

    def _tensor(self, name: str, shape: Sequence[int]) -> Any:
        size = math.prod(shape)
        made = self._rank.symmetric(name, max(size, 1), self._host.dtype)
        return made[:size].view(shape)


def written(rank: Rank, shard: Any, values: Values, call: int) -> None:
    """Write a source shard before a call, like its caller."""
    rank.said = f"the caller of rank {rank.number} before call {call}"
    if shard is not None:
        device = sorted(values.case.devices())[rank.number]
        rank.write(shard, values.given(call)[device])
    rank.said = f"call {call} of rank {rank.number}"


def judged(rank: Rank, result: Any, values: Values, call: int) -> None:
    """Read the result of a call, like its caller."""
    rank.said = f"the caller of rank {rank.number} after call {call}"
    device = sorted(values.case.devices())[rank.number]
    wanted = values.wanted(call).get(device)
    if (result is None) != (wanted is None):
        raise MismatchError(f"device {device}: got {result!r} as the result of a call")
    if wanted is not None:
        rank.read(result, wanted, values.whole(call), f"device {device}, call {call}")


class _Caller:
    """A rank's caller: it always uses the same source shard and result or, for asynchronous calls,
    alternates between two of each."""

    def __init__(self, module: Any, values: Values, rank: Rank, way: Manner) -> None:
        self._module, self._values, self._rank, self._way = module, values, rank, way
        self._under_way: Any = None
        shards, count = CallerTensors(module._HOST, rank), 1 + way.later
        self._shards = [shards.source() for _ in range(count)]
        self._outs = [shards.result() for _ in range(count)]
        if way.in_place:
            self._shards = [module.symmetric_source(rank)] * count
        self._pushed = list(self._outs)
        if any(way.pushed):
            self._pushed = [module.symmetric_result(rank, out=out) for out in self._outs]
            self._outs = [shards.result() for _ in range(count)]

    def make(self) -> None:
        """Make all calls; each ends after the next has started."""
        for number in range(self._way.calls):
            if self._way.in_place:
                self._end(number - 1)
            made = self._call(number)
            self._end(number - 1)
            if self._way.later:
                self._under_way = made
            else:
                judged(self._rank, made, self._values, number)
        self._end(self._way.calls - 1)

    def _call(self, number: int) -> Any:
        """Write the source shard, and make a call."""
        way, rank, shard = self._way, self._rank, self._shards[number % len(self._shards)]
        written(rank, shard, self._values, number)
        outs = self._pushed if way.pushed[number % len(way.pushed)] else self._outs
        return self._module.reshard(
            shard,
            rank,
            out=outs[number % len(outs)],
            transport=way.transport,
            programs=way.programs,
            async_op=way.later,
        )

    def _end(self, number: int) -> None:
        """Wait for a call, if it is in progress."""
        work, self._under_way = self._under_way, None
        if work is not None:
            self._rank.said = f"the end of call {number} of rank {self._rank.number}"
            judged(self._rank, work.wait(), self._values, number)
