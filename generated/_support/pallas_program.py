"""Programs with Pallas kernels: what all of them do around their kernels, and those of one kernel
that moves tiles from shard to shard, which stands in the module.
"""

import functools
import warnings

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from .boxes import Exchange, extents, spread, volume
from .jax_program import Program
from .pallas_peers import LOGICAL, each, meet_all

# Floats with which XLA on CPU computes as float32, which changes NaNs.
WIDENED = ("bfloat16", "float8_e5m2")


class PallasProgram(Program):
    """What the forms of kernels have in common. `view`: the tensor's dimensions in the order in
    which kernels take them, of which TPU memory is tiled over the last two; `powers_of_two`:
    whether the module is for a v5e, whose devices reach others at a power of two of hops along one
    axis only.

    A device may enter the next kernel while its peers are still in this one. That is safe after the
    same kernel on the same mesh, and after kernels of other ids. The id is a hash of the
    description: where a program uses several modules, or one on several meshes, see that ids
    differ.
    """

    moves: Exchange
    form = ""
    interpreted = pltpu.InterpretParams(detect_races=True)
    packed = False  # whether XLA packs elements, so that they are integers there too
    leaves_padding = True  # whether what kernels do not write has to be made zero

    def __init__(self, peers, view, collective_id=None, powers_of_two=False):
        self.peers, self.view, self.collective_id = peers, view, collective_id
        self._powers_of_two, self.moves, self.order = powers_of_two, peers.exchange, peers.order

    def attach(self, host):
        """Get to know what is moved."""
        super().attach(host)
        whole = host.target.whole(host.shape)
        short = (axis for axis, size in enumerate(whole) if host.target.padded[axis] != size)
        self.short = tuple(short) if self.leaves_padding else ()

    def as_bits(self, interpret):
        """Return whether elements are given as integers of their width: where XLA packs them, and
        those that a TPU's kernels have no type for; around other kernels, where it may cost XLA a
        copy, only if they are interpreted."""
        if not self.floating:
            return False
        if self.packed or self.host.dtype == jnp.float16:
            return True
        return bool(interpret) and str(self.host.dtype) in WIDENED

    def exchange(self, shard, order, interpret, collective_id):
        """Return the target shard, its padding zero."""
        x, dtype = shard if shard.shape else shard.reshape(1), shard.dtype
        if dtype == jnp.bool_:
            x = x.astype(jnp.int8)
        if dtype == jnp.int64:
            halves = (x & 0xFFFFFFFF).astype(jnp.uint32), (x >> 32).astype(jnp.int32)
            low, high = (self.moved(half, order, interpret, collective_id) for half in halves)
            y = (high.astype(jnp.int64) << 32) | low.astype(jnp.int64)
        else:
            y = self.moved(x, order, interpret, collective_id)
        if self.short:
            y = self.zeroed(y, extents(self.host.target.box(self.peers.here(order)[1])))
        return y.astype(dtype) if shard.shape else y.astype(dtype).reshape(())

    def moved(self, x, order, interpret, collective_id):
        """Return the target shard, what kernels did not write as it comes."""
        raise NotImplementedError

    def seen(self, kernel):
        """Return a kernel as it is called, with the table of ranks first where it has one."""
        if self.order is not None:
            return kernel
        return lambda *refs: kernel(None, *refs)

    def turned(self, x):
        """Return an array with its dimensions in the order of kernels."""
        return x if self.view == tuple(range(x.ndim)) else lax.transpose(x, self.view)

    def turned_back(self, y):
        """Return an array with its dimensions in the order of the tensor."""
        order = tuple(self.view.index(axis) for axis in range(y.ndim))
        return y if self.view == order == tuple(range(y.ndim)) else lax.transpose(y, order)

    @property
    def target_shape(self):
        """The shape of a target shard, in the order of kernels."""
        local = self.host.target.local or (1,)
        return tuple(local[axis] for axis in self.view)

    @property
    def staging_bytes(self):
        """What kernels need of HBM beside the shards."""
        return 0

    def pushed(self, kernel, x, shape, scratch, order, interpret, collective_id, **more):
        """Return what a kernel, which takes one array in HBM and makes one, makes of `x`."""
        hbm = pl.BlockSpec(memory_space=pltpu.HBM)
        tables = () if order is None else (order,)
        smem = [pl.BlockSpec(memory_space=pltpu.SMEM)] * len(tables)
        settings = {} if collective_id is None else {"collective_id": collective_id}
        return pl.pallas_call(
            kernel,
            out_shape=pltpu.HBM(shape, x.dtype),
            in_specs=[*smem, hbm],
            out_specs=hbm,
            scratch_shapes=scratch,
            compiler_params=pltpu.CompilerParams(has_side_effects=True, **settings),
            interpret=params(interpret),
            **more,
        )(*tables, in_hbm(x, interpret))

    def counts(self, receiver):
        """Return how many elements senders start on the semaphore of a target position, and for how
        many it waits: as many where both ends take them from a piece's box."""
        comes = sum(volume(piece.box) for piece in self.elsewhere(self.moves.incoming(receiver)))
        return comes, comes

    def elsewhere(self, pieces):
        """Return the pieces that go to another device."""
        sources, targets = self.moves.source.ids, self.moves.target.ids
        return [piece for piece in pieces if sources[piece.sender] != targets[piece.receiver]]

    def fault(self):
        """Return where a device waits for other than what is started on its semaphores, found
        without data; "" if nowhere. What is sent, and told at the barrier, is `moves`'s."""
        ids = self.moves.target.ids
        for receiver in spread(len(ids)):
            starts, waits = self.counts(receiver)
            if starts != waits:
                return f"device {ids[receiver]}: waits for {waits} of {starts} elements"
        return ""

    def pairs(self):
        """Return the ranks of senders and of receivers, as arrays."""
        senders, receivers = self.moves.end_ranks()
        ends = (
            (senders[piece.sender], receivers[piece.receiver])
            for sender in range(len(senders))
            for piece in self.moves.outgoing(sender)
        )
        return np.array([pair for pair in ends if pair[0] != pair[1]], int).reshape(-1, 2).T

    def check_routes(self, devices):
        """Raise ValueError where devices send farther than a v5e does directly: over a power of two
        of hops along one axis. A module that is for no such topology warns of it.

        `devices`: by rank. Source: JAX's guide to distributed Pallas kernels, "Routing".
        """
        if not all("v5 lite" in device.device_kind for device in devices):
            return
        coords = np.array([device.coords for device in devices])
        sender, receiver = self.pairs()
        hops = np.abs(coords[sender] - coords[receiver])
        # An axis of 16 wraps around.
        hops = np.where(coords.max(axis=0) == 15, np.minimum(hops, 16 - hops), hops)
        direct = ((hops > 0).sum(axis=1) == 1) & ((hops & (hops - 1)) == 0).all(axis=1)
        if direct.all():
            return
        if not self._powers_of_two:
            warnings.warn(
                f"{(~direct).sum()} of {direct.size} pairs of devices are at offsets that a v5e "
                "does not send over directly: emit the module with --topology, as v5e:2x4, and "
                "tiles go from device to device",
                stacklevel=2,
            )
            return
        wrong = int(np.argmin(direct))
        a, b = devices[int(sender[wrong])], devices[int(receiver[wrong])]
        raise ValueError(
            f"mesh: device {a.id} at {tuple(a.coords)} is to send to device {b.id} at "
            f"{tuple(b.coords)}, and {(~direct).sum() - 1} other pairs are as far apart; expected: "
            "devices in an order that fills a torus of power-of-two extents axis by axis, "
            "so that they send over 1, 2, 4, ... hops along one axis"
        )


def params(interpret):
    """Return how a kernel is interpreted, if it is."""
    return pltpu.InterpretParams() if interpret is True else interpret


def in_hbm(x, interpret):
    """Return an array that is in HBM. A block spec tells the kernel alone where an array is; XLA
    has to be told too, or it may place it elsewhere, and the kernel moves what happens to be in
    HBM."""
    return x if interpret else pltpu.with_memory_space_constraint(x, pltpu.HBM)


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

    def counts(self, receiver):
        """Return how many elements senders start on the semaphore of a target position, and for how
        many it waits: among permuted peers for as many as it sends."""
        starts, waits = super().counts(receiver)
        if isinstance(self.peers, Permuted):
            waits = sum(volume(p.box) for p in self.elsewhere(self.moves.outgoing(receiver)))
        return starts, waits

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
