"""Reshards bfloat16[128256, 8192] over 8 devices: [{"x"}, {}] -> [{}, {"x"}].

Source: [{"x"}, {}] on <["x"=8]>, shards of 16032 x 8192.
    d1(x)[k0, k1] -> t[x * 16032 + k0, k1]
Target: [{}, {"x"}] on <["x"=8]>, shards of 128256 x 1024.
    d2(x)[k0, k1] -> t[k0, x * 1024 + k1]

Tiles are the intersections of source and target shards. Along dimension
    0: shards of 16032 meet shards of 128256, the cuts repeat every 128256, starts are multiples of 16032
    1: shards of 8192 meet shards of 1024, the cuts repeat every 8192, starts are multiples of 1024
Each tile has one holder, which sends it.

Bytes received: 229834752 by the busiest device (the least possible is 229834752), 1838678016 in all.
Bytes sent: 229834752 by the busiest device (the least possible is 229834752).

    device  source                        target
    0       [0, 16032) x [0, 8192)        [0, 128256) x [0, 1024)
    1       [16032, 32064) x [0, 8192)    [0, 128256) x [1024, 2048)
    2       [32064, 48096) x [0, 8192)    [0, 128256) x [2048, 3072)
    3       [48096, 64128) x [0, 8192)    [0, 128256) x [3072, 4096)
    4       [64128, 80160) x [0, 8192)    [0, 128256) x [4096, 5120)
    5       [80160, 96192) x [0, 8192)    [0, 128256) x [5120, 6144)
    6       [96192, 112224) x [0, 8192)   [0, 128256) x [6144, 7168)
    7       [112224, 128256) x [0, 8192)  [0, 128256) x [7168, 8192)

Form: direct; tiles go by DMA from shard to shard.
On the wire 1.000 times the exact bytes, 229,834,752 into the busiest device.
HBM reads and writes 1.00 times the least possible.
Where the result leaves the program XLA copies it once more.

Made by
    shardwright emit --mesh x=8 --shape 128256x8192 --dtype bfloat16 --source '[{"x"}, {}]' --target '[{}, {"x"}]' --name llama3_embed_vocab_to_hidden -o generated

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

SHAPE = (128256, 8192)
DTYPE = "bfloat16"
SOURCE_MESH = '<["x"=8]>'
TARGET_MESH = '<["x"=8]>'
SOURCE = '[{"x"}, {}]'
TARGET = '[{}, {"x"}]'
# For callers: shapes of the largest shards.
LOCAL_SOURCE_SHAPE = (16032, 8192)
LOCAL_TARGET_SHAPE = (128256, 1024)

# Device ids by mesh position.
SOURCE_IDS = range(8)
TARGET_IDS = range(8)

# The meshes with their axes refined into the sub-axes in use, and the shardings on them.
SOURCE_AXES = (("x", 8),)
TARGET_AXES = (("x", 8),)
SOURCE_SPEC = P("x", None)
TARGET_SPEC = P(None, "x")

# Shards are padded at their ends to the largest: the shapes of the global arrays.
PADDED_SOURCE_SHAPE = (128256, 8192)
PADDED_TARGET_SHAPE = (128256, 8192)

# Elements move as integers of their width; around kernels only if those are interpreted, where XLA,
# on CPU, would pad and select in float32, which changes NaNs.
BITS = jnp.int16

# Holders of each target shard, and pieces into which a tile is cut to share the sending.
REPLICAS = 1
PIECES = 1

# The tensor's dimensions in the order in which the kernels take them; TPU memory is tiled over the
# last two.
VIEW = (0, 1)

# Every tile starts and ends at the tiling of memory, or spans the dimension: it goes straight from
# shard to shard. What divides all starts and widths of tiles within their shards, a dimension:
DIVISORS = (16032, 1024)

# What arrives at the busiest device, padding included, and what the kernels need beside the shards.
FORM = "direct"
WIRE_BYTES = 229834752
STAGING_BYTES = 0
VMEM_BYTES = 0

# A device may enter the next kernel while its peers are still in this one. That is safe after the
# same kernel on the same mesh, and after kernels of other ids. The id is a hash of the description:
# where a program uses several of these modules, or one on several meshes, see that ids differ.
COLLECTIVE_ID = 12865
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
    lo0 = position * 16032
    return lo0, lo0 + 16032, 0, 8192


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    lo1 = position * 1024
    return 0, 128256, lo1, lo1 + 1024


def tile(a0, a1, b0, b1):
    """Tensor range shared by a source shard and a target shard; empty where low >= high."""
    source_lo0 = a0 * 16032
    target_lo1 = b1 * 1024
    return source_lo0, source_lo0 + 16032, target_lo1, target_lo1 + 1024


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


def _at(ref, box, within):
    """The part of a shard's ref that a tensor box takes; the shard covers the box `within`."""
    slices = []
    for (low, high), (start, _), divisor in zip(
        _viewed(box), _viewed(within), DIVISORS, strict=True
    ):
        slices.append(pl.ds(_multiple(low - start, divisor), _multiple(high - low, divisor)))
    return ref.at[tuple(slices)]


def _kernel(x, y, copied, sent, received):
    """Pushes this device's tiles into their receivers' target shards.

    x, y: its source and target shard; copied, sent, received: DMA semaphores.
    """
    me = receiver = lax.axis_index("x")
    _meet(me, receiver)

    def push(number):
        sends, receiver, _, _, box = _outgoing(me, number)
        read, write = _at(x, box, source_box(me)), _at(y, box, target_box(receiver))
        device = jnp.int32(receiver)
        return sends, pltpu.make_async_remote_copy(
            read, write, sent, received, device_id=device, device_id_type=LOGICAL
        )

    def start(number):
        sends, copy = push(number)
        pl.when(sends)(copy.start)

    _each(_outgoing_count(me), start)
    # What this device holds of its own target shard.
    kept = tile(*source_shard(me), *target_shard(receiver))
    some = _is_full(_ranges(kept))

    read, write = _at(x, kept, source_box(me)), _at(y, kept, target_box(receiver))
    keep = pltpu.make_async_copy(read, write, copied)
    pl.when(some)(keep.start)
    pl.when(some)(keep.wait)

    def leave(number):
        sends, copy = push(number)
        pl.when(sends)(copy.wait_send)

    _each(_outgoing_count(me), leave)

    def arrive(number):
        comes, _, _, _, box = _incoming(receiver, me, number)
        place = _at(y, box, target_box(receiver))
        pl.when(comes)(pltpu.make_async_copy(place, place, received).wait)

    _each(_incoming_count(receiver), arrive)


def _moved(x, interpret, collective_id):
    """What the kernel makes of a source shard: the target shard, its padding left unwritten."""
    # A block spec tells the kernel alone where an array is; XLA has to be told that it must be in
    # HBM too, or it may place it elsewhere, and the kernel moves what happens to be in HBM.
    if not interpret:
        x = pltpu.with_memory_space_constraint(x, pltpu.HBM)
    return pl.pallas_call(
        _kernel,
        out_shape=pltpu.HBM((128256, 1024), x.dtype),
        in_specs=[pl.BlockSpec(memory_space=pltpu.HBM)],
        out_specs=pl.BlockSpec(memory_space=pltpu.HBM),
        scratch_shapes=[pltpu.SemaphoreType.DMA] * 3,
        compiler_params=pltpu.CompilerParams(
            collective_id=collective_id,
            has_side_effects=True,
        ),
        interpret=pltpu.InterpretParams() if interpret is True else interpret,
    )(x)


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
        return one(lax.bitcast_convert_type(shard, BITS) if interpret else shard)

    def whole(shard):
        y = last(shard)
        return lax.bitcast_convert_type(y, DTYPE) if interpret else y

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
