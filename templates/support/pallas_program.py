"""Programs with Pallas kernels: what all of them do around their kernels, and those of one kernel
that moves tiles from shard to shard, which stands in the module.
"""

import functools
import math
import os
import warnings
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from .boxes import Exchange, extents, spread, volume
from .jax_program import Program
from .pallas_peers import digits_of, div, each, multiple, wait_for

# Where this variable of the environment is set, what a v5e does not send directly is sent all the
# same, with a warning.
FAR = "SHARDWRIGHT_FAR_SENDS"
# Floats with which XLA on CPU computes as float32, which changes NaNs.
WIDENED = ("bfloat16", "float8_e5m2")
# XLA on CPU leaves it to another thread to copy more bytes than these (kSmallDataTransferByteSize).
COPIED_AT_ONCE = 102400
HBM = pl.BlockSpec(memory_space=pltpu.HBM)


class Call(NamedTuple):
    """How a program is called. `order`: the table that kernels take first, if any: of ranks, or of
    moves; `interpret`: how they are interpreted, if they are; `collective_id`: theirs."""

    order: Any
    interpret: Any
    collective_id: int | None

    def seen(self, kernel):
        """Return a kernel that takes a table first as it is called, which may be without one."""
        return functools.partial(kernel, None) if self.order is None else kernel

    def run(self, kernel, *arrays, **settings):
        """Return what a kernel makes of arrays in HBM, after the table where there is one."""
        tables = () if self.order is None else (self.order,)
        # Without an index of its own a grid's block has one of 64 bits where JAX has those.
        smem = [
            pl.BlockSpec(
                table.shape,
                lambda *_, rank=table.ndim: (np.int32(0),) * rank,
                memory_space=pltpu.SMEM,
            )
            for table in tables
        ]
        # A block spec tells the kernel alone where an array is; XLA has to be told too, or it may
        # place it elsewhere, and the kernel moves what happens to be in HBM.
        if self.interpret:
            refuse_to_hang((arrays, settings["out_shape"], settings["scratch_shapes"]))
        else:
            arrays = tuple(pltpu.with_memory_space_constraint(x, pltpu.HBM) for x in arrays)
        return pl.pallas_call(
            kernel,
            in_specs=[*smem, *[HBM] * len(arrays)],
            interpret=pltpu.InterpretParams() if self.interpret is True else self.interpret,
            **settings,
        )(*tables, *arrays)

    def pushed(self, kernel, x, shape, scratch, *beside, **more):
        """Return what a kernel that sends makes of one array: another in HBM. `beside`: shapes of
        what it has there besides, of which nothing is left."""
        parameters = {"has_side_effects": True, "collective_id": self.collective_id}
        found, *_ = self.run(
            kernel,
            x,
            out_shape=[pltpu.HBM(each, x.dtype) for each in (shape, *beside)],
            out_specs=[HBM] * (1 + len(beside)),
            scratch_shapes=scratch,
            compiler_params=pltpu.CompilerParams(**parameters),
            **more,
        )
        return found


def refuse_to_hang(held):
    """Raise ValueError where the interpreter would wait forever: each device has one of XLA's
    threads, and none is left to copy a large array. `held`: what a device has of memory."""
    devices, threads = jax.sharding.get_abstract_mesh().size, xla_threads()
    leaves = jax.tree.leaves(held)
    sized = (each for each in leaves if hasattr(getattr(each, "dtype", None), "itemsize"))
    largest = max(math.prod(each.shape) * each.dtype.itemsize for each in sized)
    if devices < threads or largest <= COPIED_AT_ONCE:
        return
    raise ValueError(
        f"interpret: got {threads} threads of XLA for {devices} devices, and the interpreter hangs "
        f"on arrays of over 100 KiB (here {largest} bytes) without one more; set XLA_FLAGS="
        f"--xla_force_host_platform_device_count={devices + 1} before jax is imported"
    )


def xla_threads():
    """Return how many threads XLA has on this CPU: one a device, and no fewer than one a core, or
    than these variables of the environment say (DefaultThreadPoolSize)."""
    said = (os.environ.get(name, "") for name in ("PJRT_NPROC", "NPROC"))
    cores = next((int(each) for each in said if each.isdecimal()), None)
    if cores is None:
        has_affinity = hasattr(os, "sched_getaffinity")
        cores = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    return max(cores, jax.local_device_count("cpu"))


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
        senders, receivers = self.moves.end_ranks()
        ends = [
            (senders[piece.sender], receivers[piece.receiver])
            for sender in range(len(senders))
            for piece in self.elsewhere(self.moves.outgoing(sender))
        ]
        return np.array(ends, int).reshape(-1, 2).T

    def check_routes(self, devices):
        """Raise ValueError where devices send farther than a v5e does directly: over a power of two
        of hops along one axis.

        `devices`: by rank. Source: JAX's guide to distributed Pallas kernels, "Routing".
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


def is_v5e(devices):
    """Return whether devices send directly over some offsets only."""
    return all("v5 lite" in device.device_kind for device in devices)


def are_near(devices, sender, receiver):
    """Return whether each of some ranks sends to another over a power of two of hops along one
    axis; `devices`: by rank."""
    coords = np.array([device.coords for device in devices])
    hops = np.abs(coords[sender] - coords[receiver])
    # An axis of 16 wraps around.
    hops = np.where(coords.max(axis=0) == 15, np.minimum(hops, 16 - hops), hops)
    return ((hops > 0).sum(axis=1) == 1) & ((hops & (hops - 1)) == 0).all(axis=1)


def refuse_far(near, advice):
    """Raise ValueError where a v5e does not send directly between some pairs of devices; only warn
    of them where `FAR` is set."""
    if near.all():
        return
    far = (
        f"{(~near).sum()} of {near.size} pairs of devices are at offsets that a v5e does not send "
        f"over directly: {advice}"
    )
    if not os.environ.get(FAR):
        raise ValueError(f"mesh: {far}; with {FAR}=1 in the environment this is a warning")
    warnings.warn(far, stacklevel=3)


class Permuted:
    """Peers of a reshard in which every device sends to as many others as send to it, tiles of one
    shape, both meshes in one order. `sender`, `receiver`: the position of the other end of a tile
    of a device of a number below `count`, perhaps the device itself."""

    order = None

    def __init__(self, source, target, sender, receiver, count):
        self.axes = tuple(name for name, _ in source.axes)
        self.receiver, self.count, numbers = receiver, count, range(count)
        self.exchange = Exchange(
            source.side,
            target.side,
            lambda position: [sender(position, number) for number in numbers],
            lambda position: [receiver(position, number) for number in numbers],
            hidden=target.hidden,
        )


class Direct(PallasProgram):
    """Every tile starts and ends at the tiling of memory, or spans the dimension: it goes straight
    from shard to shard. `kernel`: of source shard, target shard and DMA semaphores."""

    form = "direct"

    def __init__(self, kernel, semaphores, peers, view, **settings):
        super().__init__(peers, view, **settings)
        self.kernel, self._semaphores = kernel, semaphores

    def moved(self, x, call):
        """Return the target shard, its padding left unwritten."""
        scratch, x = [pltpu.SemaphoreType.DMA] * self._semaphores, lax.transpose(x, self.view)
        y = call.pushed(self.kernel, x, self.target_shape, scratch)
        return lax.transpose(y, self.inverse)

    def counts(self, receiver):
        """Return what is started on the semaphore of what comes, the own tile too, and is waited
        for: as much as the target shard has."""
        come = sum(volume(piece.box) for piece in self.moves.incoming(receiver))
        wanted = 0 if self.moves.is_empty(receiver) else volume(self.host.target.box(receiver))
        return come, wanted


class Halves(Direct):
    """A direct reshard among `Permuted` peers in two halves: `start`, of source shard, target shard
    and the semaphores of what has left and of what has come, and `wait`, of all but the first."""

    def __init__(self, start, wait, peers, view, **settings):
        super().__init__(self.both, 2, peers, view, **settings)
        self.start, self.wait = start, wait

    def both(self, x, y, sent, received):
        """Move this device's tiles: the kernel."""
        self.start(x, y, sent, received)
        self.wait(y, sent, received)


def wait_for_units(ref, unit, count, semaphore):
    """Wait until a DMA semaphore has counted so many boxes of the extents `unit`, of which an array
    consists: as often as they fill it, then for those that fill rows from its start, and so on."""
    sizes = [extent // each for extent, each in zip(ref.shape, unit, strict=True)]
    each(div(count, math.prod(sizes)), lambda _: wait_for(ref, semaphore))
    for axis, digit in enumerate(digits_of(count, sizes)):
        if sizes[axis] > 1:
            first = [pl.ds(0, size) for size in unit[:axis]]
            span = pl.ds(0, multiple(digit * unit[axis], unit[axis]))
            part = ref.at[(*first, span, *[slice(None)] * (len(unit) - axis - 1))]
            pl.when(digit > 0)(functools.partial(wait_for, part, semaphore))
