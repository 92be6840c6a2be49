"""Calls of a Triton module by one process a device, over gloo. In a worker only."""

from __future__ import annotations

import datetime
import math
import os
import pickle
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.placement_types import _StridedShard

from shardwright.codegen.backends.triton_gpu.verify.quick import quick_launches

from .case import Case, Side, TorchUse
from .reference import Bits, read
from .torch_tensors import Shards, filled, shapes, to_bits, to_tensor
from .values import WrongError

TIME_LIMIT = 150.0
"""Seconds that the calls of a case may take."""


def exchanged(module: ModuleType, case: Case, calls: list[Shards]) -> list[Shards]:
    """Return the target shards of every call, which is given by its source shards.

    Raises WrongError for a result where there should be none, and RuntimeError with the traceback
    of the first rank that failed or did not end.
    """
    with tempfile.TemporaryDirectory(prefix="fuzz-ranks-") as folder:
        world = case.device_ids
        children = [_forked(module, case, calls, rank, Path(folder)) for rank in range(len(world))]
        _join(children)
        found = [
            pickle.loads((Path(folder) / str(rank)).read_bytes()) for rank in range(len(world))
        ]
    failed = [each for each in found if isinstance(each, str)]
    if failed:
        raise RuntimeError(failed[0])
    return [_of_call(case, [each[number] for each in found]) for number in range(len(calls))]


def _of_call(case: Case, results: list[Bits | None]) -> Shards:
    """The shards of the target's devices, of one result a rank."""
    shards = dict(zip(case.device_ids, results, strict=True))
    for device, bits in shards.items():
        if (bits is None) == (device in case.target.device_ids):
            raise WrongError(f"device {device}: got {'no' if bits is None else 'a'} result")
    return {device: bits for device, bits in shards.items() if bits is not None}


def _forked(module: ModuleType, case: Case, calls: list[Shards], rank: int, folder: Path) -> int:
    """Start the process of a rank, which leaves what it got in a file; return its number."""
    (folder / str(rank)).write_bytes(pickle.dumps(f"rank {rank} did not end"))
    sys.stderr.flush()
    if child := os.fork():
        return child
    try:
        found: Any = _rank(module, case, calls, rank, folder)
    except BaseException:
        found = f"rank {rank}: {traceback.format_exc()[-1500:]}"
    (folder / str(rank)).write_bytes(pickle.dumps(found))
    os._exit(0)


def _join(children: list[int]) -> None:
    """Wait for processes, at most so long; end the others."""
    end = time.monotonic() + TIME_LIMIT
    left = set(children)
    while left and time.monotonic() < end:
        left -= {child for child in left if os.waitpid(child, os.WNOHANG)[0]}
        time.sleep(0.01)
    for child in left:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _rank(
    module: ModuleType, case: Case, calls: list[Shards], rank: int, folder: Path
) -> list[Bits | None]:
    torch.set_num_threads(1)
    world, device = len(case.device_ids), case.device_ids[rank]
    store = dist.FileStore(str(folder / "store"), world)
    limit = datetime.timedelta(seconds=TIME_LIMIT)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=limit)
    shards = [to_tensor(case, call[device]) if device in call else None for call in calls]
    with quick_launches():
        found = list(_results(module, case, shards, device))
    results = [None if each is None else to_bits(each, case.dtype) for each in found]
    dist.barrier()
    dist.destroy_process_group()
    return results


def _results(module: ModuleType, case: Case, shards: list[Any], device: int) -> Iterator[Any]:
    """Make all calls; what is waited for later is started first."""
    use = case.use
    assert isinstance(use, TorchUse)
    if use.door == "dtensor":
        yield from (_through_dtensors(module, case, shard, device) for shard in shards)
        return
    shape = shapes(case, case.target).get(device)
    outs = [None if shape is None or not use.out else filled(case, shape) for _ in shards]
    if not use.later:
        yield from (module.reshard(x, out=out) for x, out in zip(shards, outs, strict=True))
        return
    works = [module.reshard(x, out=out, async_op=True) for x, out in zip(shards, outs, strict=True)]
    yield from (work.wait() for work in works)


def _through_dtensors(module: ModuleType, case: Case, shard: Any, device: int) -> Any:
    """The local tensor of the result; no rank is outside of both meshes."""
    source, target = (_device_mesh(case, side) for side in (case.source, case.target))
    local = torch.empty(0, dtype=getattr(torch, case.dtype)) if shard is None else shard
    stride = torch.empty(case.shape, device="meta").stride()
    whole = {"shape": torch.Size(case.shape), "stride": stride, "run_check": False}
    x = DTensor.from_local(local, source, _placements(case.source), **whole)
    y = module.reshard_dtensor(x, target)
    if tuple(y.placements) != _placements(case.target) or y.device_mesh != target:
        raise WrongError(f"got {y.placements} on {y.device_mesh}")
    if tuple(y.shape) != case.shape:
        raise WrongError(f"got a DTensor of {tuple(y.shape)}, expected {case.shape}")
    return y.to_local() if device in case.target.device_ids else None


def _device_mesh(case: Case, side: Side) -> Any:
    """The DeviceMesh of a side; ranks number all devices, ascending."""
    ranks = [case.device_ids.index(device) for device in side.device_ids]
    return DeviceMesh("cpu", torch.tensor(ranks).view([size for _, size in side.axes]))


def _placements(side: Side) -> tuple[Any, ...]:
    """The placements that say a sharding, one an axis; strided after a later axis."""
    found, names = read(side), [name for name, _ in side.axes]
    split = {}
    for dim, refs in enumerate(found.dims):
        for number, ref in enumerate(refs):
            later = [r for r in refs[:number] if names.index(r.name) > names.index(ref.name)]
            factor = math.prod(found.axes[r.name] for r in later)
            strided = _StridedShard(dim, split_factor=factor)
            split[ref.name] = strided if factor > 1 else Shard(dim)
    terms = {ref.name: Partial(found.operation or "sum") for ref in found.terms}
    return tuple({**split, **terms}.get(name, Replicate()) for name, _ in side.axes)
