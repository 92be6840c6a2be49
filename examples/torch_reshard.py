"""A reshard of a DTensor: a module is emitted for two tuples of placements, and called with a
DTensor.

At first the rows are split over the first dimension of a 2 x 2 mesh and the columns over the
second; then the other way around. The module moves only the bytes that devices lack. The example
compares the result with that of `redistribute`. It runs in four processes on a CPU, over gloo; for
GPUs, pass "cuda" to `init_device_mesh`:

    torchrun --nproc-per-node 4 examples/torch_reshard.py
"""

import importlib
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

import shardwright as sw

mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("x", "y"))
before, after = (Shard(0), Shard(1)), (Shard(1), Shard(0))

if dist.get_rank() == 0:  # one process writes, all import
    reshard = sw.Reshard((10, 6), torch.float32, before, after, mesh=mesh)
    bundle = sw.emit(reshard, backends=("triton_gpu",), gradient=True)
    bundle.write(Path(__file__).parent / "kernels" / "placements")
dist.barrier()
module = importlib.import_module("kernels.placements.triton_gpu")

torch.manual_seed(0)
x = distribute_tensor(torch.randn(10, 6), mesh, before).requires_grad_()
y = module.reshard_dtensor(x)
assert y.placements == after
assert y.to_local().equal(x.redistribute(mesh, after).to_local())

y.to_local().square().sum().backward()
assert x.grad.to_local().equal(2 * x.to_local())
print(f"rank {dist.get_rank()}: shards and gradients are right")
dist.destroy_process_group()
