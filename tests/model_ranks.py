"""Ranks that move models, forked by one process: SCENARIOS, a file with a line of JSON for each.

A scenario has a folder with model.json, and for each device ID.npz, what it stores, by dtype and
name. A rank writes what it has afterwards to RANK.out.npz, or the error to RANK.txt.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from shardwright.templates.support import torch_model

LIMIT_S = 40
"""Seconds in which all ranks of a scenario must have ended."""
INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def main() -> None:
    """Run all scenarios, one after another."""
    torch.set_num_threads(1)
    for line in Path(sys.argv[1]).read_text().splitlines():
        scenario = json.loads(line)
        began = time.monotonic()
        pids = [forked(scenario, rank) for rank in range(scenario["ranks"])]
        left = set(pids)
        while left and time.monotonic() - began < LIMIT_S:
            left -= {pid for pid in left if os.waitpid(pid, os.WNOHANG)[0]}
            time.sleep(0.01)
        for pid in left:
            os.kill(pid, 9)
            os.waitpid(pid, 0)
        ended = {"hung": len(left), "seconds": time.monotonic() - began}
        Path(scenario["folder"], "ended.json").write_text(json.dumps(ended))


def forked(scenario: dict[str, Any], rank: int) -> int:
    """Fork a rank; return its process id."""
    pid = os.fork()
    if pid:
        return pid
    folder = Path(scenario["folder"])
    try:
        store = f"file://{folder}/store"
        dist.init_process_group("gloo", init_method=store, rank=rank, world_size=scenario["ranks"])
        moved(scenario, rank, folder)
    except BaseException as error:
        (folder / f"{rank}.txt").write_text(f"{type(error).__name__}: {error}")
    os._exit(0)


def moved(scenario: dict[str, Any], rank: int, folder: Path) -> None:
    """Make the calls of a rank."""
    data = json.loads((folder / "model.json").read_text())
    fault = scenario.get("fault", {})
    mine = fault if fault.get("rank") == rank else {}
    kind = mine.get("kind", "")
    if kind == "other model":
        data["digest"] = "another"
    weights = torch_model.Weights(data)
    device = weights.moves.ranks[rank]
    state = loaded(folder / f"{device}.npz")
    name = next(iter(state), "")
    options: dict[str, Any] = {"timeout": scenario["timeout"], "digest": scenario["digest"]}
    planted(kind, mine, state, name, options, weights)
    said: list[Any] = []
    progress = options.pop("progress", lambda *given: said.append(given))
    for _ in range(scenario.get("calls", 1)):
        said.clear()
        results = weights(state, progress=progress, **options)
    held = {f"{x.dtype} {name}": line(x).numpy() for name, x in results.items()}
    np.savez(folder / f"{rank}.out.npz", **held)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    steps = weights.steps(device, scenario["digest"])
    size = max((step.size for step in steps), default=0)
    report = {"progress": said, "staging": size * len(steps[:2]), "peak": peak}
    (folder / f"{rank}.json").write_text(json.dumps(report))


def planted(
    kind: str, mine: dict[str, Any], state: Any, name: str, options: Any, weights: Any
) -> None:
    """Plant a fault."""
    if kind == "dead before":
        os._exit(0)
    elif kind == "dead between":
        options["progress"] = lambda *given: os._exit(0)
    elif kind == "late":
        time.sleep(mine["seconds"])
    elif kind == "slow":
        options["progress"] = lambda *given: time.sleep(mine["seconds"])
    elif kind == "None":
        state[name] = None
    elif kind == "missing":
        del state[name]
    elif kind == "extra":
        state["no such tensor"] = torch.zeros(2)
    elif kind == "dtype":
        state[name] = state[name].to(torch.float64)
    elif kind == "shape":
        state[name] = state[name][1:]
    elif kind == "not contiguous":
        state[name] = torch.stack([state[name], state[name]], -1)[..., 0]
    elif kind == "no tensor":
        state[name] = 3
    elif kind == "meta":
        state[name] = state[name].to("meta")
    elif kind == "no dict":
        state.clear()
    elif kind == "digest":
        options["digest"] = not options["digest"]
    elif kind == "timeout":
        options["timeout"] = "3"
    elif kind == "no function":
        options["progress"] = 3
    elif kind == "progress":
        options["progress"] = lambda *given: 1 // 0
    elif kind == "out":
        options["out"] = {"no such tensor": torch.zeros(2)}
    elif kind == "shared":
        shapes = weights.shapes(weights.moves.ranks[mine["rank"]], 1).items()
        memory = torch.zeros(1 << 20, dtype=torch.uint8)
        options["out"] = {
            n: memory[: torch.empty(shape, dtype=dtype).nbytes].view(dtype).view(shape)
            for n, (dtype, shape) in shapes
        }
    elif kind in ("lost", "changed"):
        tampered(kind, mine)


def tampered(kind: str, mine: dict[str, Any]) -> None:
    """Lose a message of a rank, or change a byte of one."""
    whole, calls = dist.batch_isend_irecv, [0]

    def batch(ops: list[Any]) -> list[Any]:
        calls[0] += 1
        sends = [op for op in ops if op.op is dist.isend]
        if calls[0] == 1 + mine.get("batch", 1) and sends:
            if kind == "changed":
                place = mine.get("byte", -1)
                sends[0].tensor[place] = sends[0].tensor[place] ^ 1
            else:
                return [lost if op is sends[0] else whole([op])[0] for op in ops]
        return whole(ops)

    lost = SimpleNamespace(wait=lambda timeout: None)
    dist.batch_isend_irecv = batch


def loaded(path: Path) -> dict[str, torch.Tensor]:
    """Tensors of a file; none where there is no file."""
    if not path.exists():
        return {}
    found = {}
    for key, bits in np.load(path).items():
        dtype, name = key.split()
        signed = bits if bits.itemsize == 1 else bits.view(f"i{bits.itemsize}")
        memory = np.zeros(signed.size + 3, signed.dtype)  # a tensor may begin within its memory
        memory[3:] = signed.reshape(-1)
        found[name] = torch.from_numpy(memory)[3:].view(signed.shape).view(getattr(torch, dtype))
    return found


def line(x: torch.Tensor) -> torch.Tensor:
    """The bits of a tensor."""
    return x.view(INTEGERS[x.element_size()])


if __name__ == "__main__":
    main()
