"""The part `ranks`: the processes of a group on one GPU, with exchanges and with symmetric memory.

NCCL refuses several ranks on one GPU. Gloo accepts them, as does torch's symmetric memory if
TORCH_SYMM_MEM_ALLOW_OVERLAPPING_DEVICES is 1. The processes take turns on the GPU, so values, hangs
and host seconds are meaningful, but GPU seconds are not.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from functools import partial
from types import ModuleType
from typing import Any

import torch.distributed as dist

import shardwright as sw
from bench.gpu_check import products
from bench.gpu_check.cases import emitted
from bench.gpu_check.clocks import captured, host_time
from bench.gpu_check.home import DRY, MIB, NAMES, synchronize, torch
from bench.gpu_check.reference import case_of, compare, example, shards_of
from bench.parts.attempt import Job, Row, attempt
from shardwright.codegen.checks.case import Case

RANKS = 4
ENV = {"TORCH_SYMM_MEM_ALLOW_OVERLAPPING_DEVICES": "1", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1"}
SIZE = (24, 36) if DRY else (1024, 2048)
RESHARDS = {
    "all_to_all": (SIZE, '[{"x"}, {}]', '[{}, {"x"}]'),
    "uneven": ((SIZE[0] + 1, SIZE[1] + 3), '[{}, {"x"}]', '[{"x"}, {}]'),
    "all_reduce": (SIZE, '[{}, {}], unreduced={"x"}', "[{}, {}]"),
    "gather": (SIZE, '[{"x"}, {}]', "[{}, {}]"),
}
EXTENTS = (32, 24, 16) if DRY else (1024, 512, 1024)
"""The extents (i, j, k) of the matmuls."""

GRAPHED = 2
"""The number of the call after which a graph is captured and replayed."""


def moved(me: int, name: str, transport: str, way: str) -> Row:
    """Reshard different values in each of several calls. `way`: "" for plain calls, "async",
    "source" or "result" for symmetric memory on that side, or "graph" for a CUDA graph of the
    call."""
    shape, source, target = RESHARDS[name]
    reshard = sw.Reshard(shape, "bfloat16", source, target, mesh=f"x={RANKS}")
    calls = _Calls(me, emitted(reshard, f"{name}_{transport}_{way}"), case_of(reshard), way)
    memory = []
    for turn in range(4 if DRY else 40 if way == "async" else 12):
        calls.check(turn, transport)
        memory.append(0 if DRY else torch.cuda.memory_allocated())
        if way == "graph" and turn == GRAPHED:
            calls.capture(transport)
    host = host_time(lambda: calls.call(transport))
    return {"host_us": round(host * 1e6), "grown_MiB": round((memory[-1] - memory[1]) / MIB, 2)}


class _Calls:
    """Calls of a module with the same tensors but different values."""

    def __init__(self, me: int, module: ModuleType, case: Case, way: str) -> None:
        self.me, self.module, self.case, self.way = me, module, case, way
        self.shard = module.symmetric_source() if way == "source" else None
        self.out = module.symmetric_result() if way == "result" else None
        self.graph: Any = None

    def check(self, turn: int, transport: str) -> None:
        given, wanted = example(self.case, 31 * turn)
        mine = shards_of(self.case.source, given, self.case.shape)[self.me]
        right = shards_of(self.case.target, wanted, self.case.shape)[self.me]
        self.shard = mine if self.shard is None else self.shard.copy_(mine)
        self.out = torch.full_like(right, 7) if self.out is None else self.out.fill_(7)
        compare([self.me], [self.call(transport)], [right], f"call {turn}")
        synchronize()

    def call(self, transport: str) -> Any:
        if self.graph is not None:
            self.graph.replay()
            return self.out
        asked = {"out": self.out, "transport": transport, "async_op": self.way == "async"}
        got = self.module.reshard(self.shard, **asked)
        return got.wait() if self.way == "async" else got

    def capture(self, transport: str) -> None:
        dist.barrier()
        self.graph = captured(lambda: self.call(transport))


def multiplied(me: int, side: str, skewed: bool) -> Row:
    """Multiply different values in each of several calls. `skewed`: whether rank 0 first allocates
    other symmetric memory, so that its buffers have different addresses than on other ranks."""
    kept = _symmetric_memory() if skewed and me == 0 else None
    module = products.emitted_matmul(f"matmul_{side}_{skewed}", EXTENTS, RANKS, side)
    for turn in range(4):
        whole, (lhs, rhs) = products.operands(module, turn)
        got = module.matmul(lhs[me], rhs[me])
        module.synchronize()
        error = products.check_product(module, whole, [got], [products.order(module)[me]])
    del kept
    return error


def _symmetric_memory() -> Any:
    memory = importlib.import_module("torch.distributed._symmetric_memory")
    return memory.empty(4096, device=torch.device("cuda", 0))


def jobs(me: int) -> Iterator[Job]:
    """Yield all cases, which are the same on every rank."""
    for name in RESHARDS:
        yield f"{name}, exchange", partial(moved, me, name, "exchange", "")
    yield "all_to_all, exchange, async", partial(moved, me, "all_to_all", "exchange", "async")
    if not DRY:
        for name in RESHARDS:
            yield f"{name}, symmetric", partial(moved, me, name, "symmetric", "")
        for way in ("async", "source", "graph", "result"):
            said = f"all_to_all, symmetric, {way}"
            yield said, partial(moved, me, "all_to_all", "symmetric", way)
    for side in ("gather", "scatter"):
        yield f"matmul, {side}", partial(multiplied, me, side, skewed=False)
    if not DRY:
        yield "matmul, gather, skewed pool", partial(multiplied, me, "gather", skewed=True)


def rank(me: int, store: str) -> None:
    """Run all cases as rank `me` of a group, which connects through the file `store`."""
    if not DRY:
        torch.cuda.set_device(0)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=me, world_size=RANKS)
    for name, job in jobs(me):
        if not NAMES or name.startswith(NAMES):
            attempt("ranks", name, job, rank=me)
            dist.barrier()
    sys.stdout.flush()
    os._exit(0)  # The destructors of the ranks' groups may wait for each other.
