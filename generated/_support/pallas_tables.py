"""Tables that kernels read."""

import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def in_smem(table):
    """Return the block spec of a whole table in SMEM."""

    # Without its own index map, a grid's block gets a 64-bit index if JAX allows 64-bit types.
    def start(*_):
        return (np.int32(0),) * table.ndim

    return pl.BlockSpec(table.shape, start, memory_space=pltpu.SMEM)
