"""Programs of one kernel that moves tiles from shard to shard, which stands in the module."""

from jax import lax
from jax.experimental.pallas import tpu as pltpu

from .boxes import volume
from .exchanges import Exchange, spread
from .pallas_program import PallasProgram


class Permuted:
    """Peers of a reshard in which every device sends to as many others as send to it, tiles of one
    shape, both meshes in one order. `sender`, `receiver`: the position of the other end of a tile
    of a device of a number below `count`, perhaps the device itself."""

    order = None

    def __init__(self, source, target, sender, receiver, count):
        self.axes = tuple(name for name, _ in source.axes)
        self.receiver, self.count, numbers = receiver, count, range(count)
        self.exchange = Exchange(
            source,
            target,
            lambda position: [sender(position, number) for number in numbers],
            lambda position: [receiver(position, number) for number in numbers],
            hidden=target.hidden,
        )


class Direct(PallasProgram):
    """Every tile starts and ends at the tiling of memory, or spans the dimension: it goes straight
    from shard to shard. `kernel`: of a table of ranks, if any, source shard, target shard and DMA
    semaphores."""

    form = "direct"

    def __init__(self, kernel, semaphores, peers, view, **settings):
        super().__init__(peers, view, **settings)
        self.kernel, self._semaphores = kernel, semaphores

    def moved(self, x, call):
        """Return the target shard, its padding left unwritten."""
        scratch, x = [pltpu.SemaphoreType.DMA] * self._semaphores, lax.transpose(x, self.view)
        y = call.pushed(call.seen(self.kernel), x, self.target_shape, scratch)
        return lax.transpose(y, self.inverse)

    def fault(self):
        """Return where a device waits for other than what is started on its semaphores, found
        without data; "" if nowhere."""
        ids = self.moves.target.ids
        for receiver in spread(len(ids)):
            starts, waits = self._counts(receiver)
            if starts != waits:
                return f"device {ids[receiver]}: waits for {waits} of {starts} elements"
        return ""

    def _counts(self, receiver):
        """Return what is started on the semaphore of what comes, the own tile too, and is waited
        for: as much as the target shard has."""
        come = sum(volume(piece.box) for piece in self.moves.incoming(receiver))
        wanted = 0 if self.moves.is_empty(receiver) else volume(self.host.target.box(receiver))
        return come, wanted


class Halves(Direct):
    """A direct reshard among `Permuted` peers in two halves: `start`, of source shard, target shard
    and the semaphores of what has left and of what has come, and `wait`, of all but the first;
    `kernels`: those that are either alone, in modules that have a start and an end."""

    def __init__(self, start, wait, peers, view, kernels=(), **settings):
        super().__init__(self.both, 2, peers, view, **settings)
        self.start, self.wait, self.kernels = start, wait, kernels

    def both(self, order, x, y, sent, received):
        """Move this device's tiles: the kernel."""
        del order  # both meshes have one
        self.start(x, y, sent, received)
        self.wait(y, sent, received)
