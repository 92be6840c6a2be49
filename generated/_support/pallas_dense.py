"""Dense slots: boxes stored contiguously, in whole granules of 512 bytes."""

import math
from typing import NamedTuple

import jax.numpy as jnp


class Dense(NamedTuple):
    """A slot that holds the elements of a box contiguously. `shape`: the shape of the slot;
    `held`: the extents of the box."""

    shape: tuple[int, ...]
    held: tuple[int, ...]

    def packed(self, box):
        line = box.reshape(-1)
        return jnp.pad(line, (0, math.prod(self.shape) - line.size)).reshape(self.shape)

    def unpacked(self, slot):
        """Return the box that `packed` put into a slot."""
        return slot.reshape(-1)[: math.prod(self.held)].reshape(self.held)
