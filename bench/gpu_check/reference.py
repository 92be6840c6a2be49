"""The expected result of a reshard: torch cuts tensors into the ranges that the oracle gives.

Tensors are cut and copied as unsigned bytes or integers, because torch lacks some operations for
some dtypes, and because results are compared bit by bit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bench.gpu_check.home import HOME, torch
from shardwright.codegen.checks.case import Case
from shardwright.codegen.checks.oracle import definition, sums
from shardwright.codegen.checks.oracle.definition import Placement
from shardwright.ir import Reshard

Tensor = Any

UNITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""The integer dtypes, by their size in bytes."""


def case_of(reshard: Reshard) -> Case:
    """Return a reshard in the oracle's form."""
    return Case.of(reshard, "checked", "triton_gpu", Path())


def bits(tensor: Tensor) -> Tensor:
    """Return a tensor's elements as one row of integers."""
    return tensor.contiguous().view(-1).view(UNITS[tensor.element_size()])


def shards_of(side: Placement, held: Tensor, shape: tuple[int, ...]) -> dict[int, Tensor]:
    """Return each device's shard of a tensor, given the tensor's terms: [terms, *shape]."""
    term, raw = sums.terms_held(side), held.view(UNITS[held.element_size()])
    found = {}
    for device, along in sorted(definition.holdings(side, shape).items()):
        cut = tuple(slice(run[0], run[-1] + 1) if len(run) else slice(0, 0) for run in along)
        found[device] = raw[term[device]][cut].clone().view(held.dtype)
    return found


def example(case: Case, seed: int) -> tuple[Tensor, Tensor]:
    """Return random terms of the source, and the expected terms of the target.

    If elements are only moved, terms are random bits. If terms are combined, they are small
    integers, whose sums are exact in every dtype.
    """
    made = sums.made_of(case.source, case.target, transposed=False)
    rng = torch.Generator(device=HOME).manual_seed(seed)
    if max(map(len, made)) > 1 or case.target.unreduced:
        return _numbers(case, made, rng)
    return _random_bits(case, made, rng)


Made = tuple[tuple[int, ...], ...]
"""For each term of the target, the numbers of the source terms that are combined into it."""


def _random_bits(case: Case, made: Made, rng: Any) -> tuple[Tensor, Tensor]:
    dtype, count = getattr(torch, case.dtype), sums.terms_of(case.source)
    size = count * math.prod(case.shape) * dtype.itemsize
    most = 2 if dtype == torch.bool else 256
    raw = torch.randint(0, most, (size,), generator=rng, device=HOME, dtype=torch.uint8)
    units = raw.view(UNITS[dtype.itemsize]).view(count, *case.shape)
    return units.view(dtype), units[[of[0] for of in made]].view(dtype)


def _numbers(case: Case, made: Made, rng: Any) -> tuple[Tensor, Tensor]:
    dtype, count = getattr(torch, case.dtype), sums.terms_of(case.source)
    most = 2 if "float8" in case.dtype or dtype == torch.bool else 8
    number = torch.randint(0, most, (count, *case.shape), generator=rng, device=HOME)
    side = case.source if case.source.unreduced else case.target
    combined = {"sum": torch.sum, "max": torch.amax, "min": torch.amin}[side.operator]
    # A target term without source terms is new: it is the neutral element of the target's operator.
    neutral = sums.identity(case.dtype, case.target.operator)
    wanted = [
        combined(number[list(of)], 0) if of else torch.full(case.shape, neutral, device=HOME)
        for of in made
    ]
    target = torch.stack([bits(_as_dtype(each, dtype)) for each in wanted])
    return _as_dtype(number, dtype), target.view(dtype).view(-1, *case.shape)


def _as_dtype(tensor: Tensor, dtype: Any) -> Tensor:
    """Convert numbers to a dtype. For some unsigned dtypes, convert to a signed dtype first,
    because torch has no direct conversion."""
    signed = {torch.uint16: torch.int16, torch.uint32: torch.int32}.get(dtype, dtype)
    return tensor.to(signed).view(dtype)


def placed(tensors: Iterable[Tensor], offset: int = 0) -> list[Tensor]:
    """Return copies of tensors, each `offset` elements past an aligned address."""
    found = []
    for tensor in tensors:
        memory = torch.empty(tensor.numel() + offset, dtype=tensor.dtype, device=HOME)
        found.append(memory[offset:].view(tensor.shape))
        bits(found[-1]).copy_(bits(tensor))
    return found


def compare(ids: Iterable[int], got: Iterable[Tensor], wanted: Iterable[Tensor], said: str) -> None:
    """Raise ValueError for the first device whose shard differs from the expected one in any
    bit."""
    for device, mine, right in zip(ids, got, wanted, strict=True):
        if mine.shape != right.shape:
            shapes = f"got shape {tuple(mine.shape)}, expected {tuple(right.shape)}"
            raise ValueError(f"device {device}, {said}: {shapes}")
        if not torch.equal(bits(mine), bits(right)):
            wrong = (bits(mine) != bits(right)).nonzero().flatten()
            first = f"the first at {wrong[:3].tolist()}"
            raise ValueError(f"device {device}, {said}: {len(wrong)} wrong elements, {first}")


def bytes_read(case: Case) -> int:
    """Return the bytes that all devices read: every term of each element of a target shard."""
    made = sums.made_of(case.source, case.target, transposed=False)
    term = sums.terms_held(case.target)
    held = definition.holdings(case.target, case.shape)
    counts = (
        len(made[term[device]]) * math.prod(map(len, along)) for device, along in held.items()
    )
    return sum(counts) * getattr(torch, case.dtype).itemsize


def bytes_distinct(case: Case) -> int:
    """Return the bytes of all source terms that devices read, counting each byte once."""
    made = sums.made_of(case.source, case.target, transposed=False)
    terms = len({term for of in made for term in of})
    return terms * math.prod(case.shape) * getattr(torch, case.dtype).itemsize
