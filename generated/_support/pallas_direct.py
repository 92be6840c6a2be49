"""Programs whose only kernel moves tiles from shard to shard; the kernel is in the module."""

from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from .pallas_peers import multiple
from .pallas_program import PallasProgram


class Direct(PallasProgram):
    """A reshard whose tiles, along each dimension, begin and end at memory-tile boundaries or span
    the dimension, so they are copied from shard to shard without packing. `kernel`: a function of a
    table of ranks or None, the source shard, the target shard and DMA semaphores; `kernels`: the
    kernels that start and that wait, in modules that can start and wait separately."""

    form = "direct"

    def __init__(self, kernel, semaphores, peers, view, kernels=(), **settings):
        super().__init__(peers, view, **settings)
        self.kernel, self._semaphores, self.kernels = kernel, semaphores, kernels

    def moved(self, x, call):
        """Return the target shard with unwritten padding."""
        scratch, x = [pltpu.SemaphoreType.DMA] * self._semaphores, lax.transpose(x, self.view)
        y = call.pushed(call.seen(self.kernel), x, self.target_shape, scratch)
        return lax.transpose(y, self.inverse)


def tile_at(shard, start, extents):
    """Return the part of a shard that begins at `start`, which is a multiple of the extent along
    each dimension."""
    ends = zip(start, extents, strict=True)
    return shard.at[tuple(pl.ds(multiple(low, extent), extent) for low, extent in ends)]
