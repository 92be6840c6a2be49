"""Programs with one kernel, in the module, that moves tiles from shard to shard."""

from jax import lax
from jax.experimental.pallas import tpu as pltpu

from .pallas_program import PallasProgram


class Direct(PallasProgram):
    """Every tile starts and ends at memory tiles or spans the dimension, so it goes straight from
    shard to shard. `kernel`: takes a table of ranks, if any, the source shard, the target shard and
    DMA semaphores."""

    form = "direct"

    def __init__(self, kernel, semaphores, peers, view, **settings):
        super().__init__(peers, view, **settings)
        self.kernel, self._semaphores = kernel, semaphores

    def moved(self, x, call):
        """Return the target shard with unwritten padding."""
        scratch, x = [pltpu.SemaphoreType.DMA] * self._semaphores, lax.transpose(x, self.view)
        y = call.pushed(call.seen(self.kernel), x, self.target_shape, scratch)
        return lax.transpose(y, self.inverse)


class Halves(Direct):
    """A direct reshard among `Permuted` peers in two halves: `start` takes source shard, target
    shard and the send and receive semaphores, `wait` all but the first of these; `kernels`: each
    half alone, in modules that have a start and an end."""

    def __init__(self, start, wait, peers, view, kernels=(), **settings):
        super().__init__(self.both, 2, peers, view, **settings)
        self.start, self.wait, self.kernels = start, wait, kernels

    def both(self, order, x, y, sent, received):
        """Move this device's tiles: the kernel."""
        del order  # both meshes have one device order
        self.start(x, y, sent, received)
        self.wait(y, sent, received)
