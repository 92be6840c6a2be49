"""Calls of an emitted matmul by all ranks, threads that read each other's memory.

Used in workers only. The launches of a call are made in lockstep: the interpreter runs one at a
time, so none may wait for a later launch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from shardwright.codegen.backends.triton_gpu.verify.quick import quick_launches
from shardwright.codegen.backends.triton_gpu.verify.ranks import Gpu, Rank, Ranks
from shardwright.codegen.backends.triton_gpu.verify.stand_ins import (
    StandIns,
    replacing,
)

Call = Callable[[Rank, int], None]
"""What a rank does in a given call."""
WAYS = ((False, (0,)), (True, (1, 2)))
"""Whether the memory is GPU memory, and the numbers of the calls that use it."""
CALLS = sum(len(calls) for _, calls in WAYS)


def called_by_ranks(module: Any, call: Call) -> None:
    """Let all ranks call with mapped memory, then with symmetric memory, whose allocations begin at
    different offsets on every rank. Raises MismatchError."""
    for on_gpus, calls in WAYS:
        ranks = Ranks(len(module._HOST.ids), noted=False)
        stand_ins = StandIns(ranks, on_gpus=False, kernels=ranks.count)
        with _in_step(module, ranks, on_gpus), stand_ins.of(module):
            ranks.run(partial(_calls, call=call, calls=calls))


def _calls(rank: Rank, call: Call, calls: tuple[int, ...]) -> None:
    for number in calls:
        rank.said = f"call {number} of rank {rank.number}"
        call(rank, number)


@contextmanager
def _in_step(module: Any, ranks: Ranks, on_gpus: bool) -> Iterator[None]:
    """Order each launch of a rank after the earlier ones of all ranks; with GPU memory, or
    files."""
    support: Any = sys.modules[type(module._HOST.ranks).__module__]
    shared_memory = support.shared_memory

    def memory(size: int, home: Any, group: Rank) -> Any:
        return shared_memory(size, Gpu() if on_gpus else home, group)

    class Member(support.Member):  # type: ignore[misc]
        """A device whose steps wait for other devices' steps."""

        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            self.rank = ranks.me

        def steps(self, *given: Any, **more: Any) -> list[Callable[[], Any]]:
            return [partial(self.step, each) for each in super().steps(*given, **more)]

        def step(self, launch: Callable[[], Any]) -> Any:
            self.rank.all_gather(None)
            with quick_launches():
                return launch()

    with replacing([(support, "Member", Member), (support, "shared_memory", memory)]):
        yield
