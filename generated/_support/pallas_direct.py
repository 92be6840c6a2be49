"""Programs of one kernel that moves tiles from shard to shard: it stands in the module."""

import functools

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from .boxes import Exchange
from .pallas_index import LOGICAL, each
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

    def pairs(self):
        """Return the ranks of senders and receivers, of everything that is sent, as arrays."""
        me = np.arange(len(self._source.ids))
        found = [self._receiver(me, *number) + 0 * me for number in self._numbers]
        sender, receiver = np.tile(me, len(found)), np.concatenate(found)
        sends = sender != receiver
        return np.unique([sender[sends], receiver[sends]], axis=1)


class Direct(PallasProgram):
    """Every tile starts and ends at the tiling of memory, or spans the dimension: it goes straight
    from shard to shard. `kernel`: of source shard, target shard and DMA semaphores."""

    form = "direct"

    def __init__(self, kernel, semaphores, peers, view, collective_id=None, reach=False):
        super().__init__(peers, view, collective_id, reach)
        self.kernel, self._semaphores = kernel, semaphores

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
    sends to: peers may be written to from then on. `sender`, `receiver`: of a position and a
    number below `count`, perhaps this device itself.

    A device tells again only after all data of the call before have arrived, so that a sender never
    holds two signals of one receiver.
    """
    barrier = pltpu.get_barrier_semaphore()

    def tell(number):
        peer = sender(me, number)

        @pl.when(peer != me)
        def signal():
            pl.semaphore_signal(barrier, 1, device_id=peer, device_id_type=LOGICAL)

    def add(number, expected):
        return expected + jnp.int32(receiver(me, number) != me)

    each(count, tell)
    expected = lax.fori_loop(np.int32(0), jnp.int32(count), add, np.int32(0))
    pl.when(expected > 0)(lambda: pl.semaphore_wait(barrier, expected))


def each_peer(me, receiver, count, visit):
    """Call visit(peer) for the receiver of every tile of this device, but for the device itself."""

    def one(number):
        peer = receiver(me, number)
        pl.when(peer != me)(functools.partial(visit, peer))

    each(count, one)
