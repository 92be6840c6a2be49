"""Check the gradients of an emitted Triton module of a relayout. Imported only by workers."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from shardwright.codegen.backends.triton_gpu.verify.bits import as_bits, to_bits, to_torch
from shardwright.codegen.backends.triton_gpu.verify.quick import quick_launches
from shardwright.codegen.checks import compare
from shardwright.codegen.checks.oracle.layouts import PADDING
from shardwright.codegen.checks.relayout_case import RelayoutCase

Each = dict[str, dict[int, Any]]
"""An array or tensor for each buffer, by name, and each device, by id."""


def check_gradients(module: ModuleType, case: RelayoutCase) -> tuple[str, ...]:
    """Check, in one process and between ranks, that the cotangent of each source element is the sum
    of the cotangents of all its copies. Return the name of the check, or nothing if the module has
    no gradients. Raises MismatchError."""
    if "BACK" not in vars(module):
        return ()
    given, wanted = _cotangents(module, case)
    with quick_launches():
        _compare(_of_one_process(module, case, given), wanted, case, "the gradient")
        if {*case.source.device_ids} == {*case.target.device_ids}:
            _compare(_of_ranks(module, case, given, wanted), wanted, case, "the gradient of ranks")
    return ("gradients",)


def _cotangents(module: ModuleType, case: RelayoutCase) -> tuple[Each, Each]:
    """Return random cotangents of target buffers (small integers, in padding too) and the expected
    cotangents of source buffers."""
    shapes = dict(case.tensors)
    before, after = (side.numbers(shapes) for side in (case.source, case.target))
    random = np.random.default_rng(0)
    unit = 1 + 2j if "complex" in case.dtype else 1
    total = np.zeros(sum(int(np.prod(shape)) for shape in shapes.values()), np.asarray(unit).dtype)
    given: Each = {name: {} for name in after}
    for name, each in after.items():
        for device, held in each.items():
            shape = module.target_shape(name, device)
            numbers = unit * random.integers(-2, 3, shape)
            if held.size:
                real = held != PADDING
                np.add.at(total, held[real], numbers[real])
            given[name][device] = to_torch(as_bits(numbers, case.dtype), case.dtype)
    wanted = {
        name: {d: np.where(held == PADDING, 0, total[held]) for d, held in each.items()}
        for name, each in before.items()
    }
    return given, wanted


def _leaves(module: ModuleType, case: RelayoutCase) -> Each:
    dtype = getattr(torch, case.dtype)
    return {
        name: {
            device: torch.zeros(module.source_shape(name, device), dtype=dtype).requires_grad_()
            for device in sorted(case.source.device_ids)
        }
        for name in module.SOURCE
    }


def _of_one_process(module: ModuleType, case: RelayoutCase, given: Each) -> Each:
    leaves = _leaves(module, case)
    results = module.reshard_local({name: [*each.values()] for name, each in leaves.items()})
    moved = [x for name in module.TARGET for x in results[name]]
    targets = sorted(case.target.device_ids)
    torch.autograd.backward(moved, [given[name][d] for name in module.TARGET for d in targets])
    return leaves


def _sums(wanted: Each, case: RelayoutCase, module: ModuleType, name: str, device: int) -> Any:
    bits = as_bits(wanted[name][device], case.dtype)
    return to_torch(bits.reshape(module.source_shape(name, device)), case.dtype)


def _of_ranks(module: ModuleType, case: RelayoutCase, given: Each, wanted: Each) -> Each:
    leaves, home = _leaves(module, case), torch.device("cpu")
    # The transfers of each summed cotangent to the other copies of its element.
    copies = getattr(module, "COPIES", None)
    forth, back, beside = {}, {}, {}
    for device in module.RANKS:
        own = [each[device] for each in leaves.values()]
        with torch.no_grad():
            forth[device] = torch.split(*module.packed(device, own, home))
            cotangents = [given[name][device] for name in module.TARGET]
            back[device] = torch.split(*module.packed(device, cotangents, home, module.BACK))
            if copies is not None:
                sums = [_sums(wanted, case, module, name, device) for name in module.SOURCE]
                beside[device] = torch.split(*module.packed(device, sums, home, copies))
    for rank, device in enumerate(module.RANKS):
        shards = {name: each[device] for name, each in leaves.items()}
        with patch.object(module, "dist", handed(rank, device, forth)):
            results = module.reshard(shards)
        with patch.object(module, "dist", handed(rank, device, back, beside)):
            cotangents = [given[name][device] for name in module.TARGET]
            torch.autograd.backward([*results.values()], cotangents)
    return leaves


def _compare(leaves: Each, wanted: Each, case: RelayoutCase, what: str) -> None:
    with compare.said_of(what):
        for name, each in wanted.items():
            for device, numbers in each.items():
                if numbers.size:
                    found, expected = (
                        to_bits(leaves[name][device].grad),
                        as_bits(numbers, case.dtype),
                    )
                    compare.same_bits(f"device {device}, buffer {name}", found, expected, expected)


def handed(
    rank: int, device: int, *exchanges: dict[int, Any], allow: Callable[[Any], object] = id
) -> Any:
    """Return a stand-in for `torch.distributed` on a rank. `exchanges`: for each exchange in order,
    the messages that each device has packed, one per rank; `allow`: called with the tensor that
    receives the messages."""
    following = iter(exchanges)

    def exchange(
        arrived: Any, line: Any, expected: list[int], sizes: list[int], group: object
    ) -> None:
        del group
        messages = next(following)
        sent = torch.split(line, sizes)
        same = all(map(torch.equal, sent, messages[device]))
        compare.require(same, f"device {device} packs different bytes the second time")
        coming = [each[rank] for each in messages.values()]
        lengths = [len(each) for each in coming]
        compare.expect(f"bytes that device {device} expects from each rank", expected, lengths)
        allow(arrived)
        arrived.copy_(torch.cat(coming))

    return SimpleNamespace(
        get_rank=lambda group: rank,
        get_backend=lambda group: "gloo",
        all_to_all_single=exchange,
    )
