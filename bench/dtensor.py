"""Count the bytes that a rank receives in the collectives of torch DTensor's `redistribute`, under
a fake process group. A separate process, `python -m bench.dtensor`, reads a JSON array per line and
prints a number for each.

The count is that of rank 0, which has the largest shards. On a CPU, torch replaces an all-to-all by
an all-gather, which is counted as an all-to-all. A placement gives only the dimension that a mesh
axis splits, so only shardings with axes in mesh order can be measured.
"""

from __future__ import annotations

import json
import math
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard, placement_types
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode


class Received(TorchDispatchMode):
    """Add up the bytes that rank 0 receives in functional collectives."""

    def __init__(self) -> None:
        super().__init__()
        self.nbytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func).split(".")
        if name[0] == "_c10d_functional" and name[1] != "wait_tensor":
            self._count(name[1], args)
        return func(*args, **(kwargs or {}))

    def _count(self, name: str, args: Any) -> None:
        if name.startswith("_wrap"):
            return
        nbytes = args[0].numel() * args[0].element_size()
        if name == "all_gather_into_tensor":
            self.nbytes += nbytes * (args[1] - 1)
        else:
            raise SystemExit(f"cannot count this collective: {name}")


def count_all_to_alls(counter: Received) -> None:
    """Count DTensor's change of the sharded dimension as one all-to-all."""
    original = placement_types.shard_dim_alltoall

    def counted(local: Any, gather: int, shard: int, mesh: Any, mesh_dim: int) -> Any:
        members = mesh.size(mesh_dim)
        counter.nbytes += local.numel() * local.element_size() * (members - 1) // members
        before = counter.nbytes
        result = original(local, gather, shard, mesh, mesh_dim)
        counter.nbytes = before
        return result

    placement_types.shard_dim_alltoall = counted


def placements(dims: list[int | None]) -> list[Placement]:
    """Return the placements, given the dimension that each mesh axis splits, or None."""
    return [Replicate() if dim is None else Shard(dim) for dim in dims]


def main() -> None:
    """Print the bytes for every line of input. A line has the sizes of the mesh, the shape, and the
    dimension that each axis splits before and after."""
    counter, started = Received(), False
    count_all_to_alls(counter)
    for line in sys.stdin:
        sizes, shape, source, target = json.loads(line)
        if not started:
            dist.init_process_group("fake", rank=0, world_size=math.prod(sizes), store=FakeStore())
            started = True
        mesh = init_device_mesh("cpu", tuple(sizes))
        local = list(shape)
        for size, dim in zip(sizes, source, strict=True):
            if dim is not None:
                local[dim] = -(-local[dim] // size)
        held = DTensor.from_local(
            torch.zeros(local), mesh, placements(source), run_check=False,
            shape=torch.Size(shape), stride=(shape[1], 1),
        )  # fmt: skip
        counter.nbytes = 0
        with counter:
            held.redistribute(mesh, placements(target))
        print(counter.nbytes, flush=True)


main()
