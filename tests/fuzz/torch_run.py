"""Run the Triton module of a case in Triton's interpreter and judge it. In a worker only."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import torch

from shardwright.codegen.backends.triton_gpu.verify.memory import Memory
from shardwright.codegen.backends.triton_gpu.verify.quick import quick_launches
from shardwright.codegen.checks.compare import MismatchError

from .case import ITEMSIZES, Case, TorchUse
from .reference import Array, Bits
from .torch_ranks import exchanged
from .torch_tensors import Shards, filled, held, shapes, to_bits, to_tensor
from .values import (
    WrongError,
    bits_type,
    check_bits,
    check_target,
    cotangent,
    draws,
    given,
    has_nothing,
)


def run(module: ModuleType, case: Case) -> None:
    """Move random bits; raise WrongError where what comes out is not what must."""
    assert isinstance(case.use, TorchUse)
    if case.use.door != "local":
        _over_a_group(module, case)
        return
    for draw in draws(case):
        try:
            _Run(module, case, draw).check()
        except MismatchError as error:  # of what a kernel does to memory
            raise WrongError(str(error)) from error


def _over_a_group(module: ModuleType, case: Case) -> None:
    """One process a device makes all calls; judge what it has of each of them."""
    arrays = [given(case, draw) for draw in draws(case)]
    calls = [held(case, case.source, bits) for bits in arrays]
    for number, got in enumerate(exchanged(module, case, calls)):
        judge(case, f"call {number}", arrays[number], got)


def judge(case: Case, what: str, bits: Bits, got: Shards) -> None:
    """Raise WrongError unless the shards are those of the target for the source's `bits`."""
    layout = Array.of(case, case.target)
    expected = shapes(case, case.target)
    if list(got) != list(expected):
        raise WrongError(f"{what}: shards of {list(got)}, expected those of {list(expected)}")
    array = np.zeros(layout.shape, bits_type(case.dtype))
    first: dict[tuple[int, ...], int] = {}
    for device, shard in got.items():
        if shard.shape != expected[device]:
            raise WrongError(f"{what}, device {device}: got {shard.shape}, "
                             f"expected {expected[device]}")  # fmt: skip
        replica = first.setdefault(layout.shard_of(device), device)
        check_bits(f"{what}, device {device} against {replica}", shard, got[replica])
        array[layout.elements(device)] = shard
    check_target(case, bits, array, what)


class _Run:
    def __init__(self, module: ModuleType, case: Case, draw: int) -> None:
        assert isinstance(case.use, TorchUse)
        self.module, self.case, self.use, self.draw = module, case, case.use, draw
        self.bits = given(case, draw)
        if self.use.negative:
            self.bits = _quiet(case.dtype, self.bits)

    def check(self) -> None:
        negative = self.use.negative == "shards"
        shards = held(self.case, self.case.source, self.bits)
        tensors = [to_tensor(self.case, bits, negative=negative) for bits in shards.values()]
        names = {f"source shard of {device}": t for device, t in zip(shards, tensors, strict=True)}
        out = self._out() if self.use.out else None
        targets = sorted(self.case.target.device_ids)
        poison = 1 if self.case.dtype == "bool" else (0xFF, 0x00)[self.draw % 2]
        for tensor in tensors:
            tensor.requires_grad_(self.use.gradient)
        memory = Memory(poison, names)
        with memory, quick_launches():
            results = self.module.reshard_local(tensors, **({} if out is None else {"out": out}))
        self._judge("result", results)
        if out is not None:
            self._judge("out", out)
        if not self.use.negative:
            pairs = zip(targets, results, strict=True)
            whole = {d: r for d, r in pairs if not has_nothing(self.case, self._bits(r))}
            memory.check({f"result of {d}": r for d, r in whole.items()})
        self._check_shards("source shard afterwards", shards, tensors)
        if self.use.gradient:
            self._pull(tensors, results)

    def _pull(self, tensors: list[Any], results: list[Any]) -> None:
        array = cotangent(self.case, self.draw)
        moved = held(self.case, self.case.target, array)
        expected = held(self.case, self.case.source, array)
        with quick_launches():
            torch.autograd.backward(results, [to_tensor(self.case, b) for b in moved.values()])
        self._check_shards("gradient", expected, [tensor.grad for tensor in tensors])

    def _out(self) -> list[Any]:
        """Memory for the target shards."""
        negative = self.use.negative == "out"
        wanted = shapes(self.case, self.case.target).values()
        return [filled(self.case, shape, negative=negative) for shape in wanted]

    def _judge(self, what: str, tensors: Any) -> None:
        targets = sorted(self.case.target.device_ids)
        if len(tensors) != len(targets):
            raise WrongError(f"{what}: got {len(tensors)} tensors, expected {len(targets)}")
        got = {d: self._bits(t) for d, t in zip(targets, tensors, strict=True)}
        judge(self.case, what, self.bits, got)

    def _bits(self, tensor: Any) -> Bits:
        return to_bits(tensor, self.case.dtype)

    def _check_shards(self, what: str, expected: Shards, tensors: Any) -> None:
        for (device, bits), tensor in zip(expected.items(), tensors, strict=True):
            check_bits(f"{what}, device {device}", to_bits(tensor, self.case.dtype), bits)


def _quiet(dtype: str, bits: Bits) -> Bits:
    """The bits without those of NaNs, which arithmetic may change."""
    width = 8 * ITEMSIZES[dtype]
    top = {"float32": 0x7F80_0000, "float64": 0x7FF0_0000_0000_0000}[dtype]
    kind = bits_type(dtype).type
    return np.where(bits & kind(top) == kind(top), bits & kind(1 << (width - 1)), bits)
