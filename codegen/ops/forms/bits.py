"""Random bits, which depend only on the key and their position."""

from __future__ import annotations

import math

from shardwright.codegen.ops.forms.form import LocalForm, OpTensors

COUNTED = 2**32
"""The number of positions that 32 bits can index."""


def random_bits(tensors: OpTensors) -> LocalForm | None:
    """Return the form of random bits from one threefry key. Return None for other keys, for 64-bit
    bits, for 2**32 or more positions, and if the bits depend on the number of positions."""
    key, bits = tensors.values
    counted = math.prod(bits.shape) < COUNTED and not bits.dtype.endswith("64")
    partitionable = dict(tensors.op.params).get("partitionable") is True
    if key.shape or key.dtype != "key<fry>" or not counted or not partitionable:
        return None
    return LocalForm(tensors.rule, frozenset(range(len(tensors.rule.sizes))))
