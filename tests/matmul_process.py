"""One process of a group: an emitted Triton matmul in the interpreter, with flags in shared memory.

Arguments: rank, processes, devices of a process (one), port of the first process. A case a line of
standard input (`MatmulCase.to_json`), "ok" or what is wrong a line of standard output. All
processes are given the same lines; of each case they make several calls, and come late to them in
turn.
"""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":
    os.environ["TRITON_INTERPRET"] = "1"

import json
import time

import numpy as np
import torch
import torch.distributed as dist

from shardwright.codegen.backends.triton_gpu.verify.quick import quick_launches
from shardwright.codegen.verify.load import load
from shardwright.codegen.verify.matmul_case import MatmulCase
from shardwright.codegen.verify.oracle import definition as oracle
from shardwright.codegen.verify.oracle.products import products, value_of
from shardwright.codegen.verify.oracle.sums import array_of, array_shape
from shardwright.codegen.verify.worker import brief
from shardwright.codegen.workers.serve import own_stdout

CALLS = 4
POLLS = int(os.environ.get("MATMUL_POLLS", "1_000_000_000"))
"""Of a GPU; in the interpreter 1/500 of them."""
LATE = 0.15


def main(rank: int, processes: int, port: int) -> None:
    """Answer every line."""
    answers = own_stdout()
    torch.set_num_threads(1)
    address = f"tcp://localhost:{port}"
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=processes)
    for line in sys.stdin:
        try:
            called(MatmulCase.from_data(json.loads(line)), rank)
            answers.write("ok\n")
        except Exception as error:
            answers.write(f"{brief(error)}\n")
        dist.barrier()
    dist.destroy_process_group()


def called(case: MatmulCase, rank: int) -> None:
    """Make some calls in a row, each with other operands; raise ValueError for a wrong result."""
    module, device = load(case.module), case.devices()[rank]
    module._HOST.polls = POLLS
    for call in range(CALLS):
        seed = 3 * call
        product, *_ = products(
            case.dtype, case.out_dtype, case.shapes[:2], case.placements[:2], seed
        )
        a, b = (own(case, n, x, device) for n, x in enumerate((product.lhs, product.rhs)))
        if (rank + call) % len(case.devices()) == 0:
            time.sleep(LATE)
        with quick_launches():
            found = module.matmul(a, b)
        if case.placements[2].unreduced:
            right = np.array_equal(made(case, found), product.result.astype(case.out_dtype))
        else:
            right = found.double().equal(own(case, 2, product.result, device).double())
        if not right:
            raise ValueError(f"call {call}: a wrong result on rank {rank}")


def made(case: MatmulCase, found: torch.Tensor) -> np.ndarray:
    """Return what the terms of all ranks make."""
    place = case.placements[2]
    shape = array_shape(place, case.shapes[2])
    array, held = np.zeros(shape, case.out_dtype), oracle.holdings(array_of(place), shape)
    every: list[torch.Tensor] = [found] * len(case.devices())
    dist.all_gather_object(every, found)
    for device, part in zip(case.devices(), every, strict=True):
        at = np.ix_(*(list(each) for each in held[device]))
        array[at] = part.numpy().reshape(array[at].shape)
    return value_of(array, place)


def own(case: MatmulCase, number: int, values: np.ndarray, device: int) -> torch.Tensor:
    """Return the shard of a side on a device, of a side with terms the device's own."""
    place, shape = case.placements[number], case.shapes[number]
    held = oracle.holdings(array_of(place), array_shape(place, shape))[device]
    part = values[np.ix_(*(list(each) for each in held))]
    part = part.reshape(part.shape[-len(shape) :])
    dtype = case.out_dtype if number == 2 else case.dtype
    return torch.from_numpy(np.ascontiguousarray(part)).to(getattr(torch, dtype))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[4]))
    os._exit(0)  # threads of gloo may abort Python's own end (`leave_at_once.py`)
