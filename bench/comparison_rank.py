"""Run the cases of `bench.comparison` with torch's DTensor and with emitted modules.

torchrun starts this on four gloo processes; the first process prints a line of JSON for each case.
A mesh with two axes also gets a flattened axis, as in programs that gather over both axes.
"""

from __future__ import annotations

import importlib
import json
import sys
import tempfile
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

import shardwright as sw

KINDS = {"R": Replicate(), "S0": Shard(0), "S1": Shard(1), "P": Partial()}


def mesh_of(ids: list[Any]) -> DeviceMesh:
    mesh = DeviceMesh("cpu", torch.tensor(ids), mesh_dim_names=("x", "y")[: torch.tensor(ids).ndim])
    if mesh.ndim == 2:
        mesh._flatten("xy")
    return mesh


def held(x: torch.Tensor, mesh: DeviceMesh, kinds: list[str]) -> DTensor:
    """Return `x` as a DTensor. All terms of a partial sum are equal to `x` divided by the number of
    terms."""
    placements = [KINDS[kind] for kind in kinds]
    if "P" not in kinds:
        return distribute_tensor(x, mesh, placements)
    terms = x / mesh.size(kinds.index("P"))
    return DTensor.from_local(terms, mesh, placements, run_check=False)


def by_torch(case: dict[str, Any], x: torch.Tensor) -> torch.Tensor:
    """Return the whole tensor after `redistribute`."""
    mesh, target = mesh_of(case["source_ids"]), [KINDS[kind] for kind in case["target"]]
    there = mesh if case["target_ids"] == case["source_ids"] else mesh_of(case["target_ids"])
    return held(x, mesh, case["source"]).redistribute(there, target).full_tensor()


def by_module(case: dict[str, Any], x: torch.Tensor, folder: str) -> torch.Tensor:
    """Return the whole tensor after the reshard by a module emitted for the case."""
    mesh = mesh_of(case["source_ids"])
    sides = [tuple(KINDS[kind] for kind in case[side]) for side in ("source", "target")]
    reshard = sw.Reshard(tuple(x.shape), x.dtype, *sides, mesh=mesh)
    if dist.get_rank() == 0:
        sw.emit(reshard, backends=("triton_gpu",)).write(f"{folder}/modules/{case['name']}")
    dist.barrier()
    module = importlib.import_module(f"modules.{case['name']}.triton_gpu")
    found = module.reshard_dtensor(held(x, mesh, case["source"]))
    whole = case["target"] == ["R", "R"]
    result: torch.Tensor = found.to_local() if whole else found.full_tensor()
    return result


def said(case: dict[str, Any], x: torch.Tensor, made: Any) -> str:
    """Run `made` and return `right`, the fault, or the reason for a refusal."""
    try:
        found = made()
    except NotImplementedError as error:
        return f"refused: {error}".split("\n")[0]
    if found.shape == x.shape and found.equal(x):
        return "right"
    return f"wrong values: rows begin {[int(value) for value in found[:, 0]]}"


def main() -> None:
    """Run every case in the file named by the first argument and print the answers."""
    dist.init_process_group("gloo")
    folder = [tempfile.mkdtemp() if dist.get_rank() == 0 else ""]
    dist.broadcast_object_list(folder)
    sys.path.insert(0, folder[0])
    with open(sys.argv[1], encoding="utf-8") as file:
        cases = json.load(file)
    for case in cases:
        x = torch.arange(float(case["shape"][0] * case["shape"][1])).view(case["shape"])
        answer = {"torch": said(case, x, lambda c=case, x=x: by_torch(c, x))}
        if case["source_ids"] == case["target_ids"]:
            answer["module"] = said(case, x, lambda c=case, x=x: by_module(c, x, folder[0]))
        if dist.get_rank() == 0:
            print(json.dumps(answer), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
