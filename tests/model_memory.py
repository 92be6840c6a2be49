"""Memory of ranks while they move a toy model, by the system: TOY WIDTH LIMIT. Of each rank a line
of JSON: bytes in flight by its plan, and by how much its memory grew at most during a call.

All that a rank stores before and after is there before it is measured. Blocks of malloc that are
large go back to the system when they are freed (MALLOC_MMAP_THRESHOLD_), so that no earlier call
leaves memory for a later one.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from toy_models import TOYS, planned

from shardwright.templates.support.torch_model import Weights

TRAINER, SERVER = [0, 1, 2, 3], [3, 4, 5]


DTYPES = {torch.float8_e4m3fn: torch.uint8}
"""What `torch.ones` makes in place of a dtype."""


def main(toy: str, width: str, limit: str) -> None:
    """Move the toy on forked ranks, with digests and without."""
    torch.set_num_threads(1)
    data = planned(TOYS[toy](TRAINER, SERVER, int(width)), int(limit)).data
    weights = Weights(data)
    with tempfile.TemporaryDirectory() as folder:
        pids = []
        for rank in range(len(weights.moves.ranks)):
            pid = os.fork()
            if not pid:
                try:
                    measured(weights, rank, Path(folder))
                finally:
                    os._exit(0)
            pids.append(pid)
        for pid in pids:
            os.waitpid(pid, 0)
        for rank in range(len(pids)):
            print(Path(folder, f"{rank}.json").read_text())


def measured(weights: Weights, rank: int, folder: Path) -> None:
    """Write what a rank used."""
    store = f"file://{folder}/store"
    ranks = weights.moves.ranks
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=len(ranks))
    device = ranks[rank]
    state, out = (filled(weights.shapes(device, end)) for end in (0, 1))
    said: dict[str, Any] = {"stored": sum(x.nbytes for x in (*state.values(), *out.values()))}
    for digest in (False, True):
        weights(state, out=out, digest=digest)  # connects, and makes what is kept
        steps = weights.steps(device, digest)
        dist.barrier()
        before = now("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # the peak is what there is now
        weights(state, out=out, digest=digest)
        grew = now("VmHWM") - before
        staged = max(step.size for step in steps) * min(2, len(steps))
        said[f"digest={digest}"] = {"staged": staged, "grew": grew}
    (folder / f"{rank}.json").write_text(json.dumps(said))


def filled(shapes: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Tensors all of whose pages are there."""
    return {
        name: torch.ones(shape, dtype=DTYPES.get(dtype, dtype)).view(dtype)
        for name, (dtype, shape) in shapes.items()
    }


def now(field: str) -> int:
    """Bytes of a field of this process's status."""
    found = re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) << 10


if __name__ == "__main__":
    main(*sys.argv[1:])
