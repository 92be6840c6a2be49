"""Check successive calls of an emitted reshard by all ranks, with every transport of tiles.

Between calls, a caller writes source shards and reads results as early as it may. Accesses that
conflict with accesses of another rank, or of a later call, are found from the order of events;
wrong elements are found from their values. Imported only by workers.
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
"""The default number of calls made in each way."""


class Manner(NamedTuple):
    """A way to call a module. `transport`, `programs`: arguments of the calls; `on_gpus`: whether
    ranks have GPUs; `by_pairs`: whether ranks can exchange tiles without packing; `in_place`:
    whether source shards are in symmetric memory; `pushed`: for each successive call, whether its
    result is in symmetric memory too; `later`: whether each call is awaited only after the next has
    started, unless both use the same memory; `kernels`: the number of ranks on which kernels run;
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
"""The ways to call modules when accesses are not recorded, so that only values are checked."""


def check_calls(module: Any, values: Values, *, noted: bool, interpreted: bool = True) -> None:
    """Call a module in all ways that it supports. Raises MismatchError for wrong values and, if
    accesses are recorded (`noted`), for conflicting accesses of two ranks or calls whose order is
    not determined.

    `interpreted`: whether this process interprets kernels. If not, skip ways that run kernels.
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
    """Call a module in one way, and check the calls. Raises MismatchError."""
    ranks = Ranks(len(module._HOST.exchange.ranks), noted=noted)
    stand_ins = StandIns(ranks, on_gpus=way.on_gpus, by_pairs=way.by_pairs, kernels=way.kernels)
    with stand_ins.of(module):
        ranks.run(lambda rank: _Caller(module, values, rank, way).make())


class CallerTensors:
    """Allocate the tensors of a rank's caller, in memory that peers can access."""

    def __init__(self, host: Any, rank: Rank) -> None:
        self._host, self._rank = host, rank
        self.device = host.exchange.ranks[rank.number]
        self.is_source = host.exchange.source_position(self.device) >= 0
        self.is_target = host.exchange.target_position(self.device) >= 0

    def source(self) -> Any:
        """Return a new tensor for a source shard, or None for a device outside the source mesh."""
        if not self.is_source:
            return None
        return self._tensor("the source shard", self._host.source_shape(self.device))

    def result(self) -> Any:
        """Return a new tensor for a result, or None for a device outside the target mesh."""
        if not self.is_target:
            return None
        return self._tensor("the result", self._host.target_shape(self.device))

    def _tensor(self, name: str, shape: Sequence[int]) -> Any:
        size = math.prod(shape)
        made = self._rank.symmetric(name, max(size, 1), self._host.dtype)
        return made[:size].view(shape)


def written(rank: Rank, shard: Any, values: Values, call: int) -> None:
    """Write a rank's source shard before a call, as its caller would."""
    rank.said = f"the caller of rank {rank.number} before call {call}"
    if shard is not None:
        device = sorted(values.case.devices())[rank.number]
        rank.write(shard, values.given(call)[device])
    rank.said = f"call {call} of rank {rank.number}"


def judged(rank: Rank, result: Any, values: Values, call: int) -> None:
    """Read and check a rank's result of a call, as its caller would. Raises MismatchError."""
    rank.said = f"the caller of rank {rank.number} after call {call}"
    device = sorted(values.case.devices())[rank.number]
    wanted = values.wanted(call).get(device)
    if (result is None) != (wanted is None):
        expected = "None" if wanted is None else "a tensor"
        said = f"device {device}, call {call}: got {result!r}, expected {expected}"
        raise MismatchError(said)
    if wanted is not None:
        rank.read(result, wanted, values.whole(call), f"device {device}, call {call}")


class _Caller:
    """The caller of a rank. It uses the same source shard and result for all calls, or alternates
    between two of each if calls are awaited later."""

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
        """Make all calls. A call that is awaited later is awaited after the next call has started
        or, if source shards are in symmetric memory, just before it."""
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
        work, self._under_way = self._under_way, None
        if work is not None:
            self._rank.said = f"the end of call {number} of rank {self._rank.number}"
            judged(self._rank, work.wait(), self._values, number)
