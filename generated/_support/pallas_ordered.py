"""Slots that store boxes in their shape, tiled as the memory of a TPU tiles it."""

from typing import NamedTuple

import numpy as np
from jax import lax


class Slot(NamedTuple):
    """A slot that holds a box. `shape`: the shape of the slot; `held`: the extents of the box;
    `order`: the order of dimensions in the slot, None for the tensor's order."""

    shape: tuple[int, ...]
    held: tuple[int, ...]
    order: tuple[int, ...] | None = None

    def packed(self, values):
        return values if self.order is None else lax.transpose(values, self.order)

    def unpacked(self, slot):
        """Invert `packed`."""
        return slot if self.order is None else lax.transpose(slot, np.argsort(self.order))
