"""Programs with Pallas kernels: what all of them do around their kernels."""

import contextlib
import io
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental.pallas import tpu as pltpu

from .boxes import extents
from .jax_meshes import bits_of
from .pallas_call import Call, is_v5e

# Floats with which XLA on CPU computes as float32, which changes NaNs.
WIDENED = ("bfloat16", "float8_e5m2")


class KernelProgram:
    """A program with kernels. `moves`: everything that moves, an `Exchange`, None where these are
    partial results; `order`: a table of ranks; `terms`: what dimension 0 is, where it is one;
    `short`: the dimensions along which it leaves padding that is not zero.

    `carried(shard, order, interpret, collective_id)` makes the target shard, its padding zero, of a
    source shard, given as integers of their width where `as_bits(interpret)` says so; `carriers`:
    the programs that have the kernels, in order; `check_routes(devices)` raises ValueError for
    devices, by rank, among which they cannot send."""

    interpreted = pltpu.InterpretParams(detect_races=True)
    collective_id: int | None = None
    short: tuple[int, ...] = ()
    moves: Any = None
    order: Any = None
    terms: Any = None
    as_bits: Callable
    carried: Callable
    check_routes: Callable

    def attach(self, host):
        """Bind to an exchange."""
        self.host = host

    def settings(self, devices, interpret, collective_id):
        """Return the collective id of a program for devices, by rank. Raises ValueError for devices
        among which it cannot send."""
        if self.collective_id is None:
            return None
        if not interpret:
            self.check_routes(list(devices))
        return self.collective_id if collective_id is None else collective_id

    def exchange(self, shard, order, batch, interpret, collective_id):
        """Return the target shard, its padding zero; `batch`: how many dimensions of a batch, which
        only an operation has, are before its own."""

        def move(shard):
            return self.carried(shard, order, interpret, collective_id)

        if batch:
            move = self.host.operation.batched(move, batch)
        if not self.as_bits(interpret):
            return move(shard)
        bits = lax.bitcast_convert_type(shard, bits_of(shard.dtype))
        return lax.bitcast_convert_type(move(bits), shard.dtype)

    def zeroed(self, y, receiver):
        """Return the target shard of a position with zeros in its padding."""
        if not self.short:
            return y
        from .jax_zeros import zeroed  # where it was emitted with padding

        target = self.host.target
        return zeroed(y, target, self.short, extents(target.box(receiver)))

    def watched(self, move):
        """Return what a function returns when it is over; exit with what the interpreter notices.
        Of races and of semaphores that are not zero in the end it only tells."""
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            found = jax.block_until_ready(move())
        noticed = re.search(r".*(RACE DETECTED|non-zero count).*", printed.getvalue())
        if noticed:
            raise SystemExit(noticed[0])
        return found


class PallasProgram(KernelProgram):
    """What the forms of kernels have in common. `view`: the tensor's dimensions in the order in
    which kernels take them, of which TPU memory is tiled over the last two; `powers_of_two`:
    whether the module is for a v5e, whose devices reach others at a power of two of hops along one
    axis only.

    A device may enter the next kernel while its peers are still in this one. That is safe after the
    same kernel on the same mesh, and after kernels of other ids. The id is a hash of the
    description: where a program uses several modules, or one on several meshes, see that ids
    differ.
    """

    form = ""
    moved: Callable  # (x, call): the target shard, what kernels did not write as it comes
    packed = False  # whether XLA packs elements, so that they are integers there too
    leaves_padding = True  # whether what kernels do not write has to be made zero

    def __init__(self, peers, view, collective_id=None, powers_of_two=False):
        self.peers, self.view, self.collective_id = peers, view, collective_id
        self._powers_of_two, self.moves, self.order = powers_of_two, peers.exchange, peers.order
        self.inverse = tuple(view.index(axis) for axis in range(len(view)))

    def attach(self, host):
        """Bind to an exchange."""
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
        if not jnp.issubdtype(self.host.dtype, jnp.floating):
            return False
        if self.packed or self.host.dtype == jnp.float16:
            return True
        return bool(interpret) and str(self.host.dtype) in WIDENED

    def carried(self, shard, order, interpret, collective_id):
        """Return the target shard, its padding zero."""
        x, dtype = shard if shard.shape else shard.reshape(1), shard.dtype
        call = Call(order, interpret, collective_id)
        if dtype == jnp.bool_:
            x = x.astype(jnp.int8)
        if dtype == jnp.int64:
            from .pallas_halves import in_halves  # of elements of 64 bits

            y = in_halves(self.moved, x, call)
        else:
            y = self.moved(x, call)
        if self.short:
            y = self.zeroed(y, self.peers.here(order)[1])
        return y.astype(dtype) if shard.shape else y.astype(dtype).reshape(())

    @property
    def carriers(self):
        """The programs that have the kernels, in order: this one."""
        return (self,)

    def elsewhere(self, pieces):
        """Return the pieces that go to another device."""
        sources, targets = self.moves.source.ids, self.moves.target.ids
        return [piece for piece in pieces if sources[piece.sender] != targets[piece.receiver]]

    def fault(self):
        """Return where a device waits for other than what is started on its semaphores, found
        without data; "" if nowhere, as where both are taken from a piece's box. What is sent, and
        told at the barrier, is `moves`'s."""
        return ""

    def pairs(self):
        """Return the ranks of senders and of receivers, as arrays."""
        from .pallas_routes import pairs_of  # which only routes of a v5e are asked for

        return pairs_of(self)

    def check_routes(self, devices):
        """Raise ValueError where devices are no TPUs, or send farther than a v5e does directly."""
        if devices[0].platform != "tpu":
            got = f"mesh: got devices of platform {devices[0].platform}, expected TPUs"
            more = "interpret=True tries it slowly, and modules of backend jax_xla run anywhere"
            raise ValueError(f"{got}; {more}")
        if is_v5e(devices):
            from .pallas_routes import check_pairs  # no other TPU has such routes

            again = tuple(self.host.source.ids) == tuple(self.host.target.ids)
            check_pairs(devices, *self.pairs(), powers_of_two=self._powers_of_two, again=again)
