"""Arrays that do not fill whole memory tiles, in the form that matmul kernels take."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jax.experimental.pallas import tpu as pltpu

from .pallas_products import LANES


class BlockedArray(NamedTuple):
    """An array [..., rows, columns] in the kernel's form. `extents`: the shape of the array;
    `shape`: its shape in HBM; `pieces`: (axis, pitch, (start, size)...) if pieces of the array do
    not begin at memory tiles; in HBM, piece n then begins at n * pitch."""

    extents: tuple
    shape: tuple
    dtype: str
    pieces: tuple = ()

    def in_hbm(self, interpret):
        """Return the array's type in HBM, padded to whole memory tiles if its kernel is
        interpreted."""
        shape = in_memory(self.shape, self.dtype, interpret)
        return pltpu.HBM(shape, jnp.dtype(self.dtype))

    def packed(self, x, interpret):
        """Return an array in the kernel's form. Up to whole memory tiles, the memory beyond its
        shape is undefined on a TPU; for the interpreter it is filled with NaNs or the largest
        integers."""
        if self.pieces:
            from .pallas_spaced import spaced  # only if pieces do not begin at memory tiles

            x = spaced(x, *self.pieces)
        x = jnp.pad(x, [(0, size - of) for size, of in zip(self.shape, x.shape, strict=True)])
        behind = zip(self.shape, in_memory(self.shape, self.dtype, interpret), strict=True)
        is_float = jnp.issubdtype(x.dtype, jnp.floating)
        worst = jnp.array(jnp.nan if is_float else jnp.iinfo(x.dtype).max, x.dtype)
        return lax.pad(x, worst, [(0, size - of, 0) for of, size in behind])

    def unpacked(self, x):
        """Invert `packed`."""
        x = lax.slice(x, (0, 0, 0), self.shape)
        if self.pieces:
            from .pallas_spaced import closed

            x = closed(x, *self.pieces)
        return lax.slice(x, (0, 0, 0), self.extents)


def in_memory(shape, dtype, interpret):
    """Return the shape of an array in HBM, rounded up to whole memory tiles if its kernel is
    interpreted."""
    if not interpret:
        return shape
    *lead, rows, columns = shape
    tile = 32 if jnp.dtype(dtype).itemsize == 1 else 8
    return (*lead, -(-rows // tile) * tile, -(-columns // LANES) * LANES)
