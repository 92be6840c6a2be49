"""A task of `gloo_rank.py`: emitted Triton matmuls in the interpreter, with flags in memory that
processes share; of each they make several calls, and come late to them in turn."""

from __future__ import annotations

import time

import numpy as np
import torch
import torch.distributed as dist

from shardwright.codegen.checks.load import load
from shardwright.codegen.checks.matmul_case import MatmulCase
from shardwright.codegen.checks.oracle import definition as oracle
from shardwright.codegen.checks.oracle.products import products, value_of
from shardwright.codegen.checks.oracle.sums import array_of, array_shape
from shardwright.codegen.operations.verify.worker import brief

CALLS = 4
LATE = 0.15


def multiplied(rank: int, case: dict) -> dict:
    """ "ok", or what is wrong. `polls`: of a GPU; in the interpreter 1/500 of them."""
    try:
        called(MatmulCase.from_data(case["case"]), rank, case["polls"])
        said = "ok"
    except Exception as error:
        said = brief(error)
    dist.barrier()
    return {"said": said}


def called(case: MatmulCase, rank: int, polls: int) -> None:
    """Make some calls in a row, each with other operands; raise ValueError for a wrong result."""
    module, device = load(case.module), case.devices()[rank]
    module._HOST.polls = polls
    for call in range(CALLS):
        seed = 3 * call
        product, *_ = products(
            case.dtype, case.out_dtype, case.shapes[:2], case.placements[:2], seed
        )
        a, b = (own(case, n, x, device) for n, x in enumerate((product.lhs, product.rhs)))
        if (rank + call) % len(case.devices()) == 0:
            time.sleep(LATE)
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
