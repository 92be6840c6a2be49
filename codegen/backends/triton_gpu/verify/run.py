"""Run an emitted Triton module in Triton's interpreter, on the CPU. Imported only by workers.

`TRITON_INTERPRET=1` must be set before this is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
import torch

from shardwright.codegen.backends.triton_gpu.verify.among_ranks import check_among_ranks
from shardwright.codegen.backends.triton_gpu.verify.bits import as_bits, to_bits, to_torch
from shardwright.codegen.backends.triton_gpu.verify.copies import check_copies
from shardwright.codegen.backends.triton_gpu.verify.group_calls import check_group_calls
from shardwright.codegen.backends.triton_gpu.verify.matmul import run_matmul
from shardwright.codegen.backends.triton_gpu.verify.memory import Memory
from shardwright.codegen.backends.triton_gpu.verify.models import run_model
from shardwright.codegen.backends.triton_gpu.verify.planted import missed
from shardwright.codegen.backends.triton_gpu.verify.quick import quick_launches
from shardwright.codegen.backends.triton_gpu.verify.relayouts import run_relayout
from shardwright.codegen.backends.triton_gpu.verify.rounding import rounded_to_nearest
from shardwright.codegen.backends.triton_gpu.verify.sample import sample
from shardwright.codegen.backends.triton_gpu.verify.turns import check_listed_turns
from shardwright.codegen.checks import compare
from shardwright.codegen.checks.case import MAX_DEVICES, Case, GroupCase
from shardwright.codegen.checks.compare import MismatchError, Run
from shardwright.codegen.checks.oracle.definition import Bits
from shardwright.codegen.checks.terms import (
    cotangent_back,
    own_terms,
    random_terms,
    reduces,
    runs,
    sums_within_bound,
    without_value,
)

__all__ = ["inspect", "missed", "run", "run_group", "run_matmul", "run_model", "run_relayout"]

Reshard = Callable[[dict[str, list[Any]]], Mapping[str, Sequence[Any]]]
"""A function from source shards to target shards, both by tensor and in order of device id."""

FEW = 3
"""The number of programs of a launch in every second run. Each program then copies several
blocks."""

CHECKS = ("values", "poison", "stored once", "reads in bounds", "inputs kept", "no alias")


def run(module: ModuleType, case: Case) -> tuple[str, ...]:
    """Run the module on every bit plane and return the names of the checks that passed. Raises
    MismatchError."""
    for number, execution in enumerate(runs(case, as_bits)):
        _run_once(module, case, execution, FEW if number % 2 else None)
    if case.derivative:
        with compare.said_of("the derivative"):
            _transpose(module, case, execution)
    pushed = _push(module, case, execution)
    bounded = _bounded(module, case)
    derivative = ("derivative",) if case.derivative else ()
    # Trace the copies after running the module: a fault in its results is reported first.
    copies = check_copies(compare.named(module, "_HOST").phases)
    return (*CHECKS, *bounded, *derivative, *pushed, *copies, *check_among_ranks(module, case))


def _bounded(module: ModuleType, case: Case) -> tuple[str, ...]:
    """Check sums of floats, if the module computes any: their error, and that replicas are equal.
    Return the name of the check."""
    if not reduces(case) or case.source.operator != "sum" or "float" not in case.dtype:
        return ()
    terms = as_bits(random_terms(case), case.dtype)
    shards = own_terms(case.source, case.source_array, terms)
    with quick_launches(), rounded_to_nearest():
        outputs = module.reshard_local([to_torch(b, case.dtype) for _, b in sorted(shards.items())])
    got = zip(sorted(case.target.device_ids), outputs, strict=True)
    exact = to_torch(terms, case.dtype).double().numpy()
    sums_within_bound(case, exact, {device: out.double().numpy() for device, out in got})
    return ("sums within bounds",)


def inspect(module: ModuleType, case: Case) -> tuple[str, ...]:
    """Check a module at full size without moving data: its kernels' copies and, unless it reduces
    terms or its mesh is too large, a sample of its programs. Return the names of the checks that
    passed. Raises MismatchError."""
    # A kernel that reduces terms stores values other than those it loaded.
    sampled = len(case.devices()) <= MAX_DEVICES and not reduces(case)
    if sampled:
        sample(module, case)
    copies = check_copies(compare.named(module, "_HOST").phases)
    return ("sampled programs", *copies) if sampled else copies


def run_group(module: ModuleType, group: GroupCase) -> tuple[str, ...]:
    """Run a group's module on every bit plane of every member and return the names of the checks
    that passed. Raises MismatchError."""
    compare.expect("NAMES", list(module.NAMES), [case.name for case in group.members])
    planes = compare.runs_of_each(group.members)
    for number in range(max(map(len, planes))):
        moves = [
            _Move.of(case, each[number % len(each)], f"{case.name}, ")
            for case, each in zip(group.members, planes, strict=True)
        ]
        _move_at_once(moves, module.reshard_local)
    check_listed_turns(module._HOST)
    return (*CHECKS, "order of copies", *check_group_calls(module, group))


@dataclass(frozen=True)
class _Move:
    """A tensor to move. `label`: the prefix of its shards' names in messages; `given`, `expected`:
    the bits of its source and target shards, by device; `inputs`: its source shards as tensors."""

    case: Case
    execution: Run
    label: str
    given: dict[int, Bits]
    expected: dict[int, Bits]
    inputs: dict[int, Any]

    @staticmethod
    def of(case: Case, execution: Run, label: str = "") -> _Move:
        given = own_terms(case.source, case.source_array, execution.given)
        return _Move(
            case=case,
            execution=execution,
            label=label,
            given=given,
            expected=own_terms(case.target, case.target_array, execution.tensor),
            inputs={device: to_torch(bits, case.dtype) for device, bits in sorted(given.items())},
        )

    def named(self, tensors: Mapping[int, Any]) -> dict[str, Any]:
        return {f"{self.label}device {device}": tensor for device, tensor in tensors.items()}

    def results(self, outputs: Sequence[Any]) -> dict[int, Any]:
        compare.expect(f"{self.label}results", len(outputs), len(self.expected))
        return dict(zip(sorted(self.expected), outputs, strict=True))

    def stored(self, results: dict[int, Any]) -> dict[str, Any]:
        """Return by name the results to which kernels store: all except results without terms,
        which torch fills."""
        empty = without_value(self.case)
        return self.named({device: t for device, t in results.items() if device not in empty})

    def check_results(self, results: dict[int, Any]) -> None:
        for name, result in self.named(results).items():
            compare.expect(f"{name}: dtype of the result", str(result.dtype), _name(self.case))
        bits = {device: to_bits(result) for device, result in results.items()}
        with compare.said_of(self.case.name) if self.label else nullcontext():
            compare.results(self.execution, bits, self.expected)

    def check_inputs(self) -> None:
        for device, tensor in self.inputs.items():
            if not np.array_equal(to_bits(tensor), self.given[device]):
                raise MismatchError(f"{self.label}device {device}: its input shard was changed")


def _run_once(module: ModuleType, case: Case, execution: Run, programs: int | None) -> None:
    def reshard(given: dict[str, list[Any]]) -> dict[str, Any]:
        moved = partial(module.reshard_local, programs=programs)
        return {name: moved(shards) for name, shards in given.items()}

    _move_at_once([_Move.of(case, execution)], reshard)


def _push(module: ModuleType, case: Case, execution: Run) -> tuple[str, ...]:
    phases = compare.named(module, "_HOST").phases
    host, programs = phases[-1], (None, FEW)
    if "push" not in host.features:
        return ()

    def pushed(given: dict[str, list[Any]], programs: int | None) -> dict[str, Any]:
        ((name, shards),) = given.items()
        for phase in phases[:-1]:
            shards = phase.reshard_local(shards)
        exchange = host.exchange
        outs = {device: host.empty(device, "cpu") for device in sorted(exchange.target.ids)}
        addresses = [outs[device].data_ptr() for device in exchange.target.ids]
        for device, shard in zip(sorted(exchange.source.ids), shards, strict=True):
            push = host.features["push"].pusher(host, shard, addresses, device, programs)
            push(shard, outs[device])
        return {name: [*outs.values()]}

    with compare.said_of("pushed"):
        for most in programs:
            _move_at_once([_Move.of(case, execution)], partial(pushed, programs=most))
    return ("pushed",)


def _move_at_once(moves: Sequence[_Move], reshard: Reshard) -> None:
    inputs = {name: t for move in moves for name, t in move.named(move.inputs).items()}
    dtypes = {move.case.dtype for move in moves}
    dtype = "bool" if "bool" in dtypes else moves[0].case.dtype
    memory = Memory(_poison(dtype, moves[0].execution.poison), inputs)
    with memory, quick_launches():
        outputs = reshard({move.case.name: list(move.inputs.values()) for move in moves})
    moved = [(move, move.results(outputs[move.case.name])) for move in moves]
    made = {name: t for move, results in moved for name, t in move.named(results).items()}
    _no_alias(inputs, made)
    for move, results in moved:
        move.check_results(results)
    memory.check({name: t for move, each in moved for name, t in move.stored(each).items()})
    for move in moves:
        move.check_inputs()


def _transpose(module: ModuleType, case: Case, execution: Run) -> None:
    given = own_terms(case.target, case.target_array, execution.tensor)
    shards = [
        torch.zeros(module.source_shape(device), dtype=getattr(torch, case.dtype))
        for device in sorted(case.source.device_ids)
    ]
    for shard in shards:
        shard.requires_grad_()
    with quick_launches():
        outputs = module.reshard_local(shards)
        torch.autograd.backward(
            outputs, [to_torch(bits, case.dtype) for _, bits in sorted(given.items())]
        )
    back = cotangent_back(case, execution.tensor)
    expected = own_terms(case.source, case.source_array, back)
    got = [to_bits(shard.grad) for shard in shards]
    compare.results(execution, dict(zip(sorted(expected), got, strict=True)), expected)


def _no_alias(inputs: dict[str, Any], results: dict[str, Any]) -> None:
    owners: dict[int, str] = {}
    for kind, tensors in (("input", inputs), ("result", results)):
        for owner, tensor in tensors.items():
            name = f"{kind} of {owner}"
            address = tensor.untyped_storage().data_ptr()
            if address in owners:
                raise MismatchError(f"the {name} shares memory with the {owners[address]}")
            if tensor.numel():
                owners[address] = name


def _name(case: Case) -> str:
    return f"torch.{case.dtype}"


def _poison(dtype: str, which: int) -> int:
    """Return the byte that fills new memory. For bool only 0 and 1 are valid; for other dtypes, no
    value that the checks move looks like both poisons."""
    return which if dtype == "bool" else (0xFF, 0x00)[which]
