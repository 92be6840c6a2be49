"""Random models through the runtimes: torch|jax FIRST COUNT. All go through one set of gloo
processes, or through one process with forced CPU devices; a line says how many were right."""

from __future__ import annotations

import os
import random
import re
import sys
import tempfile
import traceback
from typing import Any, NamedTuple

import numpy as np
from cpu_devices import flags
from model_layouts import model_case

import shardwright as sw

RANKS = 12
DTYPES = {"float32": "i4", "bfloat16": "i2", "uint8": "u1", "int32": "i4"}
"""Element types of the tensors, with the integers of as many bits that the oracle counts in."""

Held = dict[int, dict[str, np.ndarray]]


class Planned(NamedTuple):
    """A random model: its plan, what devices store before and after, and how it is called."""

    seed: int
    weights: sw.Sync
    before: Held
    after: Held
    digest: bool


def planned(seed: int) -> Planned:
    """The model of a seed, with dtypes of its own and with as little memory as it can have, some
    more, or much."""
    chosen = random.Random(seed)
    case = model_case(seed)
    dtypes = [chosen.choice([*DTYPES]) for _ in case.relayouts]
    given = case.model(dtypes), case.rules("source"), case.rules("target")
    least = least_limit(*given)
    limit = chosen.choice([least, 2 * least, 1 << 30])
    weights = sw.sync(*given, memory_limit=limit)
    assert weights.plan.data["peak"] <= limit
    before, after = (
        {
            device: {
                name: numbers.astype(DTYPES[dtypes[int(name[1 : name.index(".")])]])
                for name, numbers in held.items()
            }
            for device, held in case.held(end).items()
        }
        for end in ("source", "target")
    )
    return Planned(seed, weights, before, after, chosen.random() < 0.5)


def least_limit(*given: Any) -> int:
    """The least memory that a model can have."""
    try:
        _ = sw.sync(*given, memory_limit=1).plan.peak
    except sw.InputError as error:
        found = re.search(r"at least ([\d,]+)", str(error.expected))
        assert found is not None
        return int(found[1].replace(",", ""))
    return 1


def in_torch(every: list[Planned]) -> str:
    """Move all models by one set of processes."""
    with tempfile.TemporaryDirectory() as folder:
        import torch

        torch.set_num_threads(1)
        pids = []
        for rank in range(RANKS):
            pid = os.fork()
            if not pid:
                code = 1
                try:
                    of_rank(every, rank, folder)
                    code = 0
                except Exception:
                    traceback.print_exc()
                finally:
                    sys.stderr.flush()
                    os._exit(code)
            pids.append(pid)
        codes = [os.waitpid(pid, 0)[1] for pid in pids]
    assert not any(codes), codes
    return f"{len(every)} right"


def of_rank(every: list[Planned], rank: int, folder: str) -> None:
    """Move all models that have this rank, in groups of as many ranks as they have devices."""
    import torch
    import torch.distributed as dist

    from shardwright.templates.support.torch_model import Weights

    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank,
                            world_size=RANKS)  # fmt: skip
    groups = {size: dist.new_group([*range(size)]) for size in range(1, RANKS + 1)}
    for case in every:
        runtime = Weights(case.weights.data)
        ranks = runtime.moves.ranks
        if rank >= len(ranks):
            continue
        device = ranks[rank]
        state = {}
        if device in runtime.moves.source_ids:
            for name, (dtype, _) in runtime.shapes(device, 0).items():
                bits = torch.from_numpy(case.before[device][name].copy())
                state[name] = bits.view(dtype)
        said: list[Any] = []
        received = case.weights(
            state or None,
            group=groups[len(ranks)],
            timeout=100,
            digest=case.digest,
            progress=lambda *given, said=said: said.append(given),
        )
        wanted = case.after.get(device, {})
        assert {*received} == {*wanted}, (case.seed, device)
        for name, expected in wanted.items():
            bits = received[name].view(torch.from_numpy(expected).dtype).numpy()
            assert_equal(bits, expected, f"seed {case.seed}, device {device}, {name}")
        assert all(done <= total for done, total, _ in said)
        assert not said or said[-1][0] == said[-1][1]
    dist.barrier()


def assert_equal(found: np.ndarray, expected: np.ndarray, what: str) -> None:
    """The same bits; what has no elements has no certain shape."""
    if not expected.size:
        found = found.reshape(expected.shape)
    np.testing.assert_array_equal(found, expected, what)


def in_jax(every: list[Planned]) -> str:
    """Move all models on the devices of one process."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["XLA_FLAGS"] = flags(RANKS)
    import jax
    import model_jax

    from shardwright.templates.support import jax_model

    for case in every:
        weights = jax_model.Weights(case.weights.data)
        results = case.weights(model_jax.arrays(weights, case.before), digest=case.digest)
        try:
            model_jax.check(weights, results, case.after)
        except AssertionError as error:
            raise AssertionError(f"seed {case.seed}") from error
        jax.clear_caches()
    return f"{len(every)} right"


if __name__ == "__main__":
    first, count = map(int, sys.argv[2:])
    print({"torch": in_torch, "jax": in_jax}[sys.argv[1]](
        [planned(seed) for seed in range(first, first + count)]
    ))  # fmt: skip
