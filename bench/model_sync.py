"""Move whole models on gloo processes: in one exchange, and tensor by tensor with DTensor's
`redistribute`.

Toy models like Llama-3, Qwen3-MoE and DeepSeek-V3 move from FSDP2 x TP to DP x TP, or to TP over
all ranks. Source and target are on the same ranks, so that DTensor can express the moves. DTensor's
results are then stacked as a server stores them; ours arrive stacked. Seconds are the median of
TURNS calls on the slowest rank. Bytes are those of the busiest rank. For DTensor they are counted
in its collectives twice: as they run on a CPU, where an all-to-all is an all-gather, and as they
would run on a GPU.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TURNS = 7
WIDTH = 512
MEMORY_LIMIT = 8 << 20
MESHES = {4: (2, 2), 8: (4, 2)}
SERVERS = {"DP x TP": ("tp",), "TP": ("dp", "tp")}
"""The axes along which each server cuts tensors."""

Table = dict[str, tuple[tuple[int, int], tuple[int, int], int | None, str]]
"""For each tensor: its shape, the dimensions that fsdp and tp cut before, the dimension that tp
cuts after, and the buffer in which it is stacked."""


def dense(prefix: str, width: int) -> Table:
    """Return the attention tensors of Llama-3 and Qwen3."""
    qkv = f"{prefix}qkv"
    return {
        f"{prefix}q": ((2 * width, width), (0, 0), 0, qkv),
        f"{prefix}k": ((width // 2, width), (0, 0), 0, qkv),
        f"{prefix}v": ((width // 2, width), (0, 0), 0, qkv),
        f"{prefix}o": ((width, 2 * width), (0, 1), 1, f"{prefix}o"),
    }


def mlp(prefix: str, width: int, rows: int) -> Table:
    """Return an MLP: gate, up and down."""
    stacked = f"{prefix}gate_up"
    return {
        f"{prefix}gate": ((rows, width), (0, 0), 0, stacked),
        f"{prefix}up": ((rows, width), (0, 0), 0, stacked),
        f"{prefix}down": ((width, rows), (0, 1), 1, f"{prefix}down"),
    }


def models(width: int = WIDTH) -> dict[str, Table]:
    """Return the toy models."""
    llama: Table = {}
    for layer in range(4):
        llama |= dense(f"layers.{layer}.", width) | mlp(f"layers.{layer}.", width, 4 * width)
    qwen = dense("layers.0.", width)
    for expert in range(32):
        qwen |= mlp(f"layers.0.experts.{expert}.", width, width // 2)
    deepseek: Table = {
        "layers.0.q_a": ((width, 4 * width), (0, 1), None, "layers.0.fused_a"),
        "layers.0.kv_a": ((width // 2, 4 * width), (0, 1), None, "layers.0.fused_a"),
        "layers.0.q_b": ((4 * width, width), (0, 0), 0, "layers.0.q_b"),
        "layers.0.kv_b": ((4 * width, width // 2), (0, 0), 0, "layers.0.kv_b"),
    }
    for expert in range(32):
        deepseek |= mlp(f"layers.0.experts.{expert}.", width, width // 2)
    return {"Llama-3": llama, "Qwen3-MoE": qwen, "DeepSeek-V3": deepseek}


def main() -> None:
    print(
        "| toy | tensors | server | ranks "
        "| MB: ours | the bound | DTensor | on a GPU | s: ours | DTensor |"
    )
    print("|---|--:|---|--:|--:|--:|--:|--:|--:|--:|")
    for ranks in MESHES:
        for name, table in models().items():
            for server in SERVERS:
                print(row(name, table, server, ranks), flush=True)


def row(name: str, table: Table, server: str, ranks: int) -> str:
    found = measured(table, server, ranks)
    ours, bound, theirs, on_gpu = (
        max(each[key] for each in found) for key in ("ours", "bound", "dtensor", "on_gpu")
    )
    seconds = (max(each[key] for each in found) for key in ("seconds", "dtensor_seconds"))
    numbers = (
        *(f"{each / 1e6:.1f}" for each in (ours, bound, theirs, on_gpu)),
        *(f"{each:.3f}" for each in seconds),
    )
    return f"| {name} | {len(table)} | {server} | {ranks} | {' | '.join(numbers)} |"


def measured(table: Table, server: str, ranks: int) -> list[dict[str, float]]:
    """Return each rank's measurements. The ranks are forked processes, so that torch is loaded only
    once."""
    with tempfile.TemporaryDirectory() as folder:
        import torch

        torch.set_num_threads(1)
        pids = []
        for rank in range(ranks):
            pid = os.fork()
            if not pid:
                try:
                    of_rank(table, server, rank, ranks, Path(folder))
                except Exception:
                    traceback.print_exc()
                finally:
                    os._exit(0)
            pids.append(pid)
        for pid in pids:
            os.waitpid(pid, 0)
        return [json.loads(Path(folder, f"{rank}.json").read_text()) for rank in range(ranks)]


def of_rank(table: Table, server: str, rank: int, ranks: int, folder: Path) -> None:
    """Measure our module and DTensor on one rank, compare their results, and write the measurements
    to `folder`."""
    import torch
    import torch.distributed as dist

    store = f"file://{folder}/store"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=ranks)
    mesh = dist.device_mesh.init_device_mesh("cpu", MESHES[ranks], mesh_dim_names=("fsdp", "tp"))
    weights, bound = planned(table, server, ranks)
    given = dict(tensors(table, mesh))
    state = {name: x.to_local().contiguous() for name, x in given.items()}
    ours, seconds = timed(lambda: weights(state))
    counter = received()
    with counter:
        redistributed(table, server, given, mesh)
    nbytes, on_gpu = counter.nbytes, counter.on_gpu
    theirs, dtensor_seconds = timed(lambda: redistributed(table, server, given, mesh))
    assert {*ours} == {*theirs}
    for name, x in theirs.items():
        assert torch.equal(ours[name], x), name
    sizes = {
        "ours": sum(sum(m.stop - m.start for m in s.receives) for s in weights.steps(rank, False)),
        "bound": bound[rank],
        "dtensor": nbytes,
        "on_gpu": on_gpu,
        "seconds": seconds,
        "dtensor_seconds": dtensor_seconds,
    }
    (folder / f"{rank}.json").write_text(json.dumps(sizes))


def planned(table: Table, server: str, ranks: int) -> tuple[Any, dict[int, int]]:
    """Return a function that moves the model, and the minimum bytes that each device must
    receive."""
    import shardwright as sw
    from shardwright.templates.support.torch_model import Weights

    fsdp, tp = MESHES[ranks]
    model = sw.Model({name: shape for name, (shape, *_) in table.items()}, "bfloat16")
    source, target, stacked = {}, {}, {}
    for name, (_, dims, after, buffer) in table.items():
        before = "{tp,fsdp}, {}" if dims == (0, 0) else "{fsdp}, {tp}"
        source[name] = f"_[{before}]"
        axes = ",".join(SERVERS[server])
        cut = ", ".join(f"{{{axes}}}" if dim == after else "{}" for dim in (0, 1))
        stacked.setdefault(buffer, []).append(f"{name}[{cut}]")
    for buffer, parts in stacked.items():
        target[buffer] = f"stack(0, {', '.join(parts)})" if len(parts) > 1 else parts[0]
    plan = sw.sync(
        model,
        sw.Rules(f"fsdp={fsdp},tp={tp}", source),
        sw.Rules(f"dp={fsdp},tp={tp}", target),
        memory_limit=MEMORY_LIMIT,
    ).plan
    return Weights(plan.data), plan.received


def tensors(table: Table, mesh: Any) -> Iterator[tuple[str, Any]]:
    """Yield random DTensors with their names, stored as FSDP2 does: it cuts the shards of tensor
    parallelism."""
    import torch
    from torch.distributed.tensor import DTensor, Shard
    from torch.distributed.tensor.placement_types import _StridedShard

    fsdp, tp = mesh.get_coordinate()
    for number, (name, (shape, dims, _, _)) in enumerate(table.items()):
        torch.manual_seed(number)
        whole = torch.randn(shape, dtype=torch.bfloat16)
        local = whole.chunk(mesh.size(1), dims[1])[tp].chunk(mesh.size(0), dims[0])[fsdp]
        strided = _StridedShard(0, split_factor=mesh.size(1))
        placements = [strided if dims == (0, 0) else Shard(0), Shard(dims[1])]
        given = local.contiguous(), mesh, placements
        yield name, DTensor.from_local(*given, shape=whole.shape, stride=whole.stride())


def redistributed(table: Table, server: str, given: dict[str, Any], mesh: Any) -> dict[str, Any]:
    """Return the server's buffers as DTensor makes them."""
    import torch
    from torch.distributed.tensor import Replicate, Shard

    parts: dict[str, list[Any]] = {}
    for name, (_, _, after, buffer) in table.items():
        placements = [
            Replicate() if after is None or axis not in SERVERS[server] else Shard(after)
            for axis in ("dp", "tp")
        ]
        parts.setdefault(buffer, []).append(given[name].redistribute(mesh, placements).to_local())
    return {name: torch.cat(each) if len(each) > 1 else each[0] for name, each in parts.items()}


def timed(act: Any) -> tuple[Any, float]:
    """Return the result of a first call, and the median seconds of TURNS later calls."""
    import torch.distributed as dist

    result, seconds = act(), []
    for _ in range(TURNS):
        dist.barrier()
        began = time.perf_counter()
        act()
        seconds.append(time.perf_counter() - began)
    return result, statistics.median(seconds)


def received() -> Any:
    """Return a torch dispatch mode that adds up the bytes that this rank receives in functional
    collectives."""
    import torch
    from torch.distributed.tensor import placement_types
    from torch.utils._python_dispatch import TorchDispatchMode

    class Received(TorchDispatchMode):
        nbytes = on_gpu = 0

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            room, _, name = str(func).partition(".")
            if room == "_c10d_functional" and not name.startswith(("wait_tensor", "_wrap")):
                if not name.startswith("all_gather_into_tensor"):
                    raise SystemExit(f"cannot count this collective: {func}")
                brought = args[0].nbytes * (args[1] - 1)
                self.nbytes += brought
                self.on_gpu += 0 if self.inside else brought
            return func(*args, **(kwargs or {}))

        inside = False

    mode, whole = Received(), placement_types.shard_dim_alltoall

    def counted(local: Any, gather: int, shard: int, mesh: Any, mesh_dim: int) -> Any:
        members = mesh.size(mesh_dim)
        mode.on_gpu += local.nbytes * (members - 1) // members
        mode.inside = True
        try:
            return whole(local, gather, shard, mesh, mesh_dim)
        finally:
            mode.inside = False

    placement_types.shard_dim_alltoall = counted
    del torch
    return mode
