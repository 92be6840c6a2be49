"""Processes of a gloo group: run emitted modules and report what they received.

A worker, which imports torch once and forks the processes of every group; `gloo_group.py` asks it.
A question has the world size, a folder and cases. Each case names a `task` of this file and has
what that takes; its result goes as one JSON line to the file `rank.jsonl` in the folder. What
processes print goes to the file `said` there, as the traceback of one that failed.
"""

from __future__ import annotations

import _imp
import contextlib
import datetime
import gc
import importlib
import io
import itertools
import json
import marshal
import os
import signal
import sys
import threading
import time
import traceback
import warnings
import weakref
from collections.abc import Callable, Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
import triton  # noqa: F401  # imported before the processes fork
from torch._subclasses.fake_tensor import FakeTensorMode

from shardwright.codegen.backends.triton_gpu.verify.quick import quick_launches
from shardwright.codegen.checks.load import load as packaged
from shardwright.codegen.checks.workers.serve import serve

LATER = (
    "gloo_faults",
    "gloo_gradients",
    "gloo_matmul",
    "torch.distributed._functional_collectives",
    "torch.distributed._symmetric_memory",
    "triton.experimental.gluon.language",
    "shardwright.codegen.operations.verify.worker",
)
"""What is imported when modules are called, by each process if not before it is forked."""
VERIFIER = "shardwright.codegen.backends.triton_gpu.verify.run"
NEEDED = {
    "dtensors": "torch._dynamo",
    "gloo_faults:unexpected": "torch.distributed.tensor",
    "gradients": "torch.fx.experimental.symbolic_shapes",
    "group_gradients": "torch.fx.experimental.symbolic_shapes",
    "gloo_gradients:by_hand": "torch.fx.experimental.symbolic_shapes",
    "matmul_memory": "torch.fx.experimental.symbolic_shapes",
}
"""By task, what takes so long to import that others do without."""
CODE: dict[bytes, bytes] = {}
"""What texts are compiled to, by the worker, not again by each process."""

SENT: list[int] = []
EACH: list[list[int]] = []
SAID = 16
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


TIME_LIMIT = 250.0
"""Seconds that the processes of a group may take."""


def main() -> None:
    """Serve groups."""
    serve(_prepared)


def _prepared() -> Callable[[str], dict]:
    """Import what processes would import, each of them, and answer by the processes that failed."""
    for name in (*LATER, VERIFIER) if INTERPRETED else LATER:
        importlib.import_module(name)
    SourceFileLoader.source_to_code = _compiled  # type: ignore[assignment, method-assign]
    return lambda line: {"failed": _forked(**json.loads(line))}


def _compiled(loader: object, text: bytes, path: str) -> CodeType:
    """The code of a module, compiled once for all files with this text."""
    if text not in CODE:
        CODE[text] = marshal.dumps(compile(text, path, "exec", dont_inherit=True))
    code: CodeType = marshal.loads(CODE[text])
    _imp._fix_co_filename(code, path)  # type: ignore[attr-defined]
    return code


def _foresee(case: dict) -> None:
    """Import and compile what the processes of a case will, as far as it says that."""
    if case.get("task") in NEEDED:
        # Of what is installed the bytecode is right.
        none, sys.pycache_prefix = sys.pycache_prefix, None
        importlib.import_module(NEEDED[case["task"]])
        sys.pycache_prefix = none
    lists = (each if isinstance(each, list) else [each] for each in case.values())
    named = itertools.chain.from_iterable(lists)
    for path in (Path(name) for name in named if isinstance(name, str) and name.endswith(".py")):
        for file in (path, *path.parent.parent.glob("_support/*.py")):
            if file.is_file():
                _compiled(None, file.read_bytes(), str(file))


def _forked(world: int, folder: str, cases: list[dict]) -> int:
    """Fork the processes and wait for them; return how many failed, or did not end."""
    for case in cases:
        _foresee(case)
    children = set()
    for rank in range(world):
        child = os.fork()
        if child == 0:
            os._exit(_serve(rank, world, Path(folder), cases))
        children.add(child)
    failed, end = 0, time.monotonic() + TIME_LIMIT
    while children and time.monotonic() < end:
        child, status = os.waitpid(-1, os.WNOHANG)
        failed += status != 0
        children.discard(child)
        time.sleep(0 if child else 0.005)
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return failed + len(children)


def _serve(rank: int, world: int, folder: Path, cases: list[dict]) -> int:
    try:
        os.dup2(os.open(folder / "said", os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
        os.dup2(2, 1)
        torch.set_num_threads(1)
        store = dist.FileStore(str(folder / "store"), world)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=world)
        count_bytes(rank)
        with (folder / f"{rank}.jsonl").open("w", buffering=1) as lines:
            for case in cases:
                with quick_launches() if INTERPRETED else contextlib.nullcontext():
                    found = task_of(case)(rank, case)
                lines.write(json.dumps(found) + "\n")
        dist.destroy_process_group()
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def task_of(case: dict) -> Callable[[int, dict], dict]:
    """The function of a case: of this file, or as `file:function` of another beside it."""
    file, _, name = case.get("task", "moved").rpartition(":")
    return getattr(importlib.import_module(file), name) if file else TASKS[name]


def count_bytes(rank: int) -> None:
    """From now on, SENT gets the bytes of tiles that each exchange sends to other ranks, EACH those
    that it sends to each; the number of the call, SAID bytes for each rank, is none of them."""
    exchange = dist.all_to_all_single

    def counted(output, packed, received, sent, **more):  # type: ignore[no-untyped-def]
        assert sent[rank] == 0, "sends to itself through the group"
        EACH.append([size - SAID if size else 0 for size in sent])
        SENT.append(sum(EACH[-1]))
        return exchange(output, packed, received, sent, **more)

    dist.all_to_all_single = counted
    batch = dist.batch_isend_irecv

    def in_place(asked):  # type: ignore[no-untyped-def]
        sent = [0] * dist.get_world_size(asked[0].group)
        for each in asked:
            if each.op is dist.isend:
                sent[dist.get_group_rank(each.group, each.peer)] += each.tensor.nbytes
        EACH.append([size - SAID if size else 0 for size in sent])
        SENT.append(sum(EACH[-1]))
        return batch(asked)

    dist.batch_isend_irecv = in_place


def moved(rank: int, case: dict) -> dict:
    """The target shard, as bytes in hex, and the bytes sent to other ranks."""
    module = load(case["module"])
    group = dist.new_group(list(range(case["world"])))
    if rank >= case["world"]:
        return {"outside": True}
    device = module._HOST.exchange.ranks[rank]
    shard = given(module, device, case)
    with poisoned():
        SENT.clear()
        time.sleep(case.get("late", 0) * rank)
        result, sent = module.reshard(shard, group), sum(SENT)
        out = None if result is None else torch.empty_like(result)
        time.sleep(case.get("late", 0) * rank)
        work = module.reshard(shard, group, out=out, async_op=True)
        assert work.wait() is out
    return {
        "device": device,
        "result": bits(result),
        "later": bits(out),
        "sent": sent,
        "ways": [each.tiles.together for each in module._HOST.phases],
    }


@contextlib.contextmanager
def poisoned() -> Any:
    """Let memory that torch gives be full of something."""
    made = torch.empty, torch.empty_like

    def filled(make: Callable[..., Any]) -> Callable[..., Any]:
        def poison(*args: Any, **named: Any) -> Any:
            tensor = make(*args, **named)
            tensor.view(-1).view(torch.uint8).fill_(0xA5)
            return tensor

        return poison

    torch.empty, torch.empty_like = map(filled, made)  # type: ignore[assignment]
    try:
        yield
    finally:
        torch.empty, torch.empty_like = made


def given(module: Any, device: int, case: dict) -> Any:
    """The source shard of a device, from the case's hex; None outside the source mesh."""
    if str(device) not in case["shards"]:
        return None
    raw = bytearray.fromhex(case["shards"][str(device)])
    dtype = getattr(module, "_HOST", module).dtype
    flat = torch.frombuffer(raw, dtype=dtype) if raw else torch.empty(0, dtype=dtype)
    return flat.reshape(module.source_shape(device)).clone()


def bits(result: Any) -> str | None:
    """A tensor's bytes in hex."""
    return None if result is None else bytes(result.reshape(-1).view(torch.uint8).tolist()).hex()


def load(path: str) -> Any:
    """A module by its path."""
    return packaged(Path(path))


def beside(paths: list[str]) -> list[Any]:
    """Modules of one folder of bundles, as users import them: with support that they share."""
    folder = Path(paths[0]).parent.parent
    for name in [name for name in sys.modules if name.split(".")[0] == folder.name]:
        del sys.modules[name]
    sys.path.insert(0, str(folder.parent))
    try:
        names = [Path(path).relative_to(folder.parent).with_suffix("").parts for path in paths]
        return [importlib.import_module(".".join(name)) for name in names]
    finally:
        sys.path.remove(str(folder.parent))


def said(call: Callable[[], object]) -> str:
    """What a call that has to fail says: the kind of error and its text."""
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def repeated(rank: int, case: dict) -> dict:
    """Three calls, the last two with `out`: results, and whether they made launches or memory."""
    module = load(case["module"])
    device = module._HOST.exchange.ranks[rank]
    launches = counted_copies(module)
    first = module.reshard(given(module, device, case))
    out = None if first is None else torch.empty_like(first)
    module.reshard(given(module, device, case), out=out)
    allocated = []
    empty, tensor = torch.empty, torch.tensor
    shard = given(module, device, case)
    module.reshard(shard, out=out)
    launches.clear()
    torch.empty = lambda *args, **kwargs: (allocated.append(args), empty(*args, **kwargs))[1]
    torch.tensor = lambda *args, **kwargs: (allocated.append(args), tensor(*args, **kwargs))[1]
    again = module.reshard(shard, out=out)
    torch.empty, torch.tensor = empty, tensor
    assert again is out
    return {
        "device": device,
        "result": bits(first),
        "again": bits(out),
        "launches": launches,
        "allocated": len(allocated),
    }


def counted_copies(module: Any) -> list[int]:
    """From now on, this gets the entries of each launch that packs or unpacks."""
    launches: list[int] = []
    listed = sys.modules[module.__name__.split(".")[0] + "._support.triton_listed"].Listed
    copy = listed.copy

    def counted(self, *addresses):  # type: ignore[no-untyped-def]
        if self.entries:
            launches.append(len(self.entries))
        copy(self, *addresses)

    listed.copy = counted
    return launches


def faults(rank: int, case: dict) -> dict:
    """What is said of one wrong rank, one after another, and then of a right call."""
    module = load(case["module"])
    device = module._HOST.exchange.ranks[rank]
    shard = given(module, device, case)
    wrong = {
        "shape": shard[:, :1].contiguous(),
        "dtype": shard.double(),
        "order": shard.T.contiguous().T,
        "negated": torch._neg_view(shard),
        "none": None,
        "device": shard.to("meta"),
    }
    found = {}
    for name, bad in wrong.items():
        mine = bad if rank == 2 else shard
        found[name] = said(lambda mine=mine: module.reshard(mine))
    right = torch.empty(module.target_shape(device))
    out = torch.empty(3) if rank == 1 else right
    found["out"] = said(lambda: module.reshard(shard, out=out))
    found["transport"] = said(lambda: module.reshard(shard, transport="pigeons"))
    found["symmetric"] = said(lambda: module.reshard(shard, transport="symmetric"))
    mine = None if rank == 0 else "exchange"
    found["differ"] = said(lambda: module.reshard(shard, transport=mine))
    some = dist.new_group([0, 1])
    if rank < 2:
        found["group"] = said(lambda: module.reshard(shard, some))
    other = load(case["other"]) if rank == 3 else module
    found["plans"] = said(lambda: other.reshard(shard))
    gradient = torch.zeros_like(shard, requires_grad=rank == 2)
    found["gradient"] = said(lambda: load(case["plain"]).reshard(gradient))
    found["some gradients"] = said(lambda: load(case["module"]).reshard(gradient))
    result = module.reshard(shard)
    bad = wrong["shape"] if rank == 2 else shard
    found["later"] = said(lambda: module.reshard(bad, check=True))
    found["unheard"] = said(lambda: module.reshard(wrong["shape"]))
    two = load(case["two"])
    found["larger"] = said(lambda: two.reshard(torch.zeros(2)))
    found["memory"] = said(lambda: out_of_memory(module, shard))
    return {"device": device, "result": bits(result), "said": found}


def out_of_memory(module: Any, shard: Any) -> None:
    """Let an exchange run out of memory."""
    processes = module._HOST.processes

    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("full")

    by_exchange, processes.by_exchange = processes.by_exchange, full
    try:
        module.reshard(shard)
    finally:
        processes.by_exchange = by_exchange


def threads(rank: int, case: dict) -> dict:
    """How many results are wrong in two threads, each with a group of its own."""
    module = load(case["module"])
    groups = [dist.new_group([0, 1]) for _ in range(2)]
    shape, wrong = module.source_shape(rank), [0, 0]
    for group in groups:
        module.reshard(torch.zeros(shape), group)

    def work(number: int) -> None:
        for call in range(case["calls"]):
            value = float(1000 * number + call)
            wrong[number] += not (
                module.reshard(torch.full(shape, value), groups[number]) == value
            ).all()

    both = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    return {"wrong": wrong}


def gradients(rank: int, case: dict) -> dict:
    """The gradient of the sum of products with weights that name the target's elements."""
    module = load(case["module"])
    device = module._HOST.exchange.ranks[rank]
    shard = torch.ones(module.source_shape(device), requires_grad=True)
    weights = given_as(module.target_shape(device), case["weights"][str(device)])
    module.reshard(shard).backward(torch._neg_view(-weights))
    refused = said(lambda: module.reshard(shard, out=torch.empty(module.target_shape(device))))
    return {"device": device, "gradient": shard.grad.tolist(), "said": refused}


def given_as(shape: tuple[int, ...], text: str) -> Any:
    """A float32 tensor from hex."""
    raw = bytearray.fromhex(text)
    flat = torch.frombuffer(raw, dtype=torch.float32) if raw else torch.empty(0)
    return flat.reshape(shape)


def dies(rank: int, case: dict) -> dict:
    """What the others say when a rank ends in place of an exchange."""
    module = load(case["module"])
    shard = given(module, module._HOST.exchange.ranks[rank], case)
    group = dist.new_group(list(range(4)), timeout=datetime.timedelta(seconds=5))
    module.reshard(shard, group)
    if rank == 3:
        os._exit(0)
    text = said(lambda: module.reshard(shard, group))
    (Path(case["folder"]) / f"{rank}.said").write_text(text)
    os._exit(0)


def dtensors(rank: int, case: dict) -> dict:
    """reshard_dtensor against DTensor's own redistribute, gradient included; what it refuses."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

    module = load(case["module"])
    mesh = init_device_mesh("cpu", tuple(case["mesh"]), mesh_dim_names=("x", "y"))
    whole = torch.arange(float(torch.Size(module.SHAPE).numel())).view(module.SHAPE)
    before, after = (eval(case[side], {"Shard": Shard, "Replicate": Replicate}) for side in "ab")
    x = distribute_tensor(whole, mesh, before).requires_grad_()
    y = module.reshard_dtensor(x)
    wanted = x.redistribute(mesh, after)
    assert isinstance(y, DTensor)
    assert (y.shape, y.stride(), y.placements) == (wanted.shape, wanted.stride(), wanted.placements)
    assert y.to_local().equal(wanted.to_local())
    weights = distribute_tensor(torch.randn(module.SHAPE), mesh, after)
    dist.broadcast(base := torch.randn(module.SHAPE), 0)
    weights = distribute_tensor(base, mesh, after)
    (y * weights).sum().backward()
    moved, x.grad = x.grad.full_tensor(), None
    (x.redistribute(mesh, after) * weights).sum().backward()
    assert moved.equal(x.grad.full_tensor())
    negated = DTensor.from_local(
        torch._neg_view(-x.to_local().detach()),
        mesh,
        before,
        run_check=False,
        shape=whole.shape,
        stride=whole.stride(),
    )
    assert negated.to_local().is_neg()
    assert module.reshard_dtensor(negated).to_local().equal(wanted.to_local())
    other = init_device_mesh("cpu", (4,), mesh_dim_names=("z",))
    replicated = distribute_tensor(whole, mesh, [Replicate(), Replicate()])
    return {
        "placements": said(lambda: module.reshard_dtensor(replicated)),
        "mesh": said(lambda: module.reshard_dtensor(x.detach(), other)),
    }


class Mapped:
    """Symmetric memory's functions on files that every process maps. A tensor begins some bytes
    into its file, on every rank somewhere else, as in a pool of memory."""

    def __init__(self, rank: int, folder: Path, events: list[str]) -> None:
        self.rank, self.folder, self.events = rank, folder, events
        self.offset = 64 + 16 * rank
        self.made: list[Allocation] = []

    def get_backend(self, device: object) -> str:
        return "CUDA"

    def empty(self, size: int, dtype: Any, device: object) -> Any:
        name, whole = f"{len(self.made)}.memory", 64 + 16 * dist.get_world_size() + size
        (self.folder / f"{self.rank}.{name}").write_bytes(bytes(whole))
        dist.barrier()
        maps = [
            torch.from_file(
                str(self.folder / f"{rank}.{name}"), shared=True, size=whole, dtype=torch.uint8
            )
            for rank in range(dist.get_world_size())
        ]
        self.made.append(Allocation(len(self.made), maps, self.events, self.offset))
        return maps[self.rank][self.offset :][:size]

    def rendezvous(self, buffer: Any, group: object) -> Allocation | None:
        for each in self.made:
            memory = each.maps[self.rank]
            if 0 <= buffer.untyped_storage().data_ptr() - memory.data_ptr() < memory.nbytes:
                return each
        return None


class Allocation:
    """Memory that all have mapped. Ranks that meet over different memory, or at different channels,
    wait for each other in vain."""

    signal_pad_size = 2048

    def __init__(self, number: int, maps: list[Any], events: list[str], offset: int) -> None:
        self.number, self.maps, self.events, self.offset = number, maps, events, offset

    @property
    def buffer_ptrs(self) -> list[int]:
        return [memory.data_ptr() for memory in self.maps]

    def barrier(self, channel: int, timeout_ms: int) -> None:
        assert timeout_ms > 0
        self.events.append("barrier")
        said: list = [None] * dist.get_world_size()
        dist.all_gather_object(said, (self.number, channel))
        if len({*said}) > 1:
            raise RuntimeError("timed out")


class Unshared(Mapped):
    """As where one rank's memory cannot be shared, or where a backend is set already."""

    backend = "CUDA"

    def get_backend(self, device: object) -> str:
        return self.backend

    def rendezvous(self, buffer: Any, group: object) -> Allocation | None:
        if self.rank == 1:
            raise RuntimeError("no handle\nand more")
        return super().rendezvous(buffer, group)


def unshared(rank: int, case: dict) -> dict:
    """What ranks agree upon, on GPUs that are none, where one cannot share its memory, then where
    another has set NVSHMEM: what is taken, the warning, and the error of those who ask for it."""
    own = load(case["module"])._HOST.processes
    there = sys.modules[type(own).__module__.replace("torch_processes", "torch_symmetric")]
    there.symmetric_memory = stand_in = Unshared(rank, Path(case["folder"]), [])
    home, group, found = torch.device("cuda"), dist.group.WORLD, []
    by_pairs = sys.modules[type(own).__module__].by_pairs
    assert by_pairs(torch.device("cpu"), group)
    assert not by_pairs(home, group)
    for backend in ("CUDA", "NVSHMEM" if rank == 2 else "CUDA"):
        stand_in.backend = backend
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            taken = own._agree(group, "", home, None, False)
        asked = said(lambda: own._agree(group, "", home, "symmetric", False))
        found.append([taken, *(str(each.message) for each in warned), asked])
        assert own._agree(group, "", home, "exchange", False) == "exchange"
    return {"found": found}


def hosts(rank: int, case: dict) -> dict:
    """What ranks on two hosts agree upon, on GPUs that are none: where all have fabric handles, but
    one, and where one's memory cannot be mapped all the same."""
    own = load(case["module"])._HOST.processes
    agreement = sys.modules[type(own).__module__]
    there = sys.modules[type(own).__module__.replace("torch_processes", "torch_symmetric")]
    agreement.socket = SimpleNamespace(gethostname=lambda: f"host{rank // 2}")  # type: ignore[attr-defined]
    home, found = torch.device("cuda"), []
    for kind, fabric in ((Mapped, True), (Mapped, rank != 3), (Unshared, True)):
        group = dist.new_group(list(range(4)))
        there.symmetric_memory = kind(rank, Path(case["folder"]), [])  # type: ignore[attr-defined]
        agreement.has_fabric = lambda home, fabric=fabric: fabric  # type: ignore[attr-defined]
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            taken = own._agree(group, "", home, None, False, False)
        asked = said(lambda group=group: own._agree(group, "", home, "symmetric", False, False))
        found.append([taken, *(str(each.message) for each in warned), asked])
    return {"found": found}


class Unset(Mapped):
    """As where no backend, or some, has been set; `sets` are those set since."""

    backend: str | None = None
    sets: list[str]

    def get_backend(self, device: object) -> str | None:
        return self.backend

    def set_backend(self, backend: str) -> None:
        self.backend = backend
        self.sets.append(backend)


def matmul_memory(rank: int, case: dict) -> dict:
    """On GPUs that are none: what ranks say of a matmul where one has set NVSHMEM, and what becomes
    of the backend where memory is shared after it was set, or was not."""
    host = load(case["module"])._HOST
    shared = sys.modules[type(host.ranks).__module__].shared_memory
    there, processes = (
        sys.modules[of.__module__] for of in (shared, shared.__globals__["symmetric"])
    )
    stand_in = there.symmetric_memory = processes.symmetric_memory = Unset(  # type: ignore[attr-defined]
        rank, Path(case["folder"]), []
    )
    stand_in.sets = []
    with FakeTensorMode():
        a, b = (
            torch.zeros(host.shape(side, host.order[rank]), dtype=host.dtype, device="cuda")
            for side in range(2)
        )
    stand_in.backend = "NVSHMEM" if rank == 1 else None
    found = [said(lambda: host.ranks._meet(a, b, dist.group.WORLD))]
    torch.cuda.synchronize = lambda *_: None  # type: ignore[assignment]
    home = torch.device("cuda")
    for backend in ("NVSHMEM", "CUDA", None):
        stand_in.backend = backend
        found.append(said(lambda: shared(64, home, dist.group.WORLD)))
    return {"found": found, "sets": stand_in.sets}


def symmetric(rank: int, case: dict) -> dict:
    """Three calls in a row, with other values between, while each rank is slow in its turn: `slow`
    seconds before it reads, `late` before it calls; `idle` ones after it wrote other values."""
    module = load(case["module"])
    device = module._HOST.exchange.ranks[rank]
    events: list[str] = []
    folder = Path(case["folder"]) / Path(case["module"]).stem
    folder.mkdir(exist_ok=True)
    own = module._HOST
    there = type(own.processes).__module__.replace("torch_processes", "torch_symmetric")
    sys.modules[there].symmetric_memory = Mapped(rank, folder, events)  # type: ignore[attr-defined]
    own.processes._agree = lambda *_: "symmetric"
    puller = own.processes.puller

    def slow(*args):  # type: ignore[no-untyped-def]
        pull = puller(*args)

        def run(outs: list) -> None:
            events.append("pull_kernel")
            time.sleep(case.get("slow", 0.05) * rank)
            pull(outs)

        return run

    own.processes.puller = slow
    shard = given(module, device, case)
    buffer = module._MEMORY.source_buffer(dist.group.WORLD, torch.device("cpu"))
    size = 0 if shard is None else shard.nbytes
    inside = None if shard is None else buffer[:size].view(shard.dtype).view(shard.shape)
    refused, wanted = "", torch.Size(module.LOCAL_TARGET_SHAPE).numel() * own.itemsize
    if own.exchange.ranks == [*own.exchange.target.ids] and wanted <= len(buffer):
        out = buffer[:wanted].view(own.dtype).view(module.LOCAL_TARGET_SHAPE)
        own.processes.kept(dist.group.WORLD)[None] = "cpu", "symmetric"
        refused = said(lambda: module.reshard(shard, out=out))
    results, copied = [], []
    for mine in (shard, shard, inside):
        time.sleep(case.get("late", 0) * rank)
        if mine is inside and mine is not None:
            inside.copy_(shard)  # of what stays here nothing was copied there
        before = buffer[:size].clone()
        results.append(bits(module.reshard(mine)))
        copied.append(not before.equal(buffer[:size]))
        if mine is shard and len(results) == 1:
            # Only now may this rank's memory change: all have read it.
            buffer.zero_()
            time.sleep(case.get("idle", 0))
    return {
        "device": device,
        "results": results,
        "events": events,
        "copied": copied,
        "leaves": any(
            own.exchange.target.ids[piece.receiver] != device
            for piece in own.exchange.outgoing(own.exchange.source_position(device))
            if size
        ),
        "refused": refused,
    }


def on_files(rank: int, case: dict, *modules: Any) -> Mapped:
    """Let modules share memory in files, as ranks of a group that can."""
    folder = Path(case["folder"]) / "files"
    folder.mkdir(exist_ok=True)
    stand_in = Mapped(rank, folder, [])
    for module in modules:
        processes = module._HOST.processes
        there = type(processes).__module__.replace("torch_processes", "torch_symmetric")
        sys.modules[there].symmetric_memory = stand_in  # type: ignore[attr-defined]
        processes._agree = lambda *_: "symmetric"
    return stand_in


def sharing(rank: int, case: dict, group: Any) -> dict:
    """What two modules do with a group's memory, and with tensors of the caller's."""
    one, other = beside(case["modules"])
    memory = on_files(rank, case, one, other)
    shard = given(one, rank, case)
    ours = one._HOST.processes.kept(group)["shared"]
    assert other._HOST.processes.kept(group)["shared"] is ours
    x = given(other, rank, {"shards": case["others"]})
    found = {
        "one": bits(one.reshard(shard, group)),
        "other": bits(other.reshard(x, group)),
        "again": bits(one.reshard(shard, group, programs=1)),
        "made": len(memory.made),
    }
    # Each rank's own begin somewhere else in what it has.
    place, size = memory.empty(512, torch.uint8, None)[16 * rank :], shard.nbytes
    tensors = [place[at : at + size].view(shard.dtype).view(shard.shape) for at in (0, 128)]
    for number, each in enumerate(tensors):
        each.copy_(shard + number)
        assert one.symmetric_source(group, each) is each
    before = ours.workspace.held.clone()
    found["in place"] = [bits(one.reshard(each, group)) for each in tensors]
    found["kept"] = bool(before.equal(ours.workspace.held))
    mine = tensors[rank > 0]
    found["different"] = said(lambda: one.reshard(mine, group))
    strange = shard if rank == 2 else tensors[0]
    found["strange"] = said(lambda: one.symmetric_source(group, strange))
    return found | {"gone": [weakref.ref(ours.workspace.held), weakref.ref(ours)]}


def shared_until_the_end(rank: int, case: dict) -> dict:
    """What modules share of a group, and whether it is there when the group is not any more."""
    group = dist.new_group(list(range(4)))
    found = sharing(rank, case, group)
    dist.destroy_process_group(group)
    del group
    gc.collect()
    return found | {"gone": [each() is None for each in found["gone"]]}


def later(rank: int, case: dict) -> dict:
    """Calls that are waited for later: what is there before, after, and in what order."""
    module = load(case["module"])
    if case["by"] == "symmetric":
        on_files(rank, case, module)
    shard = given(module, rank, case)
    outs = [torch.full(module.target_shape(rank), -1.0) for _ in range(2)]
    works = []
    for number, out in enumerate(outs):
        works.append(module.reshard(shard + number, out=out, async_op=True))
    before = bits(outs[1])
    assert all(w.wait() is out for w, out in reversed([*zip(works, outs, strict=True)]))
    refused = said(lambda: module.reshard(shard.clone().requires_grad_(), async_op=True))
    return {"before": before, "results": [bits(out) for out in outs], "refused": refused}


def pushed(rank: int, case: dict) -> dict:
    """Calls in a row into the same memory, of other bytes each, while each rank is slow in its
    turn: before it pushes, and before it reads its result; then one of a shard that all read."""
    module = load(case["module"])
    memory = on_files(rank, case, module)
    own = module._HOST.phases[-1].processes
    device = own.exchange.ranks[rank]
    push, pushes = own.features["push"], []

    def slow(place: Any, launch: Callable[[], None], number: int) -> Iterator[None]:
        def run() -> None:
            time.sleep(case["slow"] * rank)
            pushes.append(device)
            launch()

        return push.between(place, run, number)

    own.features["push"] = push._replace(between=slow)
    torch.cuda.current_device = lambda: 0
    out = module.symmetric_result()
    assert module.symmetric_result() is out
    shard, results = given(module, device, case), []
    for turn in range(3):
        shard.view(-1).view(torch.uint8).bitwise_xor_(1 if turn else 0)
        asked = {"async_op": True} if turn == 1 else {}
        result = module.reshard(shard, out=out, **asked)
        assert (result.wait() if asked else result) is out
        time.sleep(case["late"] * rank)
        results.append(bits(out))
    made, pushed = len(memory.made), len(pushes)
    source = module.symmetric_source()
    module.reshard(source.copy_(shard), out=out.zero_())
    assert len(pushes) == pushed
    empty = own.exchange.is_empty(own.exchange.target_position(device))
    return {"device": device, "results": results, "made": made, "empty": empty} | {
        "pushes": pushed,
        "pulled": bits(out),
        "barriers": memory.events.count("barrier"),
    }


def refused_results(rank: int, case: dict) -> dict:
    """What is said of memory for results that one rank gets wrong."""
    apart, summed, module = (load(path) for path in case["modules"])
    found = [said(other.symmetric_result) for other in (apart, summed)]
    agree = module._HOST.processes._agree
    memory = on_files(rank, case, module)
    shape, (x, *outs) = (
        module.target_shape(rank),
        (
            memory.empty(96, torch.uint8, None).view(torch.float32).view(module.target_shape(rank))
            for _ in range(3)
        ),
    )
    found.append(said(lambda: module.symmetric_result(out=x[1:] if rank == 3 else x)))
    found.append(said(lambda: module.symmetric_result(out=torch.ones(shape) if rank == 2 else x)))
    module._HOST.processes._agree = agree
    assert module.symmetric_result(out=outs[0]) is outs[0]
    shard = torch.ones(module.source_shape(rank))
    mine = outs[rank == 1]
    found.append(said(lambda: module.reshard(shard, out=mine)))
    return {"found": found}


USERS = "torch_peers", "torch_processes", "torch_remembered", "torch_tensors"
"""What asks whether launches are captured."""


def captured(rank: int, case: dict) -> dict:
    """A call that is captured, as what it launches, and launched again after the workspace has
    become another; whether the one that it reads is there as long as the process."""
    one, other = beside(case["modules"])
    on_files(rank, case, one, other)
    processes, group = one._HOST.processes, dist.group.WORLD
    ours, support = processes.kept(group)["shared"], one.__name__.split(".")[0] + "._support."
    users = [sys.modules[support + n] for n in USERS]
    shard = given(one, rank, case)
    out, graphs = torch.empty(one.target_shape(rank)), []
    by_symmetric_memory = processes.by_symmetric_memory

    def capturing(*given):  # type: ignore[no-untyped-def]
        graphs.append(by_symmetric_memory(*given))
        return graphs[-1]

    one.reshard(shard, out=out)
    for user in users:
        user.capturing = lambda home: True
    processes.by_symmetric_memory = capturing
    one.reshard(shard, out=out)
    for user in users:
        user.capturing = lambda home: False
    before = weakref.ref(ours.workspace.held)
    other.reshard(given(other, rank, {"shards": case["others"]}))
    grown = ours.workspace.held is not before()
    shard.add_(1)
    sys.modules[support + "torch_symmetric"].finished(graphs[0]([shard], [out], group, 0))
    graphs.clear()
    gc.collect()
    return {"grown": grown, "result": bits(out), "kept": before() is not None}


def hurried(rank: int, case: dict) -> dict:
    """Two calls started one after the other, and a third at once, of other bits each time, while
    every rank is later than the one before; a shard is overwritten as soon as it may be. What was
    there of the first before it was waited for, and all results."""
    module = load(case["module"])
    group = dist.new_group(list(range(case["world"])))
    device = module._HOST.exchange.ranks[rank]
    shards = [given(module, device, {"shards": each}) for each in case["calls"]]

    def overwrite(number: int) -> None:
        if shards[number] is not None:
            shards[number].view(-1).view(torch.uint8).bitwise_not_()

    with poisoned():
        outs = [module._HOST.empty(device, torch.device("cpu")) for _ in range(2)]
        time.sleep(case["late"] * rank)
        first = module.reshard(shards[0], group, out=outs[0], async_op=True)
        early = bits(outs[0])
        second = module.reshard(shards[1], group, out=outs[1], async_op=True)
        overwrite(0)
        found = [bits(outs[0])]
        time.sleep(case["late"] * rank)
        assert second.wait() is outs[1]
        overwrite(1)
        found.append(bits(outs[1]))
        time.sleep(case["late"] * rank)
        found.append(bits(module.reshard(shards[2], group)))
        overwrite(2)
        assert first.wait() is outs[0]
    dist.barrier()
    later = [bits(out) for out in outs] == found[:2]
    return {"device": device, "early": early, "results": found, "stays": later}


def grouped(rank: int, case: dict) -> dict:
    """All tensors of a group, twice: results, bytes sent, exchanges, launches."""
    module = load(case["module"])
    device = module._HOST.exchange.ranks[rank]
    launches = counted_copies(module)
    shards = {
        name: given(module._HOST.members[name], device, {"shards": held})
        for name, held in case["members"].items()
    }
    SENT.clear()
    results = module.reshard(shards)
    sent, made = list(SENT), len(launches)
    wanted = results if device in module._HOST.exchange.target.ids else None
    again = module.reshard(shards, out=wanted)
    bad = shards | {"norm1": None if shards["norm1"] is not None else torch.ones(1)}
    mine = bad if rank == 1 else shards
    return {
        "device": device,
        "results": {name: bits(result) for name, result in results.items()},
        "kept": all(again[name] is results[name] for name in results),
        "sent": sent,
        "launches": made,
        "said": said(lambda: module.reshard(mine, check=True)),
    }


def synced(rank: int, case: dict) -> dict:
    """What a rank gets of all tensors of a group, and the bytes that it sends to each rank; None
    in place of all where it has none."""
    module = load(case["module"])
    device = module._HOST.exchange.ranks[rank]
    shards = {
        name: given(module._HOST.members[name], device, {"shards": held})
        for name, held in case["members"].items()
    }
    gives = any(shard is not None for shard in shards.values())
    EACH.clear()
    results = module.reshard(shards if gives else None)
    return {
        "device": device,
        "gave": gives,
        "results": {name: bits(result) for name, result in results.items()},
        "sent": EACH,
    }


def group_gradients(rank: int, case: dict) -> dict:
    """The gradients of the sum of products with weights, of those tensors that have any."""
    module = load(case["module"])
    device = module._HOST.exchange.ranks[rank]
    shards = {}
    for name, member in module._HOST.members.items():
        shards[name] = torch.ones(member.source_shape(device), dtype=member.dtype)
        if member.dtype.is_floating_point:
            shards[name].requires_grad_()
    EACH.clear()
    results = module.reshard(shards)
    terms = [
        (result * given_as(tuple(result.shape), case["weights"][name][str(device)])).sum()
        for name, result in results.items()
        if result.requires_grad
    ]
    sum(terms).backward()
    found = {
        name: None if shard.grad is None else bits(shard.grad) for name, shard in shards.items()
    }
    return {"device": device, "gradients": found, "exchanges": len(EACH)}


def script(rank: int, case: dict) -> dict:
    """What a script prints, with the words that it is called with, in a folder."""
    sys.argv, sys.path[:0] = ["script", *case["words"]], [case["folder"]]
    os.chdir(case["folder"])
    with contextlib.redirect_stdout(io.StringIO()) as lines:
        exec(compile(case["code"], "script", "exec"), {"__name__": "__main__"})
    return {"printed": lines.getvalue()}


def verified(rank: int, case: dict) -> dict:
    """The verdict on a module, as `verify` gives it."""
    from shardwright.codegen.operations.verify import worker

    return worker._verdict(
        worker._runner("triton_gpu"), worker.plain_case(json.dumps(case["case"]))
    )


TASKS: dict[str, Callable[[int, dict], dict]] = {
    "moved": moved,
    "verified": verified,
    "script": script,
    "repeated": repeated,
    "faults": faults,
    "gradients": gradients,
    "dies": dies,
    "dtensors": dtensors,
    "symmetric": symmetric,
    "sharing": shared_until_the_end,
    "later": later,
    "captured": captured,
    "hosts": hosts,
    "pushed": pushed,
    "refused_results": refused_results,
    "hurried": hurried,
    "threads": threads,
    "unshared": unshared,
    "matmul_memory": matmul_memory,
    "grouped": grouped,
    "synced": synced,
    "group_gradients": group_gradients,
}


if __name__ == "__main__":
    main()
