"""One process of a gloo group: runs emitted modules and reports what it received.

Arguments: rank, world size, the file of the group's store, a file of JSON cases. Each case is a
module's path and a bit pattern seed; the target shard, as bytes in hex, and the bytes sent to
other ranks are printed as one JSON line a case.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist

SENT: list[int] = []


def main(rank: int, world: int, store: str, cases: str) -> None:
    dist.init_process_group("gloo", store=dist.FileStore(store, world), rank=rank, world_size=world)
    exchange = dist.all_to_all_single

    def counted(output, packed, received, sent, group=None):  # type: ignore[no-untyped-def]
        assert sent[rank] == 0, "sends to itself through the group"
        SENT.append(sum(sent))
        return exchange(output, packed, received, sent, group=group)

    dist.all_to_all_single = counted
    for case in json.loads(Path(cases).read_text()):
        print(json.dumps(run(rank, case)), flush=True)
    dist.destroy_process_group()


def run(rank: int, case: dict) -> dict:
    """The result of one case on this rank."""
    module = load(case["module"])
    group = dist.new_group(list(range(case["world"])))
    if rank >= case["world"]:
        return {"outside": True}
    device = module.RANKS[rank]
    shard = None
    if str(device) in case["shards"]:
        raw = bytearray.fromhex(case["shards"][str(device)])
        dtype = getattr(torch, module.DTYPE)
        flat = torch.frombuffer(raw, dtype=dtype) if raw else torch.empty(0, dtype=dtype)
        shard = flat.reshape(module.source_shape(device))
    result = module.reshard(shard, group)
    found = None
    if result is not None:
        found = bytes(result.reshape(-1).view(torch.uint8).tolist()).hex()
    return {"device": device, "result": found, "sent": SENT.pop()}


def load(path: str):  # type: ignore[no-untyped-def]
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4])
