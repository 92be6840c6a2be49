"""Tasks of processes of a gloo group in which a rank fails, or has something else than the others.

`gloo_rank.py` runs them: a case names one as `gloo_faults:NAME`.
"""

from __future__ import annotations

import ctypes
import importlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from gloo_rank import Mapped, bits, given, load, on_files, said


class OddError(Exception):
    """An exception that no code expects."""


def fail(*_: object, **more: object) -> Any:
    """Raise what no code expects."""
    raise OddError("the disk is full\nand more")


class Strange:
    """An object of which nothing can be known."""

    shape = property(fail)


def support(module: Any, name: str) -> Any:
    """A support module that a module uses."""
    return importlib.import_module(f"{module.__name__.split('.')[0]}._support.{name}")


def memory_of_matmuls(rank: int, case: dict) -> dict:
    """Which rank's memory each rank finds at the place of every rank, on GPUs that are none."""
    module = load(case["module"])
    stand_in = Mapped(rank, Path(case["folder"]), [])
    for name in ("torch_symmetric", "torch_shared"):
        support(module, name).symmetric_memory = stand_in
    torch.cuda.synchronize = lambda *_: None  # type: ignore[assignment]
    shared = support(module, "torch_shared").shared_memory
    held, places = shared(64, torch.device("cuda"), dist.group.WORLD)
    held.fill_(rank)
    dist.barrier()
    found = [ctypes.c_uint8.from_address(place).value for place in places]
    dist.barrier()
    return {"found": found}


def unexpected(rank: int, case: dict) -> dict:
    """What every rank says where rank 1 raises what no code expects, in each thing that ranks do
    together; then a call that is right."""
    module, multiplied = load(case["module"]), load(case["matmul"])
    group, gpu, wrong = dist.group.WORLD, torch.device("cuda"), rank == 1
    x, host = given(module, rank, case), multiplied._HOST
    a, b = (torch.zeros(host.shape(side, rank), dtype=host.dtype) for side in range(2))
    bad = Strange() if wrong else x
    if wrong:
        host.check = fail
    found = {
        "a shard": said(lambda: module.reshard(bad)),
        "no DTensor": said(lambda: module.reshard_dtensor(bad)),
        "an operand": said(lambda: multiplied.matmul(a, b)),
    }
    files = support(multiplied, "torch_shared")
    own, symmetric = module._HOST.processes, support(module, "torch_symmetric")
    memory = symmetric.symmetric_memory = Mapped(rank, Path(case["folder"]), [])
    if wrong:
        files.tempfile = SimpleNamespace(mkstemp=fail)
        support(module, "torch_processes").socket = SimpleNamespace(gethostname=fail)
        memory.rendezvous = fail  # type: ignore[method-assign]
    found["a file"] = said(lambda: files.shared_memory(64, x.device, group))
    found["an agreement"] = said(lambda: own._agree(group, "", gpu, None, False))
    found["a rendezvous"] = said(lambda: symmetric.shared(group).grown(64, gpu, group))
    if wrong:
        memory.empty = fail  # type: ignore[method-assign]
    else:
        memory.empty = lambda size, dtype, device: torch.zeros(size, dtype=dtype)  # type: ignore[method-assign]
    found["memory"] = said(lambda: symmetric.shared(group).grown(64, gpu, group))
    return {"found": found, "result": bits(module.reshard(x))}


def counted(rank: int, case: dict) -> dict:
    """What a rank gets where the second call of rank 1 fails, and that goes on: of two calls, or
    three of rank 1, one that is waited for later, and two after all have agreed again."""
    module = load(case["module"])
    group = dist.new_group(list(range(4)))
    if "symmetric" in case:
        on_files(rank, case | {"folder": case["symmetric"]}, module)
    device = module._HOST.exchange.ranks[rank]
    shards = [given(module, device, {"shards": each}) for each in case["calls"]]

    def call(number: int, **asked: Any) -> str:
        found: list[Any] = []
        why = said(lambda: found.append(module.reshard(shards[number], group, **asked)))
        return why if not found else str(bits(found[0]))

    results = [call(0)]
    if rank == 1:
        results.append(said(lambda: module.reshard(torch.zeros(()), group)))
    results.append(call(1))
    if "symmetric" in case:
        return {"results": results}
    results.append(said(lambda: module.reshard(shards[2], group, async_op=True).wait()))
    results += [call(2, check=True), call(0)]
    return {"device": device, "results": results}
