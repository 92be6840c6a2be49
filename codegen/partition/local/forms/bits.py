"""Random bits: the bits at a position depend only on the key and the position."""

from __future__ import annotations

import math

from shardwright.codegen.partition.local.forms.form import LocalForm, OpTensors

COUNTED = 2**32
"""Most positions that a 32-bit number can index."""


def random_bits(tensors: OpTensors) -> LocalForm | None:
    """Return the form of the bits of one threefry key, unless they depend on the total count."""
    key, bits = tensors.values
    counted = math.prod(bits.shape) < COUNTED and not bits.dtype.endswith("64")
    partitionable = dict(tensors.op.params).get("partitionable") is True
    if key.shape or key.dtype != "key<fry>" or not counted or not partitionable:
        return None
    return LocalForm(tensors.rule, frozenset(range(len(tensors.rule.sizes))))
