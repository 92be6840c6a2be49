"""Reshards float32[160, 160] over 8 devices: [{"x", "y"}, {}] -> [{}, {"x", "y"}].

Source: [{"x", "y"}, {}] on <["x"=2, "y"=4]>, shards of 20 x 160.
    d1(x, y)[k0, k1] -> t[x * 80 + y * 20 + k0, k1]
Target: [{}, {"x", "y"}] on <["x"=2, "y"=4]>, shards of 160 x 20.
    d2(x, y)[k0, k1] -> t[k0, x * 80 + y * 20 + k1]

Tiles are the intersections of source and target shards. Along dimension
    0: shards of 20 meet shards of 160, the cuts repeat every 160, starts are multiples of 20
    1: shards of 160 meet shards of 20, the cuts repeat every 160, starts are multiples of 20
Each tile has one holder, which sends it.

Bytes received: 11200 by the busiest device (the least possible is 11200), 89600 in all.
Bytes sent: 11200 by the busiest device (the least possible is 11200).

    device  source                 target
    0       [0, 20) x [0, 160)     [0, 160) x [0, 20)
    1       [20, 40) x [0, 160)    [0, 160) x [20, 40)
    2       [40, 60) x [0, 160)    [0, 160) x [40, 60)
    3       [60, 80) x [0, 160)    [0, 160) x [60, 80)
    4       [80, 100) x [0, 160)   [0, 160) x [80, 100)
    5       [100, 120) x [0, 160)  [0, 160) x [100, 120)
    6       [120, 140) x [0, 160)  [0, 160) x [120, 140)
    7       [140, 160) x [0, 160)  [0, 160) x [140, 160)

Form: routed; tiles go from device to device, in slots that XLA packs and unpacks.
On the wire 2.194 times the exact bytes, every hop counted, 24,576 into the busiest device.
HBM reads and writes 16.96 times the least possible.
Not all receivers are in reach of a sender: in 3 rounds a device sends on 12 slots,
of at most 2,048 bytes, and gets of 7 devices what it wants.
What goes to the device 7 farther on, digit by digit:
    from slot 6 to slot 10 of the device whose digit of stride 1 is 1 higher
    from slot 10 to slot 6 of the device whose digit of stride 2 is 1 higher
    from slot 6 to slot 10 of the device whose digit of stride 4 is 1 higher
Staging 22,528 bytes of HBM, 0 of VMEM.

Made by
    shardwright emit --mesh x=2,y=4 --shape 160x160 --dtype float32 --source '[{"x", "y"}, {}]' --target '[{}, {"x", "y"}]' --topology torus:2x4,wrap=0x0,bandwidth=5e+10,latency=1e-06,powers_of_two=1,ragged=512,memory=8.19e+11 --name all_to_all_v5e -o generated

Tested with jax 0.10.2 in TPU interpret mode; where the tensor is large, a smaller twin.
"""

import contextlib
import functools
import importlib.util
import math
import operator
import os

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

SHAPE = (160, 160)
DTYPE = "float32"
SOURCE_MESH = '<["x"=2, "y"=4]>'
TARGET_MESH = '<["x"=2, "y"=4]>'
SOURCE = '[{"x", "y"}, {}]'
TARGET = '[{}, {"x", "y"}]'
LOCAL_SOURCE_SHAPE = (20, 160)
LOCAL_TARGET_SHAPE = (160, 20)

# Device ids by mesh position.
SOURCE_IDS = range(8)
TARGET_IDS = range(8)

# The meshes with their axes refined into the sub-axes in use, and the shardings on them.
SOURCE_AXES = (("x", 2), ("y", 4))
TARGET_AXES = (("x", 2), ("y", 4))
SOURCE_SPEC = P(("x", "y"), None)
TARGET_SPEC = P(None, ("x", "y"))

# Shards are padded at their ends to the largest: the shapes of the global arrays.
PADDED_SOURCE_SHAPE = (160, 160)
PADDED_TARGET_SHAPE = (160, 160)

# Elements move as integers of their width.
BITS = jnp.int32

# Holders of each target shard, and pieces into which a tile is cut to share the sending.
REPLICAS = 1
PIECES = 1

# The tensor's dimensions in the order in which the kernels take them; TPU memory is tiled over the
# last two.
VIEW = (0, 1)

# A v5e sends over a power of two of hops along one axis of its torus only, so that what is wanted
# farther away goes from device to device. The number of a device is taken as digits of these
# (stride, extent), and at a hop one digit changes: on a torus of power-of-two extents, filled axis
# by axis, that is such a distance. `_check_routes` looks up where the devices are.
DIGITS = ((1, 2), (2, 2), (4, 2))
# Slots hold pieces: slot n at first what goes to the device that is OFFSETS[n] farther on, digit by
# digit, and slot ARRIVES[n] in the end what comes from the one as much farther back.
OFFSETS = (1, 2, 3, 4, 5, 6, 7)
ARRIVES = (7, 0, 2, 1, 5, 8, 10)
# What a slot holds, and its shape: rows one after another in granules of 512 bytes.
WINDOW = (20, 20)
SLOT = (4, 1, 128)
SLOTS = 11
# In a round each device sends to the one whose digit of (stride, extent) is `by` higher, modulo the
# extent: (stride, extent, by, number of moves). A move is (slot it leaves, slot it comes to).
ROUNDS = ((1, 2, 1, 4), (2, 2, 1, 4), (4, 2, 1, 4))
# fmt: off
MOVES = (
    (0, 7), (2, 8), (4, 9), (6, 10), (1, 0), (8, 2), (5, 4), (10, 6), (3, 1), (9, 5), (4, 8),
    (6, 10),
)
# fmt: on
# Whom a device sends to or gets of.
PARTNERS = ((1, 2, 1), (2, 2, 1), (4, 2, 1))

# What arrives at the busiest device, padding included, and what the kernels need beside the shards.
FORM = "routed"
WIRE_BYTES = 24576
STAGING_BYTES = 22528
VMEM_BYTES = 0

# A device may enter the next kernel while its peers are still in this one. That is safe after the
# same kernel on the same mesh, and after kernels of other ids. The id is a hash of the description:
# where a program uses several of these modules, or one on several meshes, see that ids differ.
COLLECTIVE_ID = 27286
LOGICAL = pl.DeviceIdType.LOGICAL


def _numpy(*values):
    """jax.numpy where a value is traced, else numpy, for which nothing has to be compiled."""
    return jnp if any(isinstance(value, jax.core.Tracer) for value in values) else np


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
    return 0, position


def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    lo0 = position * 20
    return lo0, lo0 + 20, 0, 160


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    lo1 = position * 20
    return 0, 160, lo1, lo1 + 20


def tile(a0, a1, b0, b1):
    """Tensor range shared by a source shard and a target shard; empty where low >= high."""
    source_lo0 = a0 * 20
    target_lo1 = b1 * 20
    return source_lo0, source_lo0 + 20, target_lo1, target_lo1 + 20


def senders(position):
    """First and count, per dimension, of the source shards that meet a target shard."""
    return 0, 8, 0, 1


def receivers(position):
    """First and count, per dimension, of the target shards that meet a source shard."""
    return 0, 1, 0, 8


def target_position(b0, b1, replica):
    """Position, in the target mesh, of a replica of a target shard."""
    return b1


def holder(a0, a1, receiver):
    """Position, in the source mesh, of the holder that sends a piece of a tile to a receiver."""
    return a0


def _ranges(box):
    return tuple(zip(box[::2], box[1::2], strict=True))


def _is_full(ranges):
    return functools.reduce(operator.and_, (low < high for low, high in ranges))


def _same(shard, other):
    pairs = zip(shard, other, strict=True)
    return functools.reduce(operator.and_, (a == b for a, b in pairs))


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


def _check_routes(devices):
    """Raises ValueError where devices send farther than a v5e does directly: over a power of two
    of hops along one axis.

    `devices`: by rank. Source: JAX's guide to distributed Pallas kernels, "Routing".
    """
    if not all("v5 lite" in device.device_kind for device in devices):
        return
    coords = np.array([device.coords for device in devices])
    me = np.arange(8)
    sender = np.tile(me, len(ROUNDS))
    receiver = np.concatenate([_hop(me, stride, extent, by) for stride, extent, by, _ in ROUNDS])
    hops = np.abs(coords[sender] - coords[receiver])
    # An axis of 16 wraps around.
    hops = np.where(coords.max(axis=0) == 15, np.minimum(hops, 16 - hops), hops)
    direct = ((hops > 0).sum(axis=1) == 1) & ((hops & (hops - 1)) == 0).all(axis=1)
    if not direct.all():
        wrong = int(np.argmin(direct))
        a, b = devices[int(sender[wrong])], devices[int(receiver[wrong])]
        raise ValueError(
            f"mesh: device {a.id} at {tuple(a.coords)} is to send to device {b.id} at "
            f"{tuple(b.coords)}, and {(~direct).sum() - 1} other pairs are as far apart; expected: "
            "devices in an order that fills a torus of power-of-two extents axis by axis, "
            "so that they send over 1, 2, 4, ... hops along one axis"
        )


def _hop(device, stride, extent, by):
    """The device whose digit is so much higher, modulo its extent."""
    digit = _rem(_div(device, stride), extent)
    return device + (_rem(digit + by, extent) - digit) * stride


def _meet(me):
    """Tells the devices of all rounds that this one has entered the kernel, and hears it of them.

    None of them ends the call before it has heard of this one, and so a device never holds two
    signals of another.
    """
    barrier = pltpu.get_barrier_semaphore()
    for partner in PARTNERS:
        device = _hop(me, *partner)
        pl.semaphore_signal(barrier, 1, device_id=device, device_id_type=LOGICAL)
    pl.semaphore_wait(barrier, len(PARTNERS))


def _kernel(moves, x, slots, ready, sent, received):
    """Makes the hops of every round.

    moves: the numbers of MOVES, in SMEM; slots: in HBM, x what is in
    them at first; ready: a semaphore a round; sent, received: DMA semaphores.
    """
    del x  # the same memory
    me = lax.axis_index(("x", "y"))
    _meet(me)
    begin = 0
    for number, (stride, extent, by, count) in enumerate(ROUNDS):
        receiver = _hop(me, stride, extent, by)
        # All that this device has sent has left and all that was to come has come: what comes now
        # finds its slots free.
        sender = _hop(me, stride, extent, extent - by)
        free = ready.at[np.int32(number)]
        pl.semaphore_signal(free, 1, device_id=sender, device_id_type=LOGICAL)
        pl.semaphore_wait(free, 1)
        push = functools.partial(_push, moves, slots, sent, received, receiver)
        _each(begin, count, lambda move, push=push: push(move).start())
        # All devices make the same moves: what comes is as much as what goes.
        _each(begin, count, lambda move, push=push: push(move).wait_send())
        _each(begin, count, lambda move, push=push: push(move).wait_recv())
        begin += count


def _push(moves, slots, sent, received, receiver, move):
    """The copy of a move."""
    first = 2 * move
    read, write = (slots.at[moves[first + end]] for end in range(2))
    return pltpu.make_async_remote_copy(
        read, write, sent, received, device_id=receiver, device_id_type=LOGICAL
    )


def _each(begin, count, visit):
    """Calls visit(number) for so many numbers."""

    def one(number, carry):
        visit(number)
        return carry

    lax.fori_loop(np.int32(begin), jnp.int32(begin + count), one, np.int32(0))


def _packed(values):
    """A slot that holds values."""
    values = values.reshape(-1)
    return jnp.pad(values, (0, math.prod(SLOT) - values.size)).reshape(SLOT)


def _unpacked(slot):
    """What a slot holds."""
    shape = WINDOW
    return slot.reshape(-1)[: math.prod(shape)].reshape(shape)


def _pack(x, device):
    """The slots as they are at first: in each the tile of one receiver."""
    me = device
    own, within, offsets = source_shard(me), source_box(me), jnp.array(OFFSETS, jnp.int32)

    def one(number, slots):
        receiver = device
        for stride, extent in DIGITS:
            by = _rem(_div(offsets[number], stride), extent)
            receiver = _hop(receiver, stride, extent, by)
        box = tile(*own, *target_shard(receiver))
        window = lax.dynamic_slice(x, _starts(box, within), WINDOW)
        return lax.dynamic_update_slice(slots, _packed(window)[None], (number, *[0] * len(SLOT)))

    slots = jnp.zeros((SLOTS, *SLOT), x.dtype)
    return lax.fori_loop(np.int32(0), np.int32(len(OFFSETS)), one, slots)


def _unpack(slots, x, device):
    """The target shard from the slots and from what this device holds of it.

    Tiles come in row-major order and a window reaches beyond its tile only to higher indices, so
    that what a window writes too much is written over by the tiles that follow.
    """
    me = receiver = device
    arrives = jnp.array(_by_offset(), jnp.int32)

    def one(number, y):
        comes, sender, shard, piece, box = _incoming(receiver, me, number)
        offset = 0
        for stride, extent in DIGITS:
            own, other = (_rem(_div(each, stride), extent) for each in (device, sender))
            offset = offset + _rem(own + extent - other, extent) * stride
        slot = lax.dynamic_index_in_dim(slots, arrives[offset], 0, keepdims=False)
        window = _unpacked(slot)
        kept = lax.dynamic_slice(x, _starts(box, source_box(me)), WINDOW)
        window = jnp.where(comes, window, kept)
        return lax.dynamic_update_slice(y, window, _starts(box, target_box(receiver)))

    y = jnp.zeros((160, 20), slots.dtype)
    y = lax.fori_loop(np.int32(0), jnp.int32(_incoming_count(receiver)), one, y)
    return y


def _by_offset():
    """Where what came over an offset is in the end, 0 for offsets over which nothing comes."""
    found = [0] * math.prod(extent for _, extent in DIGITS)
    for offset, slot in zip(OFFSETS, ARRIVES, strict=True):
        found[offset] = slot
    return found


def _starts(box, within):
    """Where a tensor box starts in the shard that covers the range `within`."""
    pairs = zip(box[::2], within[::2], strict=True)
    return [jnp.int32(low - start) for low, start in pairs]


def _moved(x, interpret, collective_id):
    """The target shard of this device from its source shard, its padding left as it comes."""
    device = lax.axis_index(("x", "y"))
    slots = _pack(x, device)
    # A block spec tells the kernel alone where an array is; XLA has to be told that it must be in
    # HBM too, or it may place it elsewhere, and the kernel moves what happens to be in HBM.
    if not interpret:
        slots = pltpu.with_memory_space_constraint(slots, pltpu.HBM)
    in_hbm = pl.BlockSpec(memory_space=pltpu.HBM)
    slots = pl.pallas_call(
        _kernel,
        out_shape=pltpu.HBM((SLOTS, *SLOT), x.dtype),
        in_specs=[pl.BlockSpec(memory_space=pltpu.SMEM), in_hbm],
        out_specs=in_hbm,
        scratch_shapes=[
            pltpu.SemaphoreType.REGULAR((len(ROUNDS),)),
            pltpu.SemaphoreType.DMA,
            pltpu.SemaphoreType.DMA,
        ],
        input_output_aliases={1: 0},
        compiler_params=pltpu.CompilerParams(collective_id=collective_id, has_side_effects=True),
        interpret=pltpu.InterpretParams() if interpret is True else interpret,
    )(jnp.array(MOVES, jnp.int32).reshape(-1), slots)
    return _unpack(slots, x, device)


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
    return x


def unpad(y):
    """The logical tensor of a padded result."""
    _expect(y, PADDED_TARGET_SHAPE, "padded result")
    return y


def _apart(x):
    """With no mesh set, unless `x` is traced: an array is moved on its own devices, which need not
    be those of the mesh that a user has set."""
    if isinstance(x, jax.core.Tracer):
        return contextlib.nullcontext()
    try:
        return jax.set_mesh(Mesh(np.empty((), object), ()))
    except ValueError:  # JAX sets none while anything else is traced, as around a constant
        return contextlib.nullcontext()


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

    def first(shard):
        return one(lax.bitcast_convert_type(shard, BITS))

    def whole(shard):
        y = last(shard)
        return lax.bitcast_convert_type(y, DTYPE)

    y = _mapped(first, source, _batched(SOURCE_SPEC, batch), _batched(rows, batch))(x)
    y = _mapped(whole, target, _batched(out_rows, batch), _batched(TARGET_SPEC, batch))(y)
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
