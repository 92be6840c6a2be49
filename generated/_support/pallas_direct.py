"""Programs of one kernel that moves tiles from shard to shard: it stands in the module."""

import functools

from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from .boxes import Exchange
from .pallas_index import LOGICAL, each, meet_all
from .pallas_program import PallasProgram


class Permuted:
    """Peers of a reshard in which every device sends to as many others as send to it, tiles of one
    shape, both meshes in one order. `sender`, `receiver`: the position of the other end of a tile
    of a device, perhaps the device itself; where there are several, of that of a number below
    `count`."""

    order = None
    one_order = True

    def __init__(self, source, target, sender, receiver, count=None):
        self._source, self._receiver = source, receiver
        self._numbers = ((),) if count is None else tuple((number,) for number in range(count))
        names = tuple(name for name, _ in source.axes)
        self.axes = names if len(names) > 1 else names[0]
        self.exchange = Exchange(
            source.side,
            target.side,
            lambda position: [sender(position, *number) for number in self._numbers],
            lambda position: [receiver(position, *number) for number in self._numbers],
        )

    def here(self, order):
        """Return where this device stands in the source mesh, and in the target mesh."""
        del order
        rank = lax.axis_index(self.axes)
        return rank, rank


class Direct(PallasProgram):
    """Every tile starts and ends at the tiling of memory, or spans the dimension: it goes straight
    from shard to shard. `kernel`: of source shard, target shard and DMA semaphores."""

    form = "direct"

    def __init__(self, kernel, semaphores, peers, view, **settings):
        super().__init__(peers, view, **settings)
        self.kernel, self._semaphores = kernel, semaphores

    def met(self, receiver):
        """Return the pieces for which a target position waits."""
        permuted = isinstance(self.peers, Permuted)  # what it sends is as much as what it gets
        return self.peers.exchange.outgoing(receiver) if permuted else super().met(receiver)

    def moved(self, x, order, interpret, collective_id):
        """Return the target shard, its padding left unwritten."""
        scratch = [pltpu.SemaphoreType.DMA] * self._semaphores
        y = self.pushed(
            self.kernel, self.turned(x), self.target_shape, scratch, order, interpret, collective_id
        )
        return self.turned_back(y)


def meet_one(sender):
    """Tell the one device that sends to this one that it has entered the kernel, and hear it of the
    one that this device sends to."""
    barrier = pltpu.get_barrier_semaphore()
    pl.semaphore_signal(barrier, 1, device_id=sender, device_id_type=LOGICAL)
    pl.semaphore_wait(barrier, 1)


def meet(me, sender, receiver, count):
    """Tell those who send to this device that it has entered the kernel, and hear it of those it
    sends to: see `meet_all`. `sender`, `receiver`: of a position and a number below `count`,
    perhaps this device itself."""

    def tells(number):
        peer = sender(me, number)
        return peer != me, peer

    meet_all(count, tells, count, lambda number: receiver(me, number) != me)


def each_peer(me, receiver, count, visit):
    """Call visit(peer) for the receiver of every tile of this device, but for the device itself."""

    def one(number):
        peer = receiver(me, number)
        pl.when(peer != me)(functools.partial(visit, peer))

    each(count, one)
