"""Tensors of given bits, and the bits of tensors. In a worker only."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from .case import ITEMSIZES, Case, Side
from .reference import Array, Bits
from .values import WrongError, bits_type

_ALIGNED = 16

Shards = dict[int, Bits]
"""What devices hold, by ascending device id; of a tensor of partial sums each has its own term."""


def held(case: Case, side: Side, array: Bits) -> Shards:
    """Return the shards of an array."""
    layout = Array.of(case, side)
    whole = {device: layout.shard(device, array) for device in sorted(side.device_ids)}
    return {device: bits[0] if layout.read.terms else bits for device, bits in whole.items()}


def shapes(case: Case, side: Side) -> dict[int, tuple[int, ...]]:
    """Return the shapes of the shards of a side, by device id."""
    array = np.empty(Array.of(case, side).shape, bits_type(case.dtype))
    return {device: bits.shape for device, bits in held(case, side, array).items()}


def to_tensor(case: Case, bits: Bits, *, negative: bool = False) -> Any:
    """Return a tensor with these bits, `case.use.offset` elements past an aligned address.

    `negative`: by the lazy negative bit over the negated elements.
    """
    dtype, size = getattr(torch, case.dtype), ITEMSIZES[case.dtype]
    start = getattr(case.use, "offset", 0)
    memory = torch.empty(bits.nbytes + (start + 2) * size + _ALIGNED, dtype=torch.uint8)
    first = -memory.data_ptr() % _ALIGNED + start * size
    stored = bits ^ (1 << (8 * size - 1)) if negative else bits
    raw = memory[first : first + bits.nbytes]
    raw.copy_(torch.from_numpy(np.frombuffer(stored.tobytes(), np.uint8).copy()))
    tensor = raw.view(dtype).reshape(bits.shape)
    return torch._neg_view(tensor) if negative else tensor


def to_bits(tensor: Any, dtype: str) -> Bits:
    """Return the bits that a tensor reads as, the lazy negative bit resolved."""
    if tensor.dtype != getattr(torch, dtype):
        raise WrongError(f"got {tensor.dtype}, expected torch.{dtype}")
    plain = tensor.detach().resolve_neg().resolve_conj()
    flat = plain.contiguous().reshape(-1).view(torch.uint8).numpy()
    return flat.copy().view(bits_type(dtype)).reshape(tuple(tensor.shape))


def filled(case: Case, shape: tuple[int, ...], *, negative: bool = False) -> Any:
    """Return a tensor for a result, full of bits that no result has everywhere."""
    bits = np.full(shape, 1 if case.dtype == "bool" else 0xA5, bits_type(case.dtype))
    return to_tensor(case, bits, negative=negative)
