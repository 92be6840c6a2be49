"""RL weight sync of a whole model in torch: from a trainer with pipeline stages to a server with
packed weights.

The trainer has two stages of four ranks, with tensor parallelism and FSDP2; each expert is on one
rank. The server has two ranks; each stores its parts of a layer's q, k and v in one buffer, and
half of the experts. One call moves all tensors, with at most 16 KiB of messages in flight on any
rank. The script forks the ten ranks:

    python examples/models/sync_torch.py
"""

import os
import tempfile
import zlib

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import shardwright as sw

WIDTH, EXPERTS = 32, 8
STAGES = ([0, 1, 2, 3], [4, 5, 6, 7])
SERVER = [8, 9]
SHAPES = {"q": (64, WIDTH), "k": (32, WIDTH), "v": (32, WIDTH), "o": (WIDTH, 64)}


def plan() -> sw.Sync:
    """Return the `Sync` that moves the model; every rank makes the same plan."""
    tensors = {f"layers.{{0,1}}.{name}.weight": shape for name, shape in SHAPES.items()}
    tensors[f"layers.{{0,1}}.experts.{{0..{EXPERTS - 1}}}.weight"] = (WIDTH, WIDTH)
    trainer = {}
    for layer, ids in enumerate(STAGES):
        mesh = sw.Mesh({"fsdp": 2, "tp": 2}, ids)
        # FSDP2 splits each tensor-parallel shard along its rows.
        trainer[f"layers.{layer}.o.weight"] = {"layout": "_[{fsdp}, {tp}]", "mesh": mesh}
        trainer[f"layers.{layer}.{{q,k,v}}.weight"] = {"layout": "_[{tp,fsdp}]", "mesh": mesh}
        trainer[f"layers.{layer}.experts.*.weight"] = {
            "layout": "_",
            "mesh": sw.Mesh({"ep": 4}, ids),
            "at": {"ep": f"$1 // {EXPERTS // 4}"},
        }
    qkv = ", ".join(f"layers.*.{name}.weight[{{tp}}]" for name in "qkv")
    server = {
        "layers.*.qkv.weight": f"stack(0, {qkv})",
        "layers.*.o.weight": "_[{}, {tp}]",
        "layers.*.experts.*.weight": {"layout": "_", "at": {"tp": f"$2 // {EXPERTS // 2}"}},
    }
    on_server = sw.Rules(sw.Mesh({"tp": 2}, SERVER), server)
    model = sw.Model(tensors, "float32")
    return sw.sync(model, sw.Rules("fsdp=2", trainer), on_server, memory_limit=16384)


def whole(name: str, shape: tuple[int, int], step: int) -> torch.Tensor:
    """Return a whole tensor, the same on every rank; the sync itself needs none."""
    torch.manual_seed(zlib.crc32(f"{name} {step}".encode()))
    return torch.randn(shape)


def layer_of(rank: int, step: int) -> nn.Module:
    """Return the whole layer of a rank's stage."""
    stage = rank // 4
    layer = nn.Module()
    for name, (rows, columns) in SHAPES.items():
        part = nn.Linear(columns, rows, bias=False)
        part.weight.data = whole(f"layers.{stage}.{name}.weight", (rows, columns), step)
        layer.add_module(name, part)
    return layer


def state_of(rank: int, meshes: list[DeviceMesh], step: int) -> dict[str, torch.Tensor]:
    """Return the state dict of a trainer rank. The sync moves only the local tensors of
    DTensors."""
    stage, mesh = rank // 4, meshes[rank // 4]
    layer = layer_of(rank, step)
    ways = {name: ColwiseParallel() for name in "qkv"} | {"o": RowwiseParallel()}
    parallelize_module(layer, mesh["tp"], ways)
    fully_shard(layer, mesh=mesh["fsdp"])
    state = {f"layers.{stage}.{name}": x for name, x in layer.state_dict().items()}
    for number in range(EXPERTS):
        if number // (EXPERTS // 4) == rank % 4:
            name = f"layers.{stage}.experts.{number}.weight"
            state[name] = whole(name, (WIDTH, WIDTH), step)
    return state


def check(received: dict[str, torch.Tensor], tp: int, step: int) -> None:
    """Compare a server rank's tensors with its part of the whole tensors."""
    for layer in range(2):
        name = f"layers.{layer}"
        parts = [whole(f"{name}.{each}.weight", SHAPES[each], step).chunk(2)[tp] for each in "qkv"]
        assert received[f"{name}.qkv.weight"].equal(torch.cat(parts))
        rows = whole(f"{name}.o.weight", SHAPES["o"], step)
        assert received[f"{name}.o.weight"].equal(rows.chunk(2, dim=1)[tp])
        for number in range(tp * EXPERTS // 2, (tp + 1) * EXPERTS // 2):
            expert = f"{name}.experts.{number}.weight"
            assert received[expert].equal(whole(expert, (WIDTH, WIDTH), step))


def main(rank: int, store: str) -> None:
    """Move the weights twice, as after two training steps, and check the server's tensors."""
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=10)
    meshes = [
        DeviceMesh("cpu", [ids[:2], ids[2:]], mesh_dim_names=("fsdp", "tp")) for ids in STAGES
    ]
    weights = plan()
    out = None
    for step in range(2):
        state = state_of(rank, meshes, step) if rank not in SERVER else None
        received = weights(state, out=out, digest=True, timeout=60)
        if rank in SERVER:
            check(received, SERVER.index(rank), step)
            out = received  # the next step writes into the same tensors
    if rank == SERVER[0]:
        print(weights)
    dist.barrier()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.start_processes(
            main, (os.path.join(folder, "store"),), nprocs=10, start_method="fork"
        )
    print("all weights arrived")
