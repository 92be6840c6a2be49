"""Run the Triton module of a case in Triton's interpreter and judge it. In a worker only."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import torch

from shardwright.codegen.backends.triton_gpu.verify.memory import Memory
from shardwright.codegen.backends.triton_gpu.verify.quick import quick_launches
from shardwright.codegen.verify.compare import MismatchError

from .case import ITEMSIZES, Case, Side, TorchUse
from .reference import Array, Bits
from .values import WrongError, bits_type, check_bits, cotangent, draws, given

_ALIGNED = 16


def run(module: ModuleType, case: Case) -> None:
    """Move random bits; raise WrongError where what comes out is not what must."""
    for draw in draws(case):
        try:
            _Run(module, case, draw).check()
        except MismatchError as error:  # of what a kernel does to memory
            raise WrongError(str(error)) from error


class _Run:
    def __init__(self, module: ModuleType, case: Case, draw: int) -> None:
        assert isinstance(case.use, TorchUse)
        self.module, self.case, self.use, self.draw = module, case, case.use, draw
        self.bits = given(case, draw)
        if self.use.negative:
            self.bits = _quiet(case.dtype, self.bits)

    def check(self) -> None:
        negative = self.use.negative == "shards"
        held = self._held(self.case.source, self.bits)
        tensors = [self._tensor(bits, negative) for bits in held.values()]
        names = {f"source shard of {device}": t for device, t in zip(held, tensors, strict=True)}
        out = self._out() if self.use.out else None
        wanted = self._held(self.case.target, self.bits)
        poison = 1 if self.case.dtype == "bool" else (0xFF, 0x00)[self.draw % 2]
        for tensor in tensors:
            tensor.requires_grad_(self.use.gradient)
        memory = Memory(poison, names)
        with memory, quick_launches():
            results = self.module.reshard_local(tensors, **({} if out is None else {"out": out}))
        self._check_shards("result", wanted, results)
        if out is not None:
            self._check_shards("out", wanted, out)
        if not self.use.negative:
            memory.check({f"result of {d}": r for d, r in zip(wanted, results, strict=True)})
        self._check_shards("source shard afterwards", held, tensors)
        if self.use.gradient:
            self._pull(tensors, results)

    def _pull(self, tensors: list[Any], results: list[Any]) -> None:
        array = cotangent(self.case, self.draw)
        moved = self._held(self.case.target, array)
        expected = self._held(self.case.source, array)
        with quick_launches():
            torch.autograd.backward(results, [self._tensor(bits) for bits in moved.values()])
        self._check_shards("gradient", expected, [tensor.grad for tensor in tensors])

    def _held(self, side: Side, array: Bits) -> dict[int, Bits]:
        """What every device holds of an array, by ascending device id."""
        layout = Array.of(self.case, side)
        return {device: layout.shard(device, array) for device in sorted(side.device_ids)}

    def _out(self) -> list[Any]:
        """Memory for the target shards."""
        shards = self._held(self.case.target, self.bits).values()
        return [self._tensor(~bits & 1, self.use.negative == "out") for bits in shards]

    def _tensor(self, bits: Bits, negative: bool = False) -> Any:
        """A tensor with these bits, so many elements past an aligned address; `negative`: by the
        lazy bit over the negated ones."""
        dtype = getattr(torch, self.case.dtype)
        size, start = ITEMSIZES[self.case.dtype], self.use.offset
        memory = torch.empty(bits.nbytes + (start + 2) * size + _ALIGNED, dtype=torch.uint8)
        first = -memory.data_ptr() % _ALIGNED + start * size
        stored = bits ^ (1 << (8 * size - 1)) if negative else bits
        raw = memory[first : first + bits.nbytes]
        raw.copy_(torch.from_numpy(np.frombuffer(stored.tobytes(), np.uint8).copy()))
        tensor = raw.view(dtype).reshape(bits.shape)
        return torch._neg_view(tensor) if negative else tensor

    def _check_shards(self, what: str, expected: dict[int, Bits], tensors: Any) -> None:
        if len(tensors) != len(expected):
            raise WrongError(f"{what}: got {len(tensors)} tensors, expected {len(expected)}")
        for (device, bits), tensor in zip(expected.items(), tensors, strict=True):
            check_bits(f"{what}, device {device}", to_bits(tensor, self.case.dtype), bits)


def _quiet(dtype: str, bits: Bits) -> Bits:
    """The bits without those of NaNs, which arithmetic may change."""
    width = 8 * ITEMSIZES[dtype]
    top = {"float32": 0x7F80_0000, "float64": 0x7FF0_0000_0000_0000}[dtype]
    kind = bits_type(dtype).type
    return np.where(bits & kind(top) == kind(top), bits & kind(1 << (width - 1)), bits)


def to_bits(tensor: Any, dtype: str) -> Bits:
    """What a tensor reads as, the lazy negative bit resolved, as bits."""
    if tensor.dtype != getattr(torch, dtype):
        raise WrongError(f"got {tensor.dtype}, expected torch.{dtype}")
    plain = tensor.detach().resolve_neg().resolve_conj()
    flat = plain.contiguous().reshape(-1).view(torch.uint8).numpy()
    return flat.copy().view(bits_type(dtype)).reshape(tuple(tensor.shape))
