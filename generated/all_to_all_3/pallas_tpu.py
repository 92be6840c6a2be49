"""Reshards int8[6, 6] over 3 devices: [{"x"}, {}] -> [{}, {"x"}].

Source: [{"x"}, {}] on <["x"=3]>, shards of 2 x 6.
    d1(x)[k0, k1] -> t[x * 2 + k0, k1]
Target: [{}, {"x"}] on <["x"=3]>, shards of 6 x 2.
    d2(x)[k0, k1] -> t[k0, x * 2 + k1]

Tiles are the intersections of source and target shards. Along dimension
    0: shards of 2 meet shards of 6, the cuts repeat every 6, starts are multiples of 2
    1: shards of 6 meet shards of 2, the cuts repeat every 6, starts are multiples of 2
Each tile has one holder, which sends it.

Bytes received: 8 by the busiest device (the least possible is 8), 24 in all.
Bytes sent: 8 by the busiest device (the least possible is 8).

    device  source           target
    0       [0, 2) x [0, 6)  [0, 6) x [0, 2)
    1       [2, 4) x [0, 6)  [0, 6) x [2, 4)
    2       [4, 6) x [0, 6)  [0, 6) x [4, 6)

Made by
    shardwright emit --mesh x=3 --shape 6x6 --dtype int8 --source '[{"x"}, {}]' --target '[{}, {"x"}]' --name all_to_all_3 -o generated

Tested with jax 0.10.2 in TPU interpret mode.
"""

import functools
import math
import os

if __name__ == "__main__":
    # One device more than there are: the interpreter needs a thread that no device holds.
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=4")

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
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

SHAPE = (6, 6)
DTYPE = "int8"
SOURCE_MESH = '<["x"=3]>'
TARGET_MESH = '<["x"=3]>'
SOURCE = '[{"x"}, {}]'
TARGET = '[{}, {"x"}]'
LOCAL_SOURCE_SHAPE = (2, 6)
LOCAL_TARGET_SHAPE = (6, 2)

# Device ids by mesh position.
SOURCE_IDS = range(3)
TARGET_IDS = range(3)

# The meshes with their axes refined into the sub-axes in use, and the shardings on them.
SOURCE_AXES = (("x", 3),)
TARGET_AXES = (("x", 3),)
SOURCE_SPEC = P("x", None)
TARGET_SPEC = P(None, "x")

# Shards are padded at their ends to the largest: the shapes of the global arrays.
PADDED_SOURCE_SHAPE = (6, 6)
PADDED_TARGET_SHAPE = (6, 6)

# Holders of each target shard, and pieces into which a tile is cut to share the sending.
REPLICAS = 1
PIECES = 1
# Tiles are not aligned to the tiling of TPU memory, so they travel in slots that are: XLA packs
# each tile at the start of a slot, slots are pushed, and XLA unpacks them. A tile fits WINDOW.
# The largest takes 1024.00 times its bytes on the wire and in the slots.
WINDOW = (2, 2)
SLOT = (32, 128)
OUT_SLOTS = 3
IN_SLOTS = 3

# A device may enter the next kernel while its peers are still in this one. That is safe after the
# same kernel, and after kernels of other ids. The id is a hash of the description: where a program
# uses several of these modules, see that their ids differ.
COLLECTIVE_ID = 10344
LOGICAL = pl.DeviceIdType.LOGICAL


def _minimum(a, b):
    return min(a, b) if isinstance(a, int) and isinstance(b, int) else jnp.minimum(a, b)


def _maximum(a, b):
    return max(a, b) if isinstance(a, int) and isinstance(b, int) else jnp.maximum(a, b)


def source_shard(position):
    """Index of the source shard, per dimension, at a position of the source mesh."""
    return position, 0


def target_shard(position):
    """Index of the target shard, per dimension, at a position of the target mesh."""
    return 0, position


def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    lo0 = position * 2
    return lo0, lo0 + 2, 0, 6


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    lo1 = position * 2
    return 0, 6, lo1, lo1 + 2


def source_range(a0, a1):
    """Tensor range (low, high), per dimension, of a source shard."""
    lo0 = a0 * 2
    return lo0, lo0 + 2, 0, 6


def tile(a0, a1, b0, b1):
    """Tensor range shared by a source shard and a target shard; empty where low >= high."""
    source_lo0 = a0 * 2
    target_lo1 = b1 * 2
    return source_lo0, source_lo0 + 2, target_lo1, target_lo1 + 2


def senders(position):
    """First and count, per dimension, of the source shards that meet a target shard."""
    return 0, 3, 0, 1


def receivers(position):
    """First and count, per dimension, of the target shards that meet a source shard."""
    return 0, 1, 0, 3


def target_position(b0, b1, replica):
    """Position, in the target mesh, of a replica of a target shard."""
    return b1


def holder(a0, a1, receiver):
    """Position, in the source mesh, of the holder that sends a piece of a tile to a receiver."""
    return a0


def _ranges(box):
    return tuple(zip(box[::2], box[1::2], strict=True))


def _is_full(box):
    full = True
    for low, high in _ranges(box):
        full = full & (low < high)
    return full


def _shard_at(number, counted):
    """The shard of a row-major number among (first, count) per dimension, and the rest of it."""
    shard = []
    for first, count in reversed(_ranges(counted)):
        shard.append(first + number % count)
        number = number // count
    return tuple(reversed(shard)), number


def _count(counted):
    return math.prod(count for _, count in _ranges(counted))


def _same(shard, other):
    same = True
    for a, b in zip(shard, other, strict=True):
        same = same & (a == b)
    return same


def _multiple(index, divisor):
    """The index, known to the compiler to be a multiple of the divisor."""
    return index if isinstance(index, int) else pl.multiple_of(index, divisor)


def _number(shard, counted):
    """The row-major number of a shard among (first, count) per dimension."""
    number = 0
    for index, (first, count) in zip(shard, _ranges(counted), strict=True):
        number = number * count + index - first
    return number


def _slot(ref, number, box):
    """The part of a slot that the tile takes, rounded up to the tiling of TPU memory."""
    widths = [high - low for low, high in _ranges(box)]
    rows = _multiple((widths[-2] + 31) // 32 * 32, 32)
    columns = _multiple((widths[-1] + 127) // 128 * 128, 128)
    leading = [pl.ds(0, width) for width in widths[:-2]]
    return ref.at[(number, *leading, pl.ds(0, rows), pl.ds(0, columns))]


def _each_incoming(receiver, me, visit):
    """Calls visit(sender, place) for every piece that others send to a target position.

    `me`: where the receiver stands in the source mesh; place(y): where the piece arrives.
    """
    counted = senders(receiver)

    def one(number, carry):
        shard, _ = _shard_at(number, counted)
        box = tile(*shard, *target_shard(receiver))
        sender = holder(*shard, receiver)
        wanted = _is_full(box) & jnp.logical_not(_holds(me, shard))
        pl.when(wanted)(lambda: visit(sender, lambda y: _slot(y, number, box)))
        return carry

    total = _count(counted) * PIECES
    lax.fori_loop(np.int32(0), jnp.int32(total), one, np.int32(0))


def _each_outgoing(me, visit):
    """Calls visit(receiver, read, place) for every piece that a source position sends.

    read(x), place(y): where the piece stands here, and where it arrives. Returns how many.
    """
    counted = receivers(me)
    own = source_shard(me)

    def one(number, visits):
        replica = number % REPLICAS
        number = number // REPLICAS
        shard, _ = _shard_at(number, counted)
        receiver = target_position(*shard, replica)
        box = tile(*own, *shard)
        sender = holder(*own, receiver)
        wanted = _is_full(box) & (sender == me)
        wanted = wanted & jnp.logical_not(_holds(receiver, own))

        def read(x):
            return _slot(x, number, box)

        def place(y):
            return _slot(y, _number(own, senders(receiver)), box)

        pl.when(wanted)(lambda: visit(receiver, read, place))
        return visits + jnp.int32(wanted)

    total = _count(counted) * PIECES * REPLICAS
    return lax.fori_loop(np.int32(0), jnp.int32(total), one, np.int32(0))


def _holds(position, shard):
    """Whether a source position, which may be none, holds a source shard."""
    return _same(source_shard(position), shard)


def _kernel(x, y, copied, sent, received):
    """Pushes this device's tiles into their receivers' target shards.

    x, y: the slots of its outgoing and incoming tiles; copied, sent, received: DMA semaphores.
    """
    me = receiver = lax.axis_index("x")
    # A peer may write here from the moment it is told, so tell every sender that y exists, and
    # hear the same from every receiver. Nobody is told by a device that still awaits its data.
    barrier = pltpu.get_barrier_semaphore()

    def tell(sender, place):
        device = sender
        pl.semaphore_signal(barrier, 1, device_id=device, device_id_type=LOGICAL)

    _each_incoming(receiver, me, tell)
    expected = _each_outgoing(me, lambda *piece: None)
    pl.when(expected > 0)(lambda: pl.semaphore_wait(barrier, expected))

    def push(receiver, read, place):
        device = receiver
        return pltpu.make_async_remote_copy(
            read(x), place(y), sent, received, device_id=device, device_id_type=LOGICAL
        )

    _each_outgoing(me, lambda *piece: push(*piece).start())
    # What this device holds of its own target shard.
    kept = tile(*source_shard(me), *target_shard(receiver))
    some = _is_full(kept)

    def keep(piece, carry):
        box = kept
        out = _number(target_shard(receiver), receivers(me)) * PIECES + piece
        into = _number(source_shard(me), senders(receiver)) * PIECES + piece
        copy = pltpu.make_async_copy(_slot(x, out, box), _slot(y, into, box), copied)
        copy.start()
        copy.wait()
        return carry

    pieces = jnp.where(some, np.int32(PIECES), np.int32(0))
    lax.fori_loop(np.int32(0), pieces, keep, np.int32(0))
    _each_outgoing(me, lambda *piece: push(*piece).wait_send())

    def arrive(sender, place):
        pltpu.make_async_copy(place(y), place(y), received).wait()

    _each_incoming(receiver, me, arrive)


def _pack(x, me):
    """Each tile of the source shard at the start of a slot: [OUT_SLOTS, *SLOT]."""
    counted, own, within = receivers(me), source_shard(me), source_box(me)

    def one(number, slots):
        shard, _ = _shard_at(number // PIECES, counted)
        box = tile(*own, *shard)
        window = lax.dynamic_slice(x, _starts(box, within), WINDOW)
        slot = jnp.pad(window, [(0, to - size) for size, to in zip(WINDOW, SLOT, strict=True)])
        return lax.dynamic_update_index_in_dim(slots, slot, number, 0)

    slots = jnp.zeros((OUT_SLOTS, *SLOT), x.dtype)
    return lax.fori_loop(np.int32(0), jnp.int32(_count(counted) * PIECES), one, slots)


def _unpack(slots, receiver):
    """The target shard from the slots of its tiles.

    Tiles come in row-major order and a window reaches beyond its tile only to higher indices, so
    that what a window writes too much is written over by the tiles that follow.
    """
    counted, own, within = senders(receiver), target_shard(receiver), target_box(receiver)

    def one(number, y):
        shard, _ = _shard_at(number // PIECES, counted)
        box = tile(*shard, *own)
        slot = lax.dynamic_index_in_dim(slots, number, 0, keepdims=False)
        window = lax.slice(slot, (0,) * len(WINDOW), WINDOW)
        return lax.dynamic_update_slice(y, window, _starts(box, within))

    y = jnp.zeros((6, 2), slots.dtype)
    y = lax.fori_loop(np.int32(0), jnp.int32(_count(counted) * PIECES), one, y)
    return y


def _starts(box, within):
    """Where a tensor box starts in the shard that covers the range `within`."""
    pairs = zip(box[::2], within[::2], strict=True)
    return [jnp.int32(low - start) for low, start in pairs]


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


def _expect(x, shape, what):
    if tuple(x.shape) != shape or x.dtype != DTYPE:
        raise ValueError(f"{what}: got {tuple(x.shape)} of {x.dtype}, expected {shape} of {DTYPE}")


def _moved(x, interpret):
    """What the kernel makes of a source shard: the target shard, its padding left unwritten."""
    me = receiver = lax.axis_index("x")
    x = _pack(x, me)
    # A block spec tells the kernel alone where an array is; XLA has to be told that it must be in
    # HBM too, or it may place it elsewhere, and the kernel moves what happens to be in HBM.
    if not interpret:
        x = pltpu.with_memory_space_constraint(x, pltpu.HBM)
    y = pl.pallas_call(
        _kernel,
        out_shape=pltpu.HBM((IN_SLOTS, *SLOT), x.dtype),
        in_specs=[pl.BlockSpec(memory_space=pltpu.HBM)],
        out_specs=pl.BlockSpec(memory_space=pltpu.HBM),
        scratch_shapes=[pltpu.SemaphoreType.DMA] * 3,
        compiler_params=pltpu.CompilerParams(
            collective_id=COLLECTIVE_ID,
            has_side_effects=True,
        ),
        interpret=pltpu.InterpretParams() if interpret is True else interpret,
    )(x)
    return _unpack(y, receiver)


def _exchange(x, interpret):
    """The target shard of this device from its source shard, inside shard_map."""
    y = _moved(x, interpret)
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


@functools.partial(jax.custom_jvp, nondiff_argnums=(1, 2, 3))
@functools.partial(jax.jit, static_argnums=(1, 2, 3))
def _program(x, source_mesh, target_mesh, interpret):
    # The two meshes list the same devices in the same order: stacking the target shards by device
    # and taking them off again only renames the axes, and moves nothing.
    rows, out_rows = P(source_mesh.axis_names), P(target_mesh.axis_names)
    exchange = _mapped(lambda shard: _exchange(shard, interpret), source_mesh, SOURCE_SPEC, rows)
    y = _mapped(lambda shard: shard[0], target_mesh, out_rows, TARGET_SPEC)(exchange(x))
    if AxisType.Explicit in target_mesh.axis_types:
        return jax.sharding.reshard(y, NamedSharding(target_mesh, TARGET_SPEC))
    return y


@_program.defjvp
def _no_derivative(source_mesh, target_mesh, interpret, primals, tangents):
    raise NotImplementedError(
        "reshard has no derivative of its own: its gradient is the reshard from the target to the "
        "source; emit that one too and join the two with jax.custom_vjp"
    )


def reshard(x, mesh, *, target_mesh=None, interpret=False):
    """The target array from the source array, both padded; usable under `jax.jit`.

    `x`: global array of PADDED_SOURCE_SHAPE, sharded as `source_sharding(mesh)`; its padding is
    never read. Returns an array of PADDED_TARGET_SHAPE, sharded as `target_sharding(target_mesh)`,
    its padding zero; a jit around that returns it needs that as its `out_shardings`, or XLA may
    shard its result anew. `target_mesh`: by default the devices of `mesh`, in its order.
    `interpret`: a bool or `pltpu.InterpretParams`. Raises ValueError for a wrong shape, dtype or
    mesh.
    """
    _expect(x, PADDED_SOURCE_SHAPE, "source array")
    target_mesh = mesh if target_mesh is None else target_mesh
    if list(target_mesh.devices.flat) != list(mesh.devices.flat):
        raise ValueError("target_mesh: expected the devices of mesh, in the same order")
    source_mesh = _refined(mesh, SOURCE_AXES, "source")
    target_mesh = _refined(target_mesh, TARGET_AXES, "target")
    if isinstance(x, jax.core.Tracer):
        return _program(x, source_mesh, target_mesh, interpret)
    x = jax.device_put(x, NamedSharding(source_mesh, SOURCE_SPEC))
    return _compiled(source_mesh, target_mesh, interpret)(x)


@functools.cache
def _compiled(source_mesh, target_mesh, interpret):
    # XLA chooses the sharding of a program's result where it is not told.
    return jax.jit(
        lambda x: _program(x, source_mesh, target_mesh, interpret),
        out_shardings=NamedSharding(target_mesh, TARGET_SPEC),
    )


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
