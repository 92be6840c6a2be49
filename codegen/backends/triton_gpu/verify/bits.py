"""Convert between tensors and bits. Imported only by workers."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from shardwright.codegen.backends.triton_gpu.verify.memory import guarded
from shardwright.codegen.checks.oracle.definition import Bits
from shardwright.codegen.checks.oracle.sums import Numbers


def to_torch(bits: Bits, dtype: str) -> Any:
    """Return a new CPU tensor of a dtype with the given bits."""
    tensor = guarded(torch.empty(bits.shape, dtype=getattr(torch, dtype)))
    fill(tensor, bits)
    return tensor


def fill(tensor: Any, bits: Bits) -> None:
    """Write the given bits to a contiguous CPU tensor."""
    given = np.frombuffer(bits.tobytes(), np.uint8)
    np.copyto(tensor.detach().reshape(-1).view(torch.uint8).numpy(), given)


def as_bits(numbers: Numbers, dtype: str) -> Bits:
    """Convert numbers to a dtype and return their bits."""
    return to_bits(torch.from_numpy(np.array(numbers)).to(getattr(torch, dtype)))


def to_bits(tensor: Any) -> Bits:
    # This makes even a view with a single element contiguous.
    dense = tensor.detach().clone(memory_format=torch.contiguous_format)
    flat = dense.reshape(-1).view(torch.uint8).numpy()
    bits: Bits = flat.copy().view(f"u{tensor.element_size()}").reshape(tuple(tensor.shape))
    return bits
