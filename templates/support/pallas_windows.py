"""The windows form: tiles start and end anywhere, but memory is tiled over the last two dimensions,
that of a vector by 1,024 elements. A tile travels in chunks through windows in VMEM, where each is
shifted to its place, into a staging area of its receiver; there it starts at a whole unit.
Afterwards every block of the target shard is put together from it.
"""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from .boxes import ranges
from .pallas_peers import (
    LOGICAL,
    digits_of,
    div,
    each,
    far_apart,
    is_full,
    maximum,
    minimum,
    multiple,
    rem,
    units_in,
)
from .pallas_program import PallasProgram, wait_for_units
from .pallas_shifts import fill, merge


class Tiling(NamedTuple):
    """How tiles are cut, a dimension, in the order of kernels. `unit`: what starts in memory are
    multiples of; `chunk`: the extents of what is shifted at a time; `window`: of the whole units
    that a chunk reaches into; `blocks`: of the target shard, of the extents of a chunk; `meet`: how
    many source shards meet one, in the order of the tensor; `chunks`: of the largest tile; `stage`:
    the staging area; `step`: by how much a tile stands further in it than in the target shard for
    each tile before it; `rolled`: the dimensions along which anything is shifted; `more_rows`: so
    few rows would be kept in smaller tiles than windows have."""

    unit: tuple[int, ...]
    chunk: tuple[int, ...]
    window: tuple[int, ...]
    blocks: tuple[int, ...]
    meet: tuple[int, ...]
    chunks: tuple[int, ...] = ()
    stage: tuple[int, ...] = ()
    step: tuple[int, ...] = ()
    rolled: tuple[int, ...] = ()
    more_rows: int = 0


class Chunk(NamedTuple):
    """What to send at a step: whether there is anything, and to whom; `start`: what is taken off
    tensor indices for its place in the staging area; its box."""

    sends: int
    receiver: int
    start: list
    box: list


class Part(NamedTuple):
    """What a step brings to a block: whether anything; if from here, else from the staging area;
    `start` as of a chunk; its box; that of the block."""

    comes: int
    here: int
    start: list
    box: list
    block: list


class Windows(PallasProgram):
    """`source_at`: which source shard holds an element of the tensor; `source_parts`: the shards
    along dimensions with a nested split, by dimension."""

    form = "windows"
    leaves_padding = False
    slots = 6  # chunks that are on their way at a time, at most

    def __init__(self, peers, view, tiling, source_at, source_parts=None, **settings):
        super().__init__(peers, view, **settings)
        self.tiling, self._source_at = tiling, source_at
        self._source_parts = source_parts or {}

    def _viewed(self, box):
        """Return the ranges of a tensor box, in the order of kernels."""
        pairs = tuple(ranges(box))
        return [pairs[axis] for axis in self.view]

    def _cut(self, box, number, sizes):
        """Return the box of a number among those of the extents of a chunk into which one is
        cut."""
        parts = zip(box, digits_of(number, sizes), self.tiling.chunk, strict=True)
        starts = [(low + digit * step, high, step) for (low, high), digit, step in parts]
        return [(start, minimum(start + step, high)) for start, high, step in starts]

    def _units(self, box, origin):
        """Return the whole units that cover a box, (start, size) from an origin in the tensor."""
        triples = zip(box, origin, self.tiling.unit, strict=True)
        return [covering(low, high, start, unit) for (low, high), start, unit in triples]

    def staged(self, receiver, shard, piece, box):
        """Return where a staging area would begin in the tensor if a piece in it went on to its
        start: what is taken off the piece's coordinates to have its place. Each piece has its own,
        so that pieces lie apart, every one from a whole unit on."""
        first = self.peers.forms.senders(receiver)[::2]
        within, starts = self.host.target.box(receiver), []
        for axis, unit, step in zip(self.view, self.tiling.unit, self.tiling.step, strict=True):
            low, before = box[2 * axis], shard[axis] - first[axis]
            if self.peers.pieces and axis == self.peers.pieces.dim:
                before = before * self.peers.count + piece
            place = floor_to(low - within[2 * axis], unit) + before * step
            starts.append(low - place)
        return starts

    def _taken(self, piece, steps):
        """Return how much a piece, cut into steps, takes of its receiver's staging area. Exit where
        it is beyond its end."""
        shard, found = self.peers.forms.source_shard(piece.sender), 1
        starts = self.staged(piece.receiver, shard, piece.number or 0, piece.box)
        for (low, high), start, step, unit, extent in zip(
            self._viewed(piece.box), starts, steps, self.tiling.unit, self.tiling.stage, strict=True
        ):
            cuts = [covering(k, min(k + step, high), start, unit) for k in range(low, high, step)]
            if any(first + size > extent for first, size in cuts):
                raise SystemExit(f"{piece}: outside the staging area")
            found *= sum(size for _, size in cuts)
        return found

    def counts(self, receiver):
        """Return how many elements senders start on the semaphore of a target position, chunk by
        chunk, and for how many it waits."""
        pieces, steps = self.elsewhere(self.moves.incoming(receiver)), self.tiling
        return [sum(self._taken(p, cut) for p in pieces) for cut in (steps.chunk, steps.stage)]

    def push_kernel(self, order, x, stage, windows, chunks, sizes, read, sent, received):
        """Push this device's tiles into the staging areas of their receivers, a chunk of each in
        turn, so that all links are at work.

        x, stage: its source shard and its staging area, in HBM; windows: two, and chunks: `slots`,
        in VMEM; sizes: of these, in SMEM; read, sent: DMA semaphores for each window and each
        chunk, received: for all that comes.
        """
        peers, tiling, rank = self.peers, self.tiling, len(self.view)
        me, receiver = peers.here(order)
        come = peers.meet(me, receiver, order, functools.partial(self._staged_units, receiver))
        own = [low for low, _ in self._viewed(self.host.source.box(me))]
        count = peers.outgoing_count(me)
        steps, pieces = count * math.prod(tiling.chunks), maximum(count, 1)

        def chunk_of(step):
            number = far_apart(rem(step, pieces), pieces)
            sends, receiver, _, piece, box = peers.outgoing(me, number, order)
            chunk = self._cut(self._viewed(box), div(step, pieces), tiling.chunks)
            sends = sends & (step < steps) & is_full(chunk)
            shard = peers.forms.source_shard(me)
            return in_int32(Chunk(sends, receiver, self.staged(receiver, shard, piece, box), chunk))

        def fetch(slot, units):
            window = within(windows, slot, [size for _, size in units])
            return pltpu.make_async_copy(part_at(x, units), window, read.at[slot])

        def chunk_in(slot, sizes):
            return within(chunks, slot, sizes, slots=self.slots)

        def leave(slot):
            units = enumerate(tiling.unit)
            part = chunk_in(slot, [multiple(sizes[slot * rank + k], unit) for k, unit in units])
            pltpu.make_async_copy(part, part, sent.at[slot]).wait()

        def push(slot, chunk):
            units = self._units(chunk.box, chunk.start)
            for axis, (_, size) in enumerate(units):
                sizes[slot * rank + axis] = jnp.int32(size)
            pltpu.make_async_remote_copy(
                chunk_in(slot, [size for _, size in units]),
                part_at(stage, units),
                sent.at[slot],
                received,
                device_id=jnp.int32(peers.target_rank(chunk.receiver, order)),
                device_id_type=LOGICAL,
            ).start()

        def one(step, found):
            # A chunk is read (`coming`), while the one before (`now`), before which `count` were
            # sent, is shifted and sent, once what was in its slot has left.
            now, count = found
            coming, slot, other = chunk_of(step), rem(count, self.slots), rem(step + 1, 2)
            pl.when(coming.sends > 0)(fetch(1 - other, self._units(coming.box, own)).start)

            @pl.when(now.sends > 0)
            def shift():
                units = self._units(now.box, own)
                fetch(other, units).wait()
                pl.when(count >= self.slots)(lambda: leave(slot))
                window = within(windows, other, tiling.window)
                by = moved_by(own, units, now.box)
                fill(window, chunk_in(slot, tiling.chunk), by, tiling.rolled)
                push(slot, now)

            return coming, count + now.sends

        nothing = in_int32(Chunk(0, 0, [0] * rank, [(0, 0)] * rank))
        stages = jnp.int32(steps + 1)  # the last chunk is sent a step after it is read
        _, count = lax.fori_loop(np.int32(0), stages, one, (nothing, np.int32(0)))
        each(minimum(count, self.slots), leave)
        wait_for_units(stage, tiling.unit, come, received)

    def _staged_units(self, receiver, piece):
        """Return how many units a piece takes of its receiver's staging area."""
        start = self.staged(receiver, piece.shard, piece.piece, piece.box)
        units = self._units(self._viewed(piece.box), start)
        return units_in([size for _, size in units], self.tiling.unit)

    def unpack_kernel(self, order, x, stage, y, windows, read):
        """Put a block of the target shard, y, together from the tiles that meet it.

        x: the source shard, stage: the staging area, in HBM; windows: two in VMEM; read: a DMA
        semaphore for each.
        """
        peers, tiling = self.peers, self.tiling
        me, receiver = peers.here(order)
        number = np.int32(0)
        for axis, count in enumerate(tiling.blocks):
            number = number * count + pl.program_id(axis)
        begin = number * self._visits

        def fetches(slot, part, units):
            """Return the copies that may bring a part, each with whether it does."""
            places = [low - at for (low, _), (at, _) in zip(part.box, part.block, strict=True)]
            window = within(windows, slot, [size for _, size in units], places)
            return [
                (
                    part.comes & whose,
                    pltpu.make_async_copy(part_at(ref, units), window, read.at[slot]),
                )
                for ref, whose in ((x, part.here), (stage, 1 - part.here))
            ]

        def one(number, now):
            step = begin + number
            coming, slot = self._part(step, me, receiver), rem(step, 2)
            # The block before has begun to read what this one begins with.
            begun = coming._replace(comes=coming.comes * jnp.int32((number > 0) | (begin == 0)))
            for fetched, copy in fetches(slot, begun, self._units(coming.box, coming.start)):
                pl.when(fetched > 0)(copy.start)

            @pl.when(now.comes > 0)
            def put():
                units = self._units(now.box, now.start)
                for fetched, copy in fetches(1 - slot, now, units):
                    pl.when(fetched > 0)(copy.wait)
                window = within(windows, 1 - slot, tiling.window)
                by = moved_by(now.start, units, now.block)
                merge(window, y, by, now.box, now.block, tiling.rolled)

            return coming

        y[...] = jnp.zeros(y.shape, y.dtype)
        empty = [(0, 0)] * len(self.view)
        nothing = in_int32(Part(0, 0, [0] * len(self.view), empty, empty))
        stages = 2  # a part is read while the one before it is put in its place
        lax.fori_loop(np.int32(0), jnp.int32(self._visits + stages - 1), one, nothing)

    @property
    def _visits(self):
        """How many parts a block may consist of."""
        return math.prod(self.tiling.meet) * self.peers.count

    def _part(self, step, me, receiver):
        """Return the part of a number among those of all blocks of a target shard."""
        peers, tiling, visits = self.peers, self.tiling, self._visits
        steps = peers.counted(receiver, self.host.target, math.prod(tiling.blocks) * visits)
        block = self._cut(
            self._viewed(self.host.target.box(receiver)), div(step, visits), tiling.blocks
        )
        low = (block[self.view.index(axis)][0] for axis in range(len(self.view)))
        digits = digits_of(div(step, peers.count), tiling.meet)
        shard = tuple(a + b for a, b in zip(self._source_at(*low), digits, strict=True))
        piece = rem(step, peers.count)
        box = peers.tile(shard, peers.forms.target_shard(receiver), piece)
        pairs = zip(self._viewed(box), block, strict=True)
        part = [(maximum(a, c), minimum(b, d)) for (a, b), (c, d) in pairs]
        comes = (step < steps) & is_full(part)
        for axis, count in self._source_parts.items():
            comes = comes & (shard[axis] < count)
        own = [low for low, _ in self._viewed(self.host.source.box(me))]
        here, start = peers.holds(me, shard), own
        if peers.sends:
            starts = zip(own, self.staged(receiver, shard, piece, box), strict=True)
            start = [jnp.where(here, jnp.int32(a), jnp.int32(b)) for a, b in starts]
        return in_int32(Part(comes, here, start, part, block))

    def moved(self, x, call):
        """Return the target shard, its padding zero."""
        x, tiling = lax.transpose(x, self.view), self.tiling
        if tiling.more_rows:
            x = jnp.pad(x, [(0, tiling.more_rows * (k == x.ndim - 2)) for k in range(x.ndim)])
        if call.interpret:
            # Memory has room up to whole units at the ends of a shard; the interpreter's has not.
            pairs = zip(x.shape, tiling.unit, strict=True)
            x = jnp.pad(x, [(0, -size % unit) for size, unit in pairs])
        windows, pair = (
            pltpu.VMEM(several(2, tiling.window), x.dtype),
            pltpu.SemaphoreType.DMA((2,)),
        )
        stage = x  # where nothing is sent no part comes from it
        if self.peers.sends:
            chunks = pltpu.VMEM(several(self.slots, tiling.chunk), x.dtype)
            sizes = pltpu.SMEM((self.slots * len(self.view),), jnp.int32)
            sent, received = pltpu.SemaphoreType.DMA((self.slots,)), pltpu.SemaphoreType.DMA
            scratch = [windows, chunks, sizes, pair, sent, received]
            stage = call.pushed(call.seen(self.push_kernel), x, tiling.stage, scratch)
        # One block after another: each starts to read what the next one needs.
        order = ("arbitrary",) * len(tiling.blocks)
        y = call.run(
            call.seen(self.unpack_kernel),
            x,
            stage,
            grid=tiling.blocks,
            out_shape=jax.ShapeDtypeStruct(self.target_shape, x.dtype),
            out_specs=pl.BlockSpec(tiling.chunk, lambda *block: block),
            scratch_shapes=[windows, pair],
            compiler_params=pltpu.CompilerParams(dimension_semantics=order),
        )
        return lax.transpose(y, self.inverse)


def several(count, extents):
    """Return the shape of windows or chunks; those of a vector lie one after the other."""
    return (count * extents[0],) if len(extents) == 1 else (count, *extents)


def moved_by(origin, units, box):
    """Return by how much what is at the start of units is to move to that of a box."""
    return [a + first - low for a, (first, _), (low, _) in zip(origin, units, box, strict=True)]


def covering(low, high, start, unit):
    """Return the whole units from `start` on that cover a range: where they begin, and their
    size."""
    first, end = floor_to(low - start, unit), floor_to(high - start + unit - 1, unit)
    return first, multiple(end - first, unit)


def floor_to(offset, unit):
    """Return an offset rounded down to whole units, which are powers of two."""
    return multiple(offset & -unit, unit) if unit > 1 else offset


def part_at(ref, units):
    """Return what units (start, size) take of an array."""
    return ref.at[tuple(pl.ds(*unit) for unit in units)]


def within(ref, slot, sizes, places=(), slots=2):
    """Return a part of these sizes of one of the windows or chunks in VMEM: from its start; along
    dimensions that are not tiled, from a place."""
    if len(sizes) == 1:
        return ref.at[pl.ds(multiple(slot * (ref.shape[0] // slots), 1024), sizes[0])]
    places = places[:-2] or [0] * (len(sizes) - 2)
    leading = [pl.ds(*part) for part in zip(places, sizes[:-2], strict=True)]
    return ref.at[(slot, *leading, pl.ds(0, sizes[-2]), pl.ds(0, sizes[-1]))]


def in_int32(values):
    """Return all integers of a structure in 32 bits."""
    return jax.tree.map(jnp.int32, values)
