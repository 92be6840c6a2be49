"""Reshards float32[50257, 768] over 8 devices: [{"x", "y"}, {}] -> [{"y"}, {"x"}].

Source: [{"x", "y"}, {}] on <["x"=2, "y"=4]>, shards of 6283 x 768.
    d1(x, y)[k0, k1] -> t[x * 25132 + y * 6283 + k0, k1]
    The last shards are short or empty along dimension 0, padded at the end to 6283 x 768.
Target: [{"y"}, {"x"}] on <["x"=2, "y"=4]>, shards of 12565 x 384.
    d2(x, y)[k0, k1] -> t[y * 12565 + k0, x * 384 + k1]
    The last shards are short or empty along dimension 0, padded at the end to 12565 x 384.

Tiles are the intersections of source and target shards. Along dimension
    0: shards of 6283 meet shards of 12565, the cuts repeat every 78945895, starts are multiples of 1
    1: shards of 768 meet shards of 384, the cuts repeat every 768, starts are multiples of 384
Each tile has one holder, which sends it.

Bytes received: 19299840 by the busiest device (the least possible is 19299840), 135097344 in all.
Bytes sent: 19301376 by the busiest device (the least possible is 19301376).

    device  source                     target
    0       [0, 6283) x [0, 768)       [0, 12565) x [0, 384)
    1       [6283, 12566) x [0, 768)   [12565, 25130) x [0, 384)
    2       [12566, 18849) x [0, 768)  [25130, 37695) x [0, 384)
    3       [18849, 25132) x [0, 768)  [37695, 50257) x [0, 384)
    4       [25132, 31415) x [0, 768)  [0, 12565) x [384, 768)
    5       [31415, 37698) x [0, 768)  [12565, 25130) x [384, 768)
    6       [37698, 43981) x [0, 768)  [25130, 37695) x [384, 768)
    7       [43981, 50257) x [0, 768)  [37695, 50257) x [384, 768)

Form: windows; chunks of tiles are shifted in VMEM, and put together from a staging area.
On the wire 1.001 times the exact bytes, 19,329,024 into the busiest device.
HBM reads and writes 1.89 times the least possible.
Staging 19,329,024 bytes of HBM, 2,961,408 of VMEM.

Made by
    shardwright emit --mesh x=2,y=4 --shape 50257x768 --dtype float32 --source '[{"x", "y"}, {}]' --target '[{"y"}, {"x"}]' --name gpt2_vocab_uneven -o generated

Tested with jax 0.10.2 in TPU interpret mode; where the tensor is large, a smaller twin.
"""

import contextlib
import functools
import importlib.util
import math
import operator
import os
import warnings

if __name__ == "__main__":
    # One device more than there are: the interpreter needs a thread that no device holds.
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=9")

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

__all__ = [
    "DTYPE",
    "LOCAL_SOURCE_SHAPE",
    "LOCAL_TARGET_SHAPE",
    "SHAPE",
    "SOURCE",
    "SOURCE_MESH",
    "TARGET",
    "TARGET_MESH",
    "pad",
    "reshard",
    "source_shape",
    "source_sharding",
    "target_shape",
    "target_sharding",
    "unpad",
]

SHAPE = (50257, 768)
DTYPE = "float32"
SOURCE_MESH = '<["x"=2, "y"=4]>'
TARGET_MESH = '<["x"=2, "y"=4]>'
SOURCE = '[{"x", "y"}, {}]'
TARGET = '[{"y"}, {"x"}]'
# For callers: shapes of the largest shards.
LOCAL_SOURCE_SHAPE = (6283, 768)
LOCAL_TARGET_SHAPE = (12565, 384)

# Device ids by mesh position.
SOURCE_IDS = range(8)
TARGET_IDS = range(8)

# The meshes with their axes refined into the sub-axes in use, and the shardings on them.
SOURCE_AXES = (("x", 2), ("y", 4))
TARGET_AXES = (("x", 2), ("y", 4))
SOURCE_SPEC = P(("x", "y"), None)
TARGET_SPEC = P("y", "x")

# Shards are padded at their ends to the largest: the shapes of the global arrays.
PADDED_SOURCE_SHAPE = (50264, 768)
PADDED_TARGET_SHAPE = (50260, 768)

# Elements move as integers of their width.
BITS = jnp.int32

# Holders of each target shard, and pieces into which a tile is cut to share the sending.
REPLICAS = 1
PIECES = 1

# The tensor's dimensions in the order in which the kernels take them; TPU memory is tiled over the
# last two.
VIEW = (0, 1)

# Tiles start and end anywhere, but memory is tiled over the last two dimensions: a tile travels in
# chunks through windows in VMEM, where each is shifted to its place, into a staging area of its
# receiver. There it starts at a multiple of UNIT; afterwards every block of the target shard is
# put together from it.
UNIT = (8, 128)
# Extents of a chunk, and of a window, which holds the whole units that a chunk reaches into.
CHUNK = (208, 384)
WINDOW = (216, 384)
# Chunks of the largest tile, a dimension.
CHUNKS = (31, 1)
# The staging area, and by how much a tile stands further in it than in the target shard for each
# tile before it.
STAGE = (12584, 384)
STEP = (8, 0)
# Blocks of the target shard, of the extents of a chunk, and how many source shards meet one.
BLOCKS = (61, 1)
MEET = (2, 1)

# What arrives at the busiest device, padding included, and what the kernels need beside the shards.
FORM = "windows"
WIRE_BYTES = 19329024
STAGING_BYTES = 19329024
VMEM_BYTES = 2961408

# A device may enter the next kernel while its peers are still in this one. That is safe after the
# same kernel on the same mesh, and after kernels of other ids. The id is a hash of the description:
# where a program uses several of these modules, or one on several meshes, see that ids differ.
COLLECTIVE_ID = 18753
LOGICAL = pl.DeviceIdType.LOGICAL


def _numpy(*values):
    """jax.numpy where a value is traced, else numpy, for which nothing has to be compiled."""
    return jnp if any(isinstance(value, jax.core.Tracer) for value in values) else np


def _minimum(a, b):
    return min(a, b) if isinstance(a, int) and isinstance(b, int) else _numpy(a, b).minimum(a, b)


def _maximum(a, b):
    return max(a, b) if isinstance(a, int) and isinstance(b, int) else _numpy(a, b).maximum(a, b)


def _div(a, b):
    """The quotient of integers that are not negative: one operation of a kernel, where `//` is nine
    to floor those that are."""
    if isinstance(b, int) and b == 1:
        return a
    return lax.div(a, _operand(b)) if isinstance(a, jax.core.Tracer) else a // b


def _rem(a, b):
    """The remainder of integers that are not negative."""
    if isinstance(b, int) and b == 1:
        return 0
    return lax.rem(a, _operand(b)) if isinstance(a, jax.core.Tracer) else a % b


def _operand(b):
    return np.int32(b) if isinstance(b, int) else b


def source_shard(position):
    """Index of the source shard, per dimension, at a position of the source mesh."""
    return position, 0


def target_shard(position):
    """Index of the target shard, per dimension, at a position of the target mesh."""
    return _rem(position, 4), _div(position, 4)


def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    lo0 = position * 6283
    return lo0, _minimum(lo0 + 6283, 50257), 0, 768


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    lo0 = _rem(position, 4) * 12565
    lo1 = _div(position, 4) * 384
    return lo0, _minimum(lo0 + 12565, 50257), lo1, lo1 + 384


def tile(a0, a1, b0, b1):
    """Tensor range shared by a source shard and a target shard; empty where low >= high."""
    source_lo0 = a0 * 6283
    target_lo0 = b0 * 12565
    target_lo1 = b1 * 384
    return (
        _maximum(source_lo0, target_lo0),
        _minimum(source_lo0 + 6283, _minimum(target_lo0 + 12565, 50257)),
        target_lo1,
        target_lo1 + 384,
    )


def senders(position):
    """First and count, per dimension, of the source shards that meet a target shard."""
    first0 = _div(_rem(position, 4) * 12565, 6283)
    return (
        first0,
        _div(_minimum(_rem(position, 4) * 12565 + 12565, 50257) - 1, 6283) + 1 - first0,
        0,
        1,
    )


def receivers(position):
    """First and count, per dimension, of the target shards that meet a source shard."""
    first0 = _div(position * 6283, 12565)
    return first0, _div(_minimum(position * 6283 + 6283, 50257) - 1, 12565) + 1 - first0, 0, 2


def target_position(b0, b1, replica):
    """Position, in the target mesh, of a replica of a target shard."""
    return b1 * 4 + b0


def holder(a0, a1, receiver):
    """Position, in the source mesh, of the holder that sends a piece of a tile to a receiver."""
    return a0


def source_at(i0, i1):
    """Index of the source shard, per dimension, that holds an element of the tensor."""
    return _div(i0, 6283), 0


def _ranges(box):
    return tuple(zip(box[::2], box[1::2], strict=True))


def _viewed(box):
    """The ranges of a tensor box, in the kernels' order of dimensions."""
    ranges = _ranges(box)
    return [ranges[axis] for axis in VIEW]


def _is_full(ranges):
    return functools.reduce(operator.and_, (low < high for low, high in ranges))


def _same(shard, other):
    pairs = zip(shard, other, strict=True)
    return functools.reduce(operator.and_, (a == b for a, b in pairs))


def _multiple(index, divisor):
    """The index, known to the compiler to be a multiple of the divisor."""
    return index if isinstance(index, int) else pl.multiple_of(index, divisor)


def _holds(position, shard):
    """Whether a source position, which may be none, holds a source shard."""
    return _same(source_shard(position), shard)


def _not(condition):
    return _numpy(condition).logical_not(condition)


def _shard_at(number, counted, near):
    """The shard of a number among (first, count) per dimension; `near`, a shard, says with which of
    them to begin, so that not all begin with one."""
    shard = []
    for (first, count), start in zip(reversed(_ranges(counted)), reversed(near), strict=True):
        shard.append(first + _rem(number + start, count))
        number = _div(number, count)
    return tuple(reversed(shard))


def _count(counted):
    return math.prod(count for _, count in _ranges(counted))


def _each(count, visit):
    """Calls visit(number) for every number below a count."""

    def one(number, carry):
        visit(number)
        return carry

    lax.fori_loop(np.int32(0), jnp.int32(count), one, np.int32(0))


def _incoming_count(receiver):
    """How many pieces a target shard consists of, empty ones included."""
    return _count(senders(receiver)) * PIECES


def _incoming(receiver, me, number):
    """The piece of a number of a target shard: (comes from elsewhere, sender, shard, piece, box).

    `me`: where the receiver stands in the source mesh.
    """
    piece = _rem(number, PIECES)
    shard = _shard_at(_div(number, PIECES), senders(receiver), (0,) * len(VIEW))
    box = tile(*shard, *target_shard(receiver))
    sender = holder(*shard, receiver)
    return _is_full(_ranges(box)) & _not(_holds(me, shard)), sender, shard, piece, box


def _outgoing_count(me):
    """How many pieces a source position may have to send."""
    return _count(receivers(me)) * PIECES * REPLICAS


def _outgoing(me, number):
    """The piece of a number that a source position may send: (sends, receiver, shard, piece, box).

    Each device begins at its own place among the receivers, so that they do not all write into
    one of them at a time.
    """
    own = source_shard(me)
    replica = _rem(number + me, REPLICAS)
    piece = _rem(_div(number, REPLICAS), PIECES)
    near = target_shard(me)
    shard = _shard_at(_div(number, REPLICAS * PIECES), receivers(me), near)
    receiver = target_position(*shard, replica)
    box = tile(*own, *shard)
    sends = _is_full(_ranges(box)) & (holder(*own, receiver) == me)
    sends = sends & _not(_holds(receiver, own))
    return sends, receiver, shard, piece, box


def _meet(me, receiver):
    """Tells every sender that this device has entered the kernel, and hears it of every receiver.

    A peer may be written to from then on. A device tells again only after all data of the call
    before have arrived, so that a sender never holds two signals of one receiver.
    """
    barrier = pltpu.get_barrier_semaphore()

    def tell(number):
        comes, sender, *_ = _incoming(receiver, me, number)

        @pl.when(comes)
        def signal():
            device = jnp.int32(sender)
            pl.semaphore_signal(barrier, 1, device_id=device, device_id_type=LOGICAL)

    _each(_incoming_count(receiver), tell)

    def add(number, expected):
        sends, *_ = _outgoing(me, number)
        return expected + jnp.int32(sends)

    expected = lax.fori_loop(np.int32(0), jnp.int32(_outgoing_count(me)), add, np.int32(0))
    pl.when(expected > 0)(lambda: pl.semaphore_wait(barrier, expected))


def _check_routes(devices):
    """Warns of tiles that go farther than a v5e sends directly: a power of two of hops on one axis.

    `devices`: by rank. Source: JAX's guide to distributed Pallas kernels, "Routing".
    """
    if not all("v5 lite" in device.device_kind for device in devices):
        return
    me = np.arange(8)[:, None]
    with jax.ensure_compile_time_eval():
        numbers = np.arange(int(np.max(_outgoing_count(me))))
        sends, receiver, *_ = _outgoing(me, numbers)
        ranks = me, receiver
    sends, sender, receiver = np.broadcast_arrays(sends, *ranks)
    coords = np.array([device.coords for device in devices])
    sender, receiver = np.unique([sender[sends], receiver[sends]], axis=1)
    hops = np.abs(coords[sender] - coords[receiver])
    # An axis of 16 wraps around.
    hops = np.where(coords.max(axis=0) == 15, np.minimum(hops, 16 - hops), hops)
    direct = ((hops > 0).sum(axis=1) == 1) & ((hops & (hops - 1)) == 0).all(axis=1)
    if not direct.all():
        warnings.warn(
            f"{(~direct).sum()} of {direct.size} pairs of devices are at offsets that a v5e does "
            "not send over directly: emit the module with --topology, as v5e:2x4, and tiles go "
            "from device to device",
            stacklevel=2,
        )


def _digits(number, sizes):
    """The digits of a number in a mixed radix of these sizes, the first one the highest."""
    digits = []
    for size in reversed(sizes):
        digits.append(_rem(number, size))
        number = _div(number, size)
    return digits[::-1]


def _cut(ranges, number, sizes):
    """The box of a number among those of the extents of a chunk into which ranges are cut."""
    digits = _digits(number, sizes)
    parts = zip(ranges, digits, CHUNK, strict=True)
    starts = [(low + digit * step, high, step) for (low, high), digit, step in parts]
    return [(start, _minimum(start + step, high)) for start, high, step in starts]


def _units(ranges, origin):
    """The whole units that cover ranges, (start, size) from an origin in the tensor."""
    units = []
    for (low, high), start, unit in zip(ranges, origin, UNIT, strict=True):
        first, end = _floor(low - start, unit), _floor(high - start + unit - 1, unit)
        units.append((first, _multiple(end - first, unit)))
    return units


def _floor(offset, unit):
    """An offset rounded down to whole units, which are powers of two."""
    return _multiple(offset & -unit, unit) if unit > 1 else offset


def _at(ref, units):
    return ref.at[tuple(pl.ds(*unit) for unit in units)]


def _slot(ref, slot):
    """One of the two windows or chunks in VMEM."""
    return ref.at[slot]


def _within(ref, slot, units):
    """What units take of one of the two windows or chunks, which they fill from its start."""
    (_, rows), (_, lanes) = units
    return ref.at[slot, pl.ds(0, rows), pl.ds(0, lanes)]


def _shifted(values, by):
    """The elements of a window moved to higher indices, and cut to a chunk.

    What goes around the end of the window is beyond the chunk, or masked.
    """
    extent = WINDOW[0]
    values = pltpu.roll(values, _rem(by[0] + extent, extent), 0)
    return values[..., : CHUNK[-2], : CHUNK[-1]]


def _pass(window, chunk, by):
    """Fills a chunk from a window whose elements are moved."""
    chunk[...] = _shifted(window[...], by)


def _merge(window, y, by, part, block):
    """Writes a part of a block from a window whose elements are moved."""
    words = _shifted(window[...], by)
    places = [lax.broadcasted_iota(jnp.int32, CHUNK, axis) for axis in range(len(CHUNK))]
    inside = True
    for place, (low, high), (at, _) in zip(places, part, block, strict=True):
        inside = inside & (place >= low - at) & (place < high - at)
    y[...] = jnp.where(inside, words, y[...])


def _int32(values):
    return jax.tree.map(jnp.int32, values)


def _start(box):
    """Where a shard that covers a box begins, in the kernels' order of dimensions."""
    return [low for low, _ in _viewed(box)]


def _staged(receiver, shard, piece, box):
    """Where a staging area would begin in the tensor if a piece in it went on to its start: what
    is taken off the piece's coordinates to have its place. Each piece has its own, so that pieces
    lie apart, every one from a whole unit on."""
    first, within, starts = senders(receiver)[::2], target_box(receiver), []
    for axis, unit, step in zip(VIEW, UNIT, STEP, strict=True):
        low, before = box[2 * axis], shard[axis] - first[axis]
        place = _floor(low - within[2 * axis], unit) + before * step
        starts.append(low - place)
    return starts


def _kernel(x, stage, windows, chunks, read, sent, received):
    """Pushes this device's tiles into the staging areas of their receivers.

    x, stage: its source shard and its staging area, in HBM; windows, chunks: two of each in VMEM;
    read, sent: DMA semaphores for each of the two, received: for all that comes.
    """
    me = receiver = lax.axis_index(("x", "y"))
    _meet(me, receiver)
    own, cuts = _start(source_box(me)), math.prod(CHUNKS)
    steps = _outgoing_count(me) * cuts

    def chunk_of(step):
        """What to send at a step: whether there is anything, to whom, its place and its box."""
        sends, receiver, _, piece, box = _outgoing(me, _div(step, cuts))
        chunk = _cut(_viewed(box), _rem(step, cuts), CHUNKS)
        sends = sends & (step < steps) & _is_full(chunk)
        return _int32((sends, receiver, _staged(receiver, source_shard(me), piece, box), chunk))

    def fetch(slot, units):
        window = _within(windows, slot, units)
        return pltpu.make_async_copy(_at(x, units), window, read.at[slot])

    def push(slot, receiver, start, chunk):
        units = _units(chunk, start)
        device = jnp.int32(receiver)
        return pltpu.make_async_remote_copy(
            _within(chunks, slot, units),
            _at(stage, units),
            sent.at[slot],
            received,
            device_id=device,
            device_id_type=LOGICAL,
        )

    def one(step, found):
        # Four chunks, by when they were read: `coming` is read now, meanwhile `now` is shifted and
        # sent; `old` and `older` were sent before, and `older` has to have left, since `now` takes
        # its place. Windows and chunks take turns: those of `coming` are `slot`.
        older, old, now = found
        coming, slot = chunk_of(step), _rem(step, 2)
        pl.when(coming[0] > 0)(fetch(slot, _units(coming[-1], own)).start)
        pl.when(older[0] > 0)(push(1 - slot, *older[1:]).wait_send)

        @pl.when(now[0] > 0)
        def shift():
            units = _units(now[-1], own)
            fetch(1 - slot, units).wait()
            pairs = zip(own, units, now[-1], strict=True)
            by = [start + first - low for start, (first, _), (low, _) in pairs]
            _pass(_slot(windows, 1 - slot), _slot(chunks, 1 - slot), by)
            push(1 - slot, *now[1:]).start()

        return old, now, coming

    nothing = _int32((0, 0, [0] * len(VIEW), [(0, 0)] * len(VIEW)))
    lax.fori_loop(np.int32(0), jnp.int32(steps + 3), one, (nothing,) * 3)

    def arrive(number):
        comes, _, shard, piece, box = _incoming(receiver, me, number)
        place = _at(stage, _units(_viewed(box), _staged(receiver, shard, piece, box)))
        pl.when(comes)(pltpu.make_async_copy(place, place, received).wait)

    _each(_incoming_count(receiver), arrive)


def _unpack_kernel(x, stage, y, windows, read):
    """Puts a block of the target shard together from the tiles that meet it.

    x, stage: the source shard, for what this device holds itself, and the staging area, in HBM;
    y: the block; windows: two in VMEM; read: a DMA semaphore for each.
    """
    me = receiver = lax.axis_index(("x", "y"))
    visits, number = math.prod(MEET) * PIECES, np.int32(0)
    for axis, count in enumerate(BLOCKS):
        number = number * count + pl.program_id(axis)
    begin = number * visits
    steps = math.prod(BLOCKS) * visits

    def part_of(step):
        """What a step brings: whether anything, if from here, from where, its box, the block."""
        piece = _rem(step, PIECES)
        block = _cut(_viewed(target_box(receiver)), _div(step, visits), BLOCKS)
        first = source_at(*(block[VIEW.index(axis)][0] for axis in range(len(VIEW))))
        digits = _digits(_div(step, PIECES), MEET)
        shard = tuple(a + digit for a, digit in zip(first, digits, strict=True))
        box = tile(*shard, *target_shard(receiver))
        pairs = zip(_viewed(box), block, strict=True)
        part = [(_maximum(a, c), _minimum(b, d)) for (a, b), (c, d) in pairs]
        comes = (step < steps) & _is_full(part)
        here, staged = _holds(me, shard), _staged(receiver, shard, piece, box)
        starts = zip(_start(source_box(me)), staged, strict=True)
        start = [jnp.where(here, jnp.int32(a), jnp.int32(b)) for a, b in starts]
        return _int32((comes, here, start, part, block))

    def fetches(slot, comes, here, units, part, block):
        """The copies that may bring a part, each with whether it does."""
        window = _within(windows, slot, units)
        return (
            ((comes > 0) & (here > 0), pltpu.make_async_copy(_at(x, units), window, read.at[slot])),
            ((comes > here), pltpu.make_async_copy(_at(stage, units), window, read.at[slot])),
        )

    def one(number, now):
        step = begin + number
        coming, slot = part_of(step), _rem(step, 2)
        comes, here, start, part, block = coming
        # The block before has begun to read what this one begins with.
        new = comes * jnp.int32((number > 0) | (begin == 0))
        for fetched, copy in fetches(slot, new, here, _units(part, start), part, block):
            pl.when(fetched)(copy.start)

        @pl.when(now[0] > 0)
        def merge():
            comes, here, start, part, block = now
            units = _units(part, start)
            for fetched, copy in fetches(1 - slot, comes, here, units, part, block):
                pl.when(fetched)(copy.wait)
            pairs = zip(start, units, block, strict=True)
            by = [a + first - low for a, (first, _), (low, _) in pairs]
            _merge(_slot(windows, 1 - slot), y, by, part, block)

        return coming

    y[...] = jnp.zeros(y.shape, y.dtype)
    ranges = [(0, 0)] * len(VIEW)
    nothing = _int32((0, 0, [0] * len(VIEW), ranges, ranges))
    lax.fori_loop(np.int32(0), jnp.int32(visits + 1), one, nothing)


def _moved(x, interpret, collective_id):
    """The target shard of this device from its source shard, padding zero."""
    # A block spec tells the kernel alone where an array is; XLA has to be told that it must be in
    # HBM too, or it may place it elsewhere, and the kernel moves what happens to be in HBM.
    in_hbm = pl.BlockSpec(memory_space=pltpu.HBM)
    if interpret:
        # Memory has room up to whole units at the ends of a shard; the interpreter's has not.
        x = jnp.pad(x, [(0, 5), (0, 0)])
        interpret = pltpu.InterpretParams() if interpret is True else interpret
    else:
        x = pltpu.with_memory_space_constraint(x, pltpu.HBM)
    stage = pl.pallas_call(
        _kernel,
        out_shape=pltpu.HBM(STAGE, x.dtype),
        in_specs=[in_hbm],
        out_specs=in_hbm,
        scratch_shapes=[
            pltpu.VMEM((2, *WINDOW), x.dtype),
            pltpu.VMEM((2, *CHUNK), x.dtype),
            pltpu.SemaphoreType.DMA((2,)),
            pltpu.SemaphoreType.DMA((2,)),
            pltpu.SemaphoreType.DMA,
        ],
        compiler_params=pltpu.CompilerParams(collective_id=collective_id, has_side_effects=True),
        interpret=interpret,
    )(x)
    if not interpret:
        stage = pltpu.with_memory_space_constraint(stage, pltpu.HBM)
    return pl.pallas_call(
        _unpack_kernel,
        grid=BLOCKS,
        out_shape=jax.ShapeDtypeStruct((12565, 384), x.dtype),
        in_specs=[in_hbm, in_hbm],
        out_specs=pl.BlockSpec(CHUNK, lambda *block: block),
        scratch_shapes=[pltpu.VMEM((2, *WINDOW), x.dtype), pltpu.SemaphoreType.DMA((2,))],
        # One block after another: each starts to read what the next one needs.
        compiler_params=pltpu.CompilerParams(dimension_semantics=("arbitrary",) * len(BLOCKS)),
        interpret=interpret,
    )(x, stage)


def source_shape(device_id):
    """Exact shape of the source shard on a device."""
    return _shape(source_box(_position(SOURCE_IDS, device_id, "source")))


def target_shape(device_id):
    """Exact shape of the target shard on a device."""
    return _shape(target_box(_position(TARGET_IDS, device_id, "target")))


def _shape(box):
    return tuple(high - low for low, high in _ranges(box))


def _position(ids, device_id, side):
    if device_id not in ids:
        raise ValueError(f"device {device_id}: expected one of the {side} mesh, {list(ids)}")
    return ids.index(device_id)


def _refined(mesh, axes, side):
    """The mesh with the axes that shardings name; the given one where it has them already."""
    names, sizes = zip(*axes, strict=True)
    if not isinstance(mesh, Mesh):
        raise TypeError(f"{side} mesh: got {type(mesh).__name__}, expected a jax.sharding.Mesh")
    if mesh.devices.size != math.prod(sizes):
        raise ValueError(
            f"{side} mesh: got {mesh.devices.size} devices, expected {math.prod(sizes)}"
        )
    if tuple(mesh.axis_names) == names and mesh.devices.shape == sizes:
        return mesh
    return Mesh(mesh.devices.reshape(sizes), names)


def source_sharding(mesh):
    """How `reshard` takes its argument: logical id SOURCE_IDS[i] is mesh.devices.flat[i]."""
    return NamedSharding(_refined(mesh, SOURCE_AXES, "source"), SOURCE_SPEC)


def target_sharding(mesh):
    """How `reshard` returns its result: logical id TARGET_IDS[i] is mesh.devices.flat[i]."""
    return NamedSharding(_refined(mesh, TARGET_AXES, "target"), TARGET_SPEC)


def pad(x):
    """The padded global array of a logical tensor: every source shard in a slot of one size."""
    _expect(x, SHAPE, "tensor")
    with _apart(x):
        return _by_bits(_padded, x)


def _padded(x):
    x = _whole(x, (0,))
    sizes = zip(x.shape, PADDED_SOURCE_SHAPE, strict=True)
    return jnp.pad(x, [(0, padded - size) for size, padded in sizes])


def unpad(y):
    """The logical tensor of a padded result."""
    _expect(y, PADDED_TARGET_SHAPE, "padded result")
    with _apart(y):
        return _by_bits(_unpadded, y)


def _unpadded(y):
    y = _whole(y, (0,))
    return y[tuple(slice(size) for size in SHAPE)]


def _apart(x):
    """With no mesh set, unless `x` is traced: an array is moved on its own devices, which need not
    be those of the mesh that a user has set."""
    if isinstance(x, jax.core.Tracer):
        return contextlib.nullcontext()
    try:
        return jax.set_mesh(Mesh(np.empty((), object), ()))
    except ValueError:  # JAX sets none while anything else is traced, as around a constant
        return contextlib.nullcontext()


def _whole(x, axes):
    """The array, none of these axes of it split in a program, nor over Explicit axes of a mesh: JAX
    would have it even before and after, and XLA may make sums with zeros of what is uneven."""
    sharding = jax.typeof(x).sharding
    if AxisType.Explicit in sharding.mesh.axis_types:
        spec = [None if axis in axes else names for axis, names in enumerate(sharding.spec)]
        return jax.sharding.reshard(x, NamedSharding(sharding.mesh, P(*spec)))
    tangent = jnp.issubdtype(x.dtype, jnp.inexact)  # floats themselves move as integers
    if sharding.mesh.empty or tangent or not isinstance(x, jax.core.Tracer):
        return x
    spec = P(*[None if axis in axes else P.UNCONSTRAINED for axis in range(x.ndim)])
    try:
        return lax.with_sharding_constraint(x, NamedSharding(sharding.mesh, spec))
    except TypeError:  # an array on one device under vmap alone: no program splits it
        return x


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _by_bits(move, x):
    """What `move` makes of the elements as integers: of floats that move XLA may make sums with
    zeros, which change -0.0, subnormals and NaNs."""
    return lax.bitcast_convert_type(move(lax.bitcast_convert_type(x, BITS)), x.dtype)


def _by_bits_jvp(move, primals, tangents):
    return _by_bits(move, *primals), move(*tangents)


_by_bits.defjvp(_by_bits_jvp)


def _expect(x, shape, what):
    if not hasattr(x, "dtype"):
        got = type(x).__name__
        raise TypeError(f"{what}: got {got}, expected an array of {shape} of {DTYPE}")
    if tuple(x.shape) != shape or x.dtype != DTYPE:
        raise ValueError(f"{what}: got {tuple(x.shape)} of {x.dtype}, expected {shape} of {DTYPE}")


def _exchange(x, interpret, collective_id):
    """The target shard of this device from its source shard, inside shard_map."""
    y = _moved(x, interpret, collective_id)
    return y[None]


def _mapped(function, mesh, in_specs, out_specs):
    """The function over the shards of a mesh, whichever mesh is set where it is called."""
    # Without the types of the mesh's axes, so that it takes arrays with and without them.
    mesh = Mesh(mesh.devices, mesh.axis_names)
    mapped = jax.shard_map(
        function, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False
    )

    def call(*arrays):
        with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
            return mapped(*arrays)

    return call


@functools.partial(jax.jit, static_argnums=(1, 2, 3, 4))
def _program(x, source, target, interpret, collective_id):
    # The two meshes list the same devices in the same order: stacking the target shards by device
    # and taking them off again only renames the axes, and moves nothing.
    rows, out_rows = P(source.axis_names), P(target.axis_names)
    collective_id = COLLECTIVE_ID if collective_id is None else collective_id
    if not interpret:
        _check_routes(list(source.devices.flat))

    def one(shard):
        return _exchange(shard, interpret, collective_id)

    def last(shard):
        return shard[0]

    for _ in range(batch := x.ndim - len(PADDED_SOURCE_SHAPE)):
        one, last = functools.partial(lax.map, one), functools.partial(lax.map, last)
    if AxisType.Explicit in jax.typeof(x).sharding.mesh.axis_types:  # perhaps of another mesh
        x = jax.device_put(x, NamedSharding(source, _batched(SOURCE_SPEC, batch)))
    y = _mapped(one, source, _batched(SOURCE_SPEC, batch), _batched(rows, batch))(x)
    y = _mapped(last, target, _batched(out_rows, batch), _batched(TARGET_SPEC, batch))(y)
    if AxisType.Explicit in target.axis_types:
        return jax.sharding.reshard(y, NamedSharding(target, _batched(TARGET_SPEC, batch)))
    return y


def reshard(x, mesh, *, target_mesh=None, interpret=False, collective_id=None):
    """The target array from the source array, both padded; usable under `jax.jit`.

    `x`: global array of PADDED_SOURCE_SHAPE, sharded as `source_sharding(mesh)`; its padding is
    never read. Returns an array of PADDED_TARGET_SHAPE, sharded as `target_sharding(target_mesh)`,
    its padding zero; a jit around that returns it, or what `unpad` makes of it, needs such
    `out_shardings`, or XLA may shard its result anew, and JAX not be able to say how
    (IndivisibleError). `target_mesh`: by default the devices of `mesh`, in its order.
    `interpret`: a bool or `pltpu.InterpretParams`. `collective_id`: in place of COLLECTIVE_ID.
    Under `jax.vmap` one exchange follows another. Raises ValueError for a wrong shape, dtype or
    mesh, TypeError for what is none.

    Differentiable, forward and backward: the cotangent of `x` is that of the result, moved back
    by `_reverse()`, whose collective id is then `collective_id ^ 1`.
    """
    _expect(x, PADDED_SOURCE_SHAPE, "source array")
    source = _refined(mesh, SOURCE_AXES, "source")
    target = _refined(mesh if target_mesh is None else target_mesh, TARGET_AXES, "target")
    if list(target.devices.flat) != list(source.devices.flat):
        raise ValueError("target_mesh: expected the devices of mesh, in the same order")
    context = jax.sharding.get_abstract_mesh()
    if (
        isinstance(x, jax.core.Tracer)
        and AxisType.Explicit in context.axis_types
        and context != target.abstract_mesh
    ):
        raise ValueError(
            f"the result is on a mesh of axes {dict(target.shape)}, which a traced program cannot "
            f"mix with the Explicit axes that are set, {dict(context.shape)}: where both are the "
            "same give that mesh as target_mesh, else call reshard(x, mesh) outside jit, on a "
            "concrete array, or trace without jax.set_mesh"
        )
    return _linear(x, source, target, interpret, collective_id)


def _eager(x, source, **static):
    batch = x.ndim - len(PADDED_SOURCE_SHAPE)
    with _apart(x):
        x = jax.device_put(x, NamedSharding(source, _batched(SOURCE_SPEC, batch)))
        return _compiled(batch, source=source, **static)(x)


@functools.cache
def _compiled(batch, target, **static):
    # XLA chooses the sharding of a program's result where it is not told.
    return jax.jit(
        functools.partial(_lowered, target=target, **static),
        out_shardings=NamedSharding(target, _batched(TARGET_SPEC, batch)),
    )


def _lowered(x, source, target, interpret, collective_id):
    return _program(x, source, target, interpret, collective_id)


def _effects(x, source, target, interpret, collective_id):
    if not interpret:
        return set()  # compiled kernels have none, so that there is no need to trace them for it
    return _program.trace(x, source, target, interpret, collective_id).jaxpr.effects


def _linear(x, source, target, interpret, collective_id):
    """`reshard` between meshes with the axes that shardings name, as one operation of JAX's."""
    if isinstance(x, jax.core.Tracer):  # its program is one for these devices
        meshes = jax.typeof(x).sharding.mesh, jax.sharding.get_abstract_mesh()
        if AxisType.Explicit in source.axis_types:
            x = jax.sharding.reshard(x, NamedSharding(source, SOURCE_SPEC))
        elif not any(AxisType.Explicit in each.axis_types for each in meshes):
            x = lax.with_sharding_constraint(x, NamedSharding(source, SOURCE_SPEC))
    static = {"interpret": interpret, "collective_id": collective_id}
    return _reshard.bind(x, source=source, target=target, **static)


def _type(x, target, **static):
    """The type of the result, and what else the operation does."""
    batch = x.ndim - len(PADDED_SOURCE_SHAPE)
    sharding = NamedSharding(target.abstract_mesh, _batched(TARGET_SPEC, batch))
    shape = (*x.shape[:batch], *PADDED_TARGET_SHAPE)
    y = jax.core.ShapedArray(shape, x.dtype, sharding=sharding)
    return y, _effects(x, target=target, **static)


def _batched(spec, count):
    """The spec of an array with so many dimensions before those of the spec, split by no axis."""
    return P(*[None] * count, *spec)


def _vectorized(arrays, axes, **static):
    """`reshard` under `jax.vmap`: the axis of the batch comes first."""
    (x,), (axis,) = arrays, axes
    with _apart(x):
        return _reshard.bind(jnp.moveaxis(x, axis, 0), **static), 0


def _transposed(y, x, *, source, target, interpret, collective_id):
    collective_id = None if collective_id is None else collective_id ^ 1
    x_bar = _reverse()._linear(y, target, source, interpret, collective_id)
    if AxisType.Explicit in x.aval.sharding.mesh.axis_types:
        with _apart(x_bar):
            x_bar = jax.sharding.reshard(x_bar, x.aval.sharding)
    return [x_bar]


@functools.cache
def _reverse():
    """The module of the reverse reshard: NAME_backward.py beside NAME.py, and the other way."""
    folder, file = os.path.split(os.path.abspath(__file__))
    stem = file.removesuffix(".py").removesuffix("_backward")
    other = f"{stem}.py" if file == f"{stem}_backward.py" else f"{stem}_backward.py"
    path = os.path.join(folder, other)
    if not os.path.isfile(path):
        raise ImportError(f"the derivative of reshard needs the reverse reshard: no file {path}")
    spec = importlib.util.spec_from_file_location(other.removesuffix(".py"), path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = (module.TARGET_MESH, module.TARGET, module.SOURCE_MESH, module.SOURCE)
    ours = (SOURCE_MESH, SOURCE, TARGET_MESH, TARGET)
    if (module.SHAPE, module.DTYPE, *found) != (SHAPE, DTYPE, *ours):
        raise ImportError(f"not the reverse of this reshard: {path}")
    return module


_reshard = Primitive("reshard")
_reshard.def_impl(_eager)
_reshard.def_effectful_abstract_eval(_type)
batching.primitive_batchers[_reshard] = _vectorized
mlir.register_lowering(_reshard, mlir.lower_fun(_lowered, multiple_results=False))
ad.deflinear2(_reshard, _transposed)


def _mesh_of(axes, ids, ranks):
    names, sizes = zip(*axes, strict=True)
    devices = [jax.devices()[ranks.index(device_id)] for device_id in ids]
    return Mesh(np.array(devices).reshape(sizes), names)


def _self_check():
    """Moves numbered elements in interpret mode if they are few, else traces the program."""
    ranks = sorted({*SOURCE_IDS, *TARGET_IDS})
    if len(jax.devices()) < len(ranks):
        raise SystemExit(f"got {len(jax.devices())} devices, expected {len(ranks)}")
    mesh, target_mesh = (
        _mesh_of(axes, ids, ranks)
        for axes, ids in ((SOURCE_AXES, SOURCE_IDS), (TARGET_AXES, TARGET_IDS))
    )
    if math.prod(SHAPE) > 2**18:
        x = jax.ShapeDtypeStruct(PADDED_SOURCE_SHAPE, DTYPE, sharding=source_sharding(mesh))
        jax.jit(lambda x: reshard(x, mesh, target_mesh=target_mesh, interpret=True)).trace(x)
        return f"the program is traced ({math.prod(SHAPE)} elements, none moved)"
    tensor = (jnp.arange(math.prod(SHAPE)) % 5).astype(DTYPE).reshape(SHAPE)
    x = jax.device_put(pad(tensor), source_sharding(mesh))
    y = reshard(x, mesh, target_mesh=target_mesh, interpret=True)
    if not np.array_equal(np.asarray(unpad(y)), np.asarray(tensor)):
        raise SystemExit("wrong target shards")
    return f"{math.prod(SHAPE)} elements moved, every target shard right"


if __name__ == "__main__":
    print(f"ok: {_self_check()}")
