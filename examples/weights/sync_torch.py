"""RL weight sync in torch: a trainer's shards (FSDP x TP) become those of an inference server.

The trainer runs on ranks 0 to 3. The server runs on the ranks of its mesh in the config: two others
(`disjoint`), or two of the trainer's and one more (`overlapping`). No rank gathers a whole tensor,
and all tensors move in one exchange. Emit the group first, then start a process for each device:

    shardwright emit examples/weights/disjoint.toml
    torchrun --nproc-per-node 6 examples/weights/sync_torch.py disjoint

    shardwright emit examples/weights/overlapping.toml
    torchrun --nproc-per-node 5 examples/weights/sync_torch.py overlapping
"""

import importlib
import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Shard, distribute_tensor

# The placements of the trainer's DTensors on its mesh of fsdp x tp, as in the config.
ROWS_FIRST, COLUMNS_FIRST = (Shard(0), Shard(1)), (Shard(1), Shard(0))
TRAINED = {
    "embed": ((50, 24), ROWS_FIRST),
    "layer0.wq": ((24, 24), COLUMNS_FIRST),
    "layer0.wo": ((24, 24), ROWS_FIRST),
    "layer0.w1": ((64, 24), COLUMNS_FIRST),
    "layer0.w2": ((24, 64), ROWS_FIRST),
}
SERVER = {"disjoint": (4, 5), "overlapping": (2, 3, 4)}
# The dimension that the server splits over its ranks.
SPLIT = {"embed": 0, "layer0.wq": 0, "layer0.wo": 1, "layer0.w1": 0, "layer0.w2": 1}


def main(name: str) -> None:
    """Move the weights twice, as after two training steps, and check the server's tensors."""
    dist.init_process_group("gloo")
    rank, server = dist.get_rank(), SERVER[name]
    trainer = DeviceMesh("cpu", [[0, 1], [2, 3]], mesh_dim_names=("fsdp", "tp"))
    weights = importlib.import_module(name).load("weights", "triton_gpu")
    for step in range(2):
        whole = tensors(step)
        # A rank outside the trainer passes None for each tensor; the result has the same keys.
        held = shards(whole, trainer) if rank < 4 else dict.fromkeys(whole)
        received = weights.reshard(held)
        if rank in server:
            check(received, whole, server.index(rank), len(server))
    print(f"rank {rank}: {'its weights arrived' if rank in server else 'done'}")
    dist.destroy_process_group()


def tensors(step: int) -> dict[str, torch.Tensor]:
    """Return the whole tensors, the same on every rank; only this example needs whole tensors."""
    torch.manual_seed(step)
    named = {key: torch.randn(shape) for key, (shape, _) in TRAINED.items()}
    return named | {"layer0.norm": torch.randn(24)}


def shards(whole: dict[str, torch.Tensor], mesh: DeviceMesh) -> dict[str, torch.Tensor]:
    """Return the shards of a trainer rank: `parameter.to_local()` of each DTensor."""
    placed = {
        key: distribute_tensor(whole[key], mesh, placements)
        for key, (_, placements) in TRAINED.items()
    }
    norm = distribute_tensor(whole["layer0.norm"], mesh["fsdp"], [Shard(0)])
    return {key: x.to_local().contiguous() for key, x in (placed | {"layer0.norm": norm}).items()}


def check(
    received: dict[str, torch.Tensor], whole: dict[str, torch.Tensor], number: int, count: int
) -> None:
    """Compare a server rank's tensors with its part of the whole tensors."""
    for key, dim in SPLIT.items():
        extent = -(-whole[key].shape[dim] // count)
        assert received[key].equal(whole[key].split(extent, dim)[number]), key
    assert received["layer0.norm"].equal(whole["layer0.norm"])


if __name__ == "__main__":
    main(sys.argv[1])
