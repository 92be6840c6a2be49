"""Run and check an emitted matmul in Triton's interpreter, with all devices in one process.

Each call multiplies another pair of operands, and several calls in a row use the same memory, so a
call that reads leftovers of an earlier one has a wrong result. Imported only by workers.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np
import torch

from shardwright.codegen.backends.triton_gpu.verify.matmul_calls import CALLS, called_by_ranks
from shardwright.codegen.backends.triton_gpu.verify.memory import Memory, guarded
from shardwright.codegen.backends.triton_gpu.verify.order import POLLS, Order
from shardwright.codegen.backends.triton_gpu.verify.quick import quick_launches
from shardwright.codegen.backends.triton_gpu.verify.ranks import Rank
from shardwright.codegen.backends.triton_gpu.verify.rounding import rounded_to_nearest
from shardwright.codegen.checks.compare import MismatchError, expect
from shardwright.codegen.checks.matmul_case import MatmulCase
from shardwright.codegen.checks.matmul_compare import constants, same_product, wide_numbers
from shardwright.codegen.checks.oracle import definition as oracle
from shardwright.codegen.checks.oracle.products import (
    Cotangents,
    Numbers,
    Product,
    cotangents,
    products,
    value_of,
)
from shardwright.codegen.checks.oracle.sums import array_of, array_shape

CHECKS = ("constants", "index functions", "traffic")
KERNEL_CHECKS = ("values", "replicas", "poison", "stored once", "reads in bounds", "inputs kept")
POISONS = 0xFF, 0x5A
Holdings = dict[int, tuple[Sequence[int], ...]]
ORDERED, REPLAYED = 3, 2
"""The number of calls that the check of order makes, and how often it then replays the last call's
launches."""


def run_matmul(module: ModuleType, case: MatmulCase) -> tuple[str, ...]:
    """Run a matmul's module in several successive calls and return the names of the checks that
    passed. Raises MismatchError."""
    constants(module, case)
    _check_traffic(module)
    if not case.execute:
        return CHECKS
    with _few_polls(module._HOST), rounded_to_nearest():
        _run(module, case)
    return (
        *CHECKS,
        *KERNEL_CHECKS,
        "order",
        "calls of ranks",
        *(("derivative",) if case.derivative else ()),
    )


@contextmanager
def _few_polls(host: Any) -> Iterator[None]:
    """Let kernels poll only a few times in this context: within one process, the awaited value is
    already there or never comes."""
    polls, host.polls = host.polls, POLLS
    try:
        yield
    finally:
        host.polls = polls


def _run(module: ModuleType, case: MatmulCase) -> None:
    for seed, poison in enumerate(POISONS):
        module._HOST.tma = not seed  # load through pointers with the second poison
        for each in products(
            case.dtype, case.out_dtype, case.shapes[:2], case.placements[:2], seed
        ):
            _multiply(module, case, each, poison)
            if case.derivative and seed < 1:
                _transpose(module, case, each, seed)
    _check_order(module, case)
    _check_calls(module, case)


def _check_calls(module: ModuleType, case: MatmulCase) -> None:
    made = [
        next(iter(products(case.dtype, case.out_dtype, case.shapes[:2], case.placements[:2], seed)))
        for seed in range(CALLS)
    ]
    given = [
        [_shards(case, number, each) for number, each in enumerate((product.lhs, product.rhs))]
        for product in made
    ]
    wanted, c_bar = None, list[Any]()
    if case.derivative:
        wanted = cotangents(made[0], case.placements, (case.dtype, case.out_dtype), 0)
        c_bar = _whole_shards(case, 2, wanted.result)
    results: dict[int, dict[int, Any]] = {}
    found: dict[int, Any] = {}

    def call(rank: Rank, number: int) -> None:
        a, b = (side[rank.number].clone() for side in given[number])
        result = module.matmul(a, b, rank)
        module.synchronize(rank)
        results.setdefault(number, {})[rank.number] = result
        if wanted is not None and not number:
            operands = [each.requires_grad_() for each in (a, b)]
            product = module.matmul(*operands, rank)
            found[rank.number] = torch.autograd.grad(product, operands, c_bar[rank.number])

    called_by_ranks(module, call)
    for number, by_rank in sorted(results.items()):
        _compare(case, made[number], [by_rank[rank] for rank in sorted(by_rank)])
    if wanted is not None:
        pairs = [found[rank] for rank in sorted(found)]
        _compare_cotangents(
            case, wanted, [each for side in zip(*pairs, strict=True) for each in side]
        )


def _check_order(module: ModuleType, case: MatmulCase) -> None:
    """Call a matmul several times, then replay the launches of the last call as a CUDA graph does,
    each time with different operands. Raises MismatchError for a race or a wrong result.

    Calls alternate between two slots of memory. The five calls use each slot at least twice.
    """
    host = module._HOST
    host.tma = True
    support = sys.modules[type(host).__module__]
    every = range(len(host.ids))
    held = [torch.zeros(host.layout[-1], dtype=torch.uint8) for _ in every]
    places = [each.data_ptr() for each in held]
    members = [support.Member(host, place, held[place], places) for place in every]
    order = Order(members)
    captured: list[Any] = []
    for seed in range(ORDERED + REPLAYED):
        product, *_ = products(
            case.dtype, case.out_dtype, case.shapes[:2], case.placements[:2], seed
        )
        lhs, rhs = (_shards(case, n, x) for n, x in enumerate((product.lhs, product.rhs)))
        given = dict(zip(case.devices(), zip(lhs, rhs, strict=True), strict=True))
        pairs = [given[device] for device in host.ids]
        with order.watching(), quick_launches():
            if seed < ORDERED:
                captured, results = pairs, order.call(pairs)
            else:
                for before, after in zip(captured, pairs, strict=True):
                    _refill(before, after)
                order.replay()
        found = dict(zip(host.ids, results, strict=True))
        _compare(case, product, [found[device] for device in case.devices()])


def _refill(tensors: tuple[Any, ...], values: tuple[Any, ...]) -> None:
    for tensor, value in zip(tensors, values, strict=True):
        tensor.copy_(value)


def _check_traffic(module: ModuleType) -> None:
    """Raise MismatchError unless WIRE_BYTES equals the bytes that the busiest device receives
    according to the module's lists of parts."""
    host = module._HOST
    size, out_size = host.dtype.itemsize, host.out_dtype.itemsize
    bytes_of = []
    for position in range(len(host.ids)):
        taken = [part for _, part in host.parts.incoming(position)]
        given = [part for _, part in host.parts.added(position)]
        bytes_of.append(
            sum(
                volume(part.ranges) * each * sum(holder != position for holder in part.holders)
                for parts, each in ((taken, size), (given, out_size))
                for part in parts
            )
        )
    expect("WIRE_BYTES", module.WIRE_BYTES, max(bytes_of))


def volume(ranges: Sequence[tuple[int, int]]) -> int:
    """Return the number of elements of the box with these ranges."""
    return math.prod(high - low for low, high in ranges)


def _multiply(module: ModuleType, case: MatmulCase, product: Product, poison: int) -> None:
    lhs, rhs = (_shards(case, n, each) for n, each in enumerate((product.lhs, product.rhs)))
    kept = [each.clone() for each in (*lhs, *rhs)]
    names = [f"{side} of device {device}" for side in ("lhs", "rhs") for device in case.devices()]
    memory = Memory(poison, dict(zip(names, (*lhs, *rhs), strict=True)))
    host = module._HOST
    for member in host._local(tuple(each.device for each in lhs)):
        memory.allow(member.held)
    with memory, quick_launches():
        results = module.matmul_local(lhs, rhs)
    for name, before, after in zip(names, kept, (*lhs, *rhs), strict=True):
        if not _bits(before).equal(_bits(after)):
            raise MismatchError(f"{name} was changed by the call")
    memory.check({f"result of device {d}": r for d, r in zip(case.devices(), results, strict=True)})
    _compare(case, product, results)


def _compare(case: MatmulCase, product: Product, results: list[Any]) -> None:
    place, shape = array_of(case.placements[2]), array_shape(case.placements[2], case.shapes[2])
    held, rank = oracle.holdings(place, shape), len(case.shapes[2])
    array = np.zeros(shape, wide_numbers(_numbers(results[0])).dtype)
    seen: dict[tuple[Any, ...], Any] = {}
    for device, result in zip(case.devices(), results, strict=True):
        expect("dtype of the result", str(result.dtype), f"torch.{case.out_dtype}")
        ranges = tuple(held[device])
        sizes = tuple(map(len, ranges))
        expect(f"shape of the result of device {device}", tuple(result.shape), sizes[-rank:])
        first = seen.setdefault(ranges, result)
        if not _bits(first).equal(_bits(result)):
            raise MismatchError(f"device {device}: its result differs from its replicas'")
        part = np.ix_(*(list(each) for each in ranges))
        array[part] = _numbers(result).reshape(sizes)
    same_product(value_of(array, case.placements[2]), product, case.out_dtype)


def _transpose(module: ModuleType, case: MatmulCase, product: Product, seed: int) -> None:
    wanted = cotangents(product, case.placements, (case.dtype, case.out_dtype), seed)
    lhs, rhs = (_shards(case, n, each) for n, each in enumerate((product.lhs, product.rhs)))
    given = [each.requires_grad_() for each in (*lhs, *rhs)]
    c_bar = _whole_shards(case, 2, wanted.result)
    with quick_launches():
        found = torch.autograd.grad(module.matmul_local(lhs, rhs), given, c_bar)
    _compare_cotangents(case, wanted, found)


def _compare_cotangents(case: MatmulCase, wanted: Cotangents, found: Sequence[Any]) -> None:
    """Raise MismatchError unless cotangents are within the expected bounds; `found`: the cotangents
    of lhs by device, then those of rhs."""
    devices = len(case.devices())
    for number, values in enumerate(wanted.operands):
        held = oracle.holdings(case.placements[number], case.shapes[number])
        for at, device in enumerate(case.devices()):
            part = np.ix_(*(list(each) for each in held[device]))
            within = 0 if wanted.within is None else wanted.within[number][part]
            own = _numbers(found[number * devices + at]).astype(np.float64)
            if not (np.abs(own - values[part]) <= within).all():
                side = ("lhs", "rhs")[number]
                raise MismatchError(
                    f"the derivative: the cotangent of {side} is wrong on device {device}"
                )


def _shards(case: MatmulCase, number: int, values: Numbers) -> list[Any]:
    """Return the devices' shards of an operand, in order of device id; `values`: the array of its
    terms, one per device."""
    place, shape = case.placements[number], case.shapes[number]
    held = oracle.holdings(array_of(place), array_shape(place, shape))
    return _placed(case, number, values, held)


def _whole_shards(case: MatmulCase, number: int, values: Numbers) -> list[Any]:
    """Return the devices' shards of a tensor, in order of device id. If the side has terms, devices
    that differ only in their term have equal shards."""
    held = oracle.holdings(case.placements[number], case.shapes[number])
    return _placed(case, number, values, held)


def _placed(case: MatmulCase, number: int, values: Numbers, held: Holdings) -> list[Any]:
    """Return the devices' parts of an array, given by their ranges `held`, each in its own
    memory."""
    dtype = getattr(torch, case.out_dtype if number == 2 else case.dtype)
    found, rank = [], len(case.shapes[number])
    for device in case.devices():
        part = values[np.ix_(*(list(each) for each in held[device]))]
        part = part.reshape(part.shape[-rank:])
        shard = torch.from_numpy(np.ascontiguousarray(part)).to(dtype)
        found.append(guarded(torch.empty_like(shard)).copy_(shard))
    return found


def _numbers(tensor: Any) -> Numbers:
    found: Numbers = (tensor.double() if tensor.is_floating_point() else tensor).numpy()
    return found


def _bits(tensor: Any) -> Any:
    return tensor.detach().reshape(-1).view(torch.uint8)
