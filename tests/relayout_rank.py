"""A rank of a relayout's module: MODULE RANK PORT, its buffers in FOLDER/given.npz, by number of
elements; what it has afterwards goes to FOLDER/RANK.npz. Floats have gradients, of squares."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

path, rank, port = sys.argv[1], int(sys.argv[2]), sys.argv[3]
module = runpy.run_path(path)
address = f"tcp://localhost:{port}"
dist.init_process_group("gloo", init_method=address, rank=rank, world_size=len(module["RANKS"]))
device, folder = module["RANKS"][rank], Path(path).parent
held = np.load(folder / "given.npz")
given = {name: held[f"{device} {name}"] for name in module["SOURCE"] if f"{device} {name}" in held}
shards = {name: torch.from_numpy(each) for name, each in given.items()} or None
for _ in range(2):
    moved = module["reshard"](shards)
found = {name: x.numpy() for name, x in (moved or {}).items()}
if shards and all(x.is_floating_point() for x in shards.values()):
    for x in shards.values():
        x.requires_grad_()
    sum((x * x).sum() for x in module["reshard"](shards).values()).backward()
    found |= {f"{name}'": x.grad.numpy() for name, x in shards.items()}
np.savez(folder / f"{rank}.npz", **found)
dist.destroy_process_group()
