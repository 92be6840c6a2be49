"""Check calls of a group's module by all ranks, each of which moves all tensors in one exchange.
Imported only by workers."""

from __future__ import annotations

from functools import partial
from typing import Any

from shardwright.codegen.backends.triton_gpu.verify.calls import (
    CALLS,
    CallerTensors,
    Manner,
    judged,
    written,
)
from shardwright.codegen.backends.triton_gpu.verify.ranks import Rank, Ranks
from shardwright.codegen.backends.triton_gpu.verify.stand_ins import StandIns
from shardwright.codegen.backends.triton_gpu.verify.values import Values
from shardwright.codegen.checks.case import GroupCase
from shardwright.codegen.checks.compare import runs_of_each

WAYS = (
    Manner(),
    Manner("exchange", later=True),
    Manner("exchange", on_gpus=False, kernels=1, calls=1),
)


def check_group_calls(module: Any, group: GroupCase) -> tuple[str, ...]:
    """Call a group's module in several ways and return the name of the check. Raises
    MismatchError."""
    planes = runs_of_each(group.members)
    values = [Values(case, each) for case, each in zip(group.members, planes, strict=True)]
    for way in WAYS:
        way = way._replace(later=way.later and "async" in module._HOST.features)
        ranks = Ranks(len(module._HOST.exchange.ranks), noted=False)
        stand_ins = StandIns(ranks, on_gpus=way.on_gpus, kernels=way.kernels)
        with stand_ins.of(module):
            ranks.run(partial(_call, module, values, way))
    return ("calls of ranks",)


def _call(module: Any, values: list[Values], way: Manner, rank: Rank) -> None:
    """Make a rank's calls, alternating between two sets of tensors. The last call allocates its
    results."""
    made = [CallerTensors(move, rank) for move in module._HOST.members.values()]
    sets = [([each.source() for each in made], [each.result() for each in made]) for _ in range(2)]
    for call in range(way.calls):
        shards, outs = sets[(call + rank.number) // 2 % 2]
        for shard, own in zip(shards, values, strict=True):
            written(rank, shard, own, call)
        found = module.reshard(
            _backwards(module.NAMES, shards),
            rank,
            out=None if call == CALLS - 1 else _backwards(module.NAMES, outs),
            transport=way.transport,
            async_op=way.later,
        )
        found = found.wait() if way.later else found
        for name, own in zip(module.NAMES, values, strict=True):
            judged(rank, found[name], own, call)


def _backwards(names: list[str], tensors: list[Any]) -> dict[str, Any]:
    """Return the tensors by name, in reverse order: the order of arguments must not matter."""
    return dict(reversed([*zip(names, tensors, strict=True)]))
