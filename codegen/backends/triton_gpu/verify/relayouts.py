"""Run an emitted Triton module of a relayout in Triton's interpreter. Imported only by workers."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from types import ModuleType
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from shardwright.codegen.backends.triton_gpu.verify.bits import to_bits, to_torch
from shardwright.codegen.backends.triton_gpu.verify.memory import Memory, guarded
from shardwright.codegen.backends.triton_gpu.verify.quick import quick_launches
from shardwright.codegen.backends.triton_gpu.verify.relayout_gradients import (
    check_gradients,
    handed,
)
from shardwright.codegen.checks import compare
from shardwright.codegen.checks.relayout_case import Held, RelayoutCase, compare_held

Tensors = dict[str, list[Any]]
POISON = 0xA5
"""The byte that fills memory before it is written; for bool, the byte is 1."""


def run_relayout(module: ModuleType, case: RelayoutCase) -> tuple[str, ...]:
    """Run the module in one process (into results that it allocates, into results of the caller,
    and between views), then on all ranks of a group. Return the names of the checks that passed.
    Raises MismatchError."""
    padding = case.padding()
    for number, (given, wanted) in enumerate(case.runs()):
        tensors = _tensors(given, case.dtype, module.source_shape)
        named = {f"{name} {n}": x for name, each in tensors.items() for n, x in enumerate(each)}
        poison = 1 if case.dtype == "bool" else POISON
        memory = Memory(poison, named)
        with memory, quick_launches():
            results = module.reshard_local(tensors)
            compare_held(_held(results, wanted), wanted)
            compare_held(_among_ranks(module, case, memory, tensors), wanted)
            if number == 0:  # the other checks do not depend on values
                _poisoned(module, case, memory, tensors, wanted, padding)
                _views(module, case, memory, tensors, wanted, padding)
        memory.check({})
        for name, each in _held(tensors, given).items():
            for device, bits in each.items():
                kept = not bits.size or np.array_equal(bits, given[name][device])
                compare.require(kept, f"the input {name} of device {device} was changed")
    checks = ("values", "padding", "out", "views", "reads in bounds", "inputs kept")
    return (*checks, "calls of ranks", *check_gradients(module, case))


def _tensors(held: Held, dtype: str, shape_of: Callable[[str, int], tuple[int, ...]]) -> Tensors:
    """Return, for each buffer, new tensors with the devices' data, in order of device id. Empty
    tensors have the shape that the module states."""

    def made(name: str, device: int, bits: Any) -> Any:
        return to_torch(bits if bits.size else bits.reshape(shape_of(name, device)), dtype)

    return {
        name: [made(name, device, bits) for device, bits in sorted(each.items())]
        for name, each in held.items()
    }


def _held(tensors: Tensors, like: Held) -> Held:
    """Return the bits of each buffer's tensors, by device id. `like`: data of the same buffers and
    devices."""
    return {
        name: dict(zip(sorted(like[name]), map(to_bits, each), strict=True))
        for name, each in tensors.items()
    }


def _poisoned(
    module: ModuleType,
    case: RelayoutCase,
    memory: Memory,
    tensors: Tensors,
    wanted: Held,
    padding: Any,
) -> None:
    out = _tensors(_blank(case, wanted), case.dtype, module.target_shape)
    for x in itertools.chain(*out.values()):
        memory.allow(x)
    results = module.reshard_local(tensors, out=out)
    same = all(a is b for name in out for a, b in zip(out[name], results[name], strict=True))
    compare.require(same, "the results are not the tensors of out")
    _compare_filled(case, results, wanted, padding, "out")


def _views(
    module: ModuleType,
    case: RelayoutCase,
    memory: Memory,
    tensors: Tensors,
    wanted: Held,
    padding: Any,
) -> None:
    """Check results when inputs and `out` are views with permuted dimensions and gaps between rows.
    The gaps must stay unchanged."""
    blank = _tensors(_blank(case, wanted), case.dtype, module.target_shape)
    sides, whole = [], []
    for side in (tensors, blank):
        pairs = {name: [_view(x) for x in each] for name, each in side.items()}
        whole.append([around for each in pairs.values() for _, around in each])
        sides.append({name: [view for view, _ in each] for name, each in pairs.items()})
    before = [to_bits(around) for around in whole[0]]
    for around in itertools.chain(*whole):
        memory.allow(around)
    results = module.reshard_local(sides[0], out=sides[1])
    _compare_filled(case, results, wanted, padding, "out of views")
    kept = all(map(np.array_equal, map(to_bits, whole[0]), before))
    compare.require(kept, "an input that is a view was changed")
    for view, around in zip(itertools.chain(*sides[1].values()), whole[1], strict=True):
        view.view(_bits_of(view)).zero_()
        gaps = to_bits(around)
        same = int((gaps != 0).sum()) == around.numel() - view.numel()
        compare.require(same, "elements between the rows of an out view were changed")


def _view(x: Any) -> tuple[Any, Any]:
    """Return a view with the elements of a tensor, and the view's base tensor, which is otherwise
    filled with ones."""
    around = guarded(torch.empty([size + 1 for size in reversed(x.shape)], dtype=x.dtype))
    around.view(_bits_of(x)).fill_(1)
    view = around.permute(*reversed(range(x.ndim)))[tuple(map(slice, x.shape))]
    view.view(_bits_of(x)).copy_(x.view(_bits_of(x)))
    return view, around


def _bits_of(x: Any) -> Any:
    return {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()]


def _blank(case: RelayoutCase, wanted: Held) -> Held:
    return {
        name: {device: np.full_like(bits, _poison(case, bits)) for device, bits in each.items()}
        for name, each in wanted.items()
    }


def _compare_filled(
    case: RelayoutCase, results: Tensors, wanted: Held, padding: Any, what: str
) -> None:
    with compare.said_of(what):
        for name, each in _held(results, wanted).items():
            for device, bits in each.items():
                if not bits.size:
                    continue
                expected = wanted[name][device]
                filled = np.where(padding[name][device], _poison(case, bits), expected)
                compare.same_bits(f"device {device}, buffer {name}", bits, filled, expected)


def _poison(case: RelayoutCase, bits: Any) -> Any:
    return bits.dtype.type(1 if case.dtype == "bool" else POISON)


def _among_ranks(module: ModuleType, case: RelayoutCase, memory: Memory, tensors: Tensors) -> Held:
    """Return the results of calls by all ranks, made one after another. Messages are packed
    beforehand, and a stand-in for the group delivers them."""
    sources = sorted(case.source.device_ids)
    given = {
        device: {name: tensors[name][number] for name in module.SOURCE}
        for number, device in enumerate(sources)
    }
    home, messages = torch.device("cpu"), {}
    for device in module.RANKS:
        own = [*given[device].values()] if device in given else None
        line, sizes = module.packed(device, own, home)
        messages[device] = torch.split(line, sizes)
    found: dict[str, dict[int, Any]] = {name: {} for name in module.TARGET}
    for rank, device in enumerate(module.RANKS):
        with patch.object(module, "dist", handed(rank, device, messages, allow=memory.allow)):
            results = module.reshard(given.get(device))
        wanted = device in case.target.device_ids
        said = f"device {device}: a result is missing or unexpected"
        compare.require((results is not None) == wanted, said)
        for name, x in (results or {}).items():
            found[name][device] = to_bits(x)
    return found
