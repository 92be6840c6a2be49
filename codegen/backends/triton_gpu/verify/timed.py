"""Time Triton modules on the GPUs of this host, with one process per GPU. Imported only by
workers."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import multiprocessing

from shardwright.codegen.backends.triton_gpu.verify.bits import as_bits, to_bits, to_torch
from shardwright.codegen.checks.case import Case
from shardwright.codegen.checks.compare import MismatchError
from shardwright.codegen.checks.load import load
from shardwright.codegen.checks.matmul_case import MatmulCase
from shardwright.codegen.checks.oracle.definition import Bits, Placement
from shardwright.codegen.checks.oracle.products import products
from shardwright.codegen.checks.oracle.sums import array_of
from shardwright.codegen.checks.terms import own_terms, runs
from shardwright.codegen.checks.timed import CannotTimeError, Hardware, arrays_of, check_memory

TURNS = 20
"""The number of timed calls on every rank."""

Call = Callable[[], Any]


def hardware() -> Hardware:
    """Return the name and number of the GPUs that torch finds."""
    count = torch.cuda.device_count()
    return Hardware(torch.cuda.get_device_name(0) if count else "no GPU", count)


def timed(module: ModuleType, case: Case | MatmulCase) -> list[float]:
    """Return the seconds of each call of a module, measured on its slowest rank. A call before them
    checks the result.

    Raises MismatchError for a wrong result, and CannotTimeError if there are too few GPUs, too
    little memory, or an unreduced matmul result, which no rank can check."""
    del module  # each rank loads the module itself
    here, count = hardware(), len(case.devices())
    if here.count < count:
        raise CannotTimeError(f"it needs {count} GPUs, but torch has {here.count}")
    check_memory(arrays_of(case), getattr(torch, case.dtype).itemsize)
    return by_ranks(case, "cuda")


def by_ranks(case: Case | MatmulCase, device: str) -> list[float]:
    """Return the seconds of each call of a module, as `timed` does, on ranks with devices of one
    type, "cuda" or "cpu"."""
    if isinstance(case, MatmulCase) and case.placements[2].unreduced:
        raise CannotTimeError(
            "its result is a partial sum on each rank, which no rank can check alone"
        )
    count = len(case.devices())
    with tempfile.TemporaryDirectory(prefix="shardwright-ranks-") as folder:
        multiprocessing.spawn(_rank, (case, folder, device), count)
        found = [json.loads(_answer(folder, me).read_text()) for me in range(count)]
    return [max(turn) for turn in zip(*found, strict=True)]


def _answer(folder: str, me: int) -> Path:
    return Path(folder, f"{me}.json")


def _rank(me: int, case: Case | MatmulCase, folder: str, device: str) -> None:
    """Time the calls of rank `me` and write their seconds to its file. Raises MismatchError for a
    wrong result."""
    home = torch.device(device, me if device == "cuda" else 0)
    if device == "cuda":
        torch.cuda.set_device(home)
    backend = "nccl" if device == "cuda" else "gloo"
    count = len(case.devices())
    dist.init_process_group(
        backend, init_method=f"file://{folder}/store", rank=me, world_size=count
    )
    module, number = load(case.module), case.devices()[me]
    if isinstance(case, MatmulCase):
        call, wanted = _matmul(module, case, number, home)
    else:
        call, wanted = _reshard(module, case, number, home)
    result = call()
    if (result is None) != (wanted is None):
        raise MismatchError(f"device {number}: a result is missing or unexpected")
    if wanted is not None and not np.array_equal(to_bits(result.cpu()), wanted):
        raise MismatchError(f"device {number}: wrong result")
    _answer(folder, me).write_text(json.dumps([_turn(call, device) for _ in range(TURNS)]))
    dist.barrier()
    dist.destroy_process_group()


def _turn(call: Call, device: str) -> float:
    """Return the seconds of one call that all ranks start at the same time."""
    _done(device)
    dist.barrier()
    _done(device)
    start = time.perf_counter()
    call()
    _done(device)
    return time.perf_counter() - start


def _done(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def _reshard(
    module: ModuleType, case: Case, number: int, home: torch.device
) -> tuple[Call, Bits | None]:
    run = next(runs(case, as_bits))
    given = own_terms(case.source, case.source_array, run.given).get(number)
    shard = None if given is None else to_torch(given, case.dtype).to(home)
    wanted = own_terms(case.target, case.target_array, run.tensor).get(number)
    return lambda: module.reshard(shard), wanted


def _matmul(
    module: ModuleType, case: MatmulCase, number: int, home: torch.device
) -> tuple[Call, Bits | None]:
    """Return a function that calls a matmul on device `number`, with operands whose sums are exact,
    and the expected result."""
    product = next(products(case.dtype, case.out_dtype, case.shapes[:2], case.placements[:2], 0))
    operands = [
        to_torch(_shard(place, as_bits(values, case.dtype), number), case.dtype).to(home)
        for place, values in zip(case.placements, (product.lhs, product.rhs), strict=False)
    ]
    wanted = _shard(case.placements[2], as_bits(product.result, case.out_dtype), number)
    return lambda: module.matmul(*operands), wanted


def _shard(place: Placement, bits: Bits, number: int) -> Bits:
    return own_terms(place, array_of(place), bits)[number]
