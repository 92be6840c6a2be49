"""Programs with Pallas kernels: what all of them do around their kernels."""

import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas import tpu as pltpu

from .boxes import Exchange, extents, spread
from .jax_meshes import end_ranks
from .jax_program import Program
from .pallas_call import Call
from .pallas_reach import are_near, is_v5e, refuse_far

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
        self.inverse = tuple(view.index(axis) for axis in range(len(view)))

    def attach(self, host):
        """Get to know what is moved."""
        super().attach(host)
        whole = host.target.whole(host.shape)
        short = (axis for axis, size in enumerate(whole) if host.target.padded[axis] != size)
        self.short = tuple(short) if self.leaves_padding else ()
        local = host.target.local or (1,)
        self.target_shape = tuple(local[axis] for axis in self.view)  # in the order of kernels

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
        call = Call(order, interpret, collective_id)
        if dtype == jnp.bool_:
            x = x.astype(jnp.int8)
        if dtype == jnp.int64:
            halves = (x & 0xFFFFFFFF).astype(jnp.uint32), (x >> 32).astype(jnp.int32)
            low, high = (self.moved(half, call) for half in halves)
            y = (high.astype(jnp.int64) << 32) | low.astype(jnp.int64)
        else:
            y = self.moved(x, call)
        if self.short:
            y = self.zeroed(y, extents(self.host.target.box(self.peers.here(order)[1])))
        return y.astype(dtype) if shard.shape else y.astype(dtype).reshape(())

    def moved(self, x, call):
        """Return the target shard, what kernels did not write as it comes."""
        raise NotImplementedError

    @property
    def carriers(self):
        """The programs that have the kernels, in order: this one."""
        return (self,)

    def counts(self, _):
        """Return how many elements senders start on the semaphore of a target position, and for how
        many it waits; neither is counted where both ends take them from a piece's box."""
        return 0, 0

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
        senders, receivers = end_ranks(self.moves)
        ends = [
            (senders[piece.sender], receivers[piece.receiver])
            for sender in range(len(senders))
            for piece in self.elsewhere(self.moves.outgoing(sender))
        ]
        return np.array(ends, int).reshape(-1, 2).T

    def check_routes(self, devices):
        """Raise ValueError where devices send farther than a v5e does directly: over a power of two
        of hops along one axis.

        `devices`: by rank.
        """
        if devices[0].platform != "tpu":
            got = f"mesh: got devices of platform {devices[0].platform}, expected TPUs"
            more = "interpret=True tries it slowly, and modules of backend jax_xla run anywhere"
            raise ValueError(f"{got}; {more}")
        if not is_v5e(devices):
            return
        sender, receiver = self.pairs()
        direct = are_near(devices, sender, receiver)
        if not self._powers_of_two:
            topology = "emit the module with --topology, as v5e:2x4"
            refuse_far(direct, f"{topology}, and tiles go from device to device")
        if not self._powers_of_two or direct.all():
            return
        wrong = int(np.argmin(direct))
        a, b = devices[int(sender[wrong])], devices[int(receiver[wrong])]
        ids = [device.id for device in devices]
        again = f"; or a module emitted for this order, device_ids={ids}"
        raise ValueError(
            f"mesh: device {a.id} at {tuple(a.coords)} is to send to device {b.id} at "
            f"{tuple(b.coords)}, and {(~direct).sum() - 1} other pairs are as far apart; expected: "
            "devices in an order that fills a torus of power-of-two extents axis by axis, "
            "so that they send over 1, 2, 4, ... hops along one axis" + again * self.peers.one_order
        )
