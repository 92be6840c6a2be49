"""Let all ranks call an emitted matmul. Ranks are threads that read each other's memory.

All ranks make each launch of a call before the next: the interpreter runs one launch at a time, so
no launch may wait for a later one. Imported only by workers.
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
"""A function that makes a rank's call, given the rank and the number of the call."""
WAYS = ((False, (0,)), (True, (1, 2)))
"""(whether ranks share GPU memory instead of mapped files, the numbers of the calls made in this
way)."""
CALLS = sum(len(calls) for _, calls in WAYS)


def called_by_ranks(module: Any, call: Call) -> None:
    """Let all ranks call, first with memory mapped from files, then with symmetric memory that
    starts at a different offset on every rank. Raises MismatchError."""
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
    """Make every rank, in this context, wait before a launch until all ranks have made the previous
    one. `on_gpus`: whether ranks share symmetric memory, as on GPUs, instead of files."""
    support: Any = sys.modules[type(module._HOST.ranks).__module__]
    shared_memory = support.shared_memory

    def memory(size: int, home: Any, group: Rank) -> Any:
        return shared_memory(size, Gpu() if on_gpus else home, group)

    class Member(support.Member):  # type: ignore[misc]
        """A device that waits, before each step, for the previous steps of all devices."""

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
