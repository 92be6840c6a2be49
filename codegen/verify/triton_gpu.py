"""Run an emitted Triton module in Triton's interpreter, on the CPU. Imported in a worker only.

`TRITON_INTERPRET=1` must be set before this is imported.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import torch

from shardwright.codegen import oracle
from shardwright.codegen.oracle import Bits
from shardwright.codegen.verify import compare
from shardwright.codegen.verify.case import MAX_DEVICES, Case
from shardwright.codegen.verify.compare import MismatchError, Run
from shardwright.codegen.verify.launch import quick_launches
from shardwright.codegen.verify.memory import Memory, guarded
from shardwright.codegen.verify.sample import sample

CHECKS = ("values", "poison", "stored once", "reads in bounds", "inputs kept", "no alias")


def run(module: ModuleType, case: Case) -> tuple[str, ...]:
    """Execute the module on every bit plane; the names of the checks passed."""
    for execution in compare.runs(case):
        _run_once(module, case, execution)
    if not case.derivative:
        return CHECKS
    with compare.said_of("the derivative"):
        _transpose(module, case, execution)
    return (*CHECKS, "derivative")


def inspect(module: ModuleType, case: Case) -> tuple[str, ...]:
    """Execute some programs of a module at full size, moving nothing; the checks passed."""
    if len(case.devices()) > MAX_DEVICES:
        return ()
    sample(module, case)
    return ("sampled programs",)


def _run_once(module: ModuleType, case: Case, execution: Run) -> None:
    given = oracle.shards(case.source, execution.tensor)
    expected = oracle.shards(case.target, execution.tensor)
    inputs = {device: to_torch(bits, case.dtype) for device, bits in sorted(given.items())}
    memory = Memory(_poison(case.dtype, execution.poison), inputs)
    with memory, quick_launches():
        outputs = module.reshard_local(list(inputs.values()))
    compare.expect("results", len(outputs), len(expected))
    results = dict(zip(sorted(expected), outputs, strict=True))
    _no_alias(inputs, results)
    for device, result in results.items():
        compare.expect(f"device {device}: dtype of the result", str(result.dtype), _name(case))
    bits = {device: to_bits(result) for device, result in results.items()}
    compare.results(execution, bits, expected)
    memory.check(results)
    for device, tensor in inputs.items():
        if not np.array_equal(to_bits(tensor), given[device]):
            raise MismatchError(f"device {device}: its input shard was changed")


def _transpose(module: ModuleType, case: Case, execution: Run) -> None:
    """The gradient of the target shards moves back to the source."""
    given = oracle.shards(case.target, execution.tensor)
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
    expected = oracle.shards(case.source, execution.tensor)
    got = [to_bits(shard.grad) for shard in shards]
    compare.results(execution, dict(zip(sorted(expected), got, strict=True)), expected)


def _no_alias(inputs: dict[int, Any], results: dict[int, Any]) -> None:
    """No two tensors among inputs and results share memory."""
    owners: dict[int, str] = {}
    for kind, tensors in (("input", inputs), ("result", results)):
        for device, tensor in tensors.items():
            name = f"{kind} of device {device}"
            address = tensor.untyped_storage().data_ptr()
            if address in owners:
                raise MismatchError(f"the {name} shares memory with the {owners[address]}")
            if tensor.numel():
                owners[address] = name


def _name(case: Case) -> str:
    return f"torch.{case.dtype}"


def _poison(dtype: str, which: int) -> int:
    """The byte that fresh memory is filled with; no safe value looks like either poison."""
    return which if dtype == "bool" else (0xFF, 0x00)[which]


def to_torch(bits: Bits, dtype: str) -> Any:
    """A fresh CPU tensor with these bits."""
    tensor = guarded(torch.empty(bits.shape, dtype=getattr(torch, dtype)))
    np.copyto(tensor.reshape(-1).view(torch.uint8).numpy(), np.frombuffer(bits.tobytes(), np.uint8))
    return tensor


def to_bits(tensor: Any) -> Bits:
    """The bits of a CPU tensor."""
    flat = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy()
    bits: Bits = flat.copy().view(f"u{tensor.element_size()}").reshape(tuple(tensor.shape))
    return bits
