"""Reshards int32[6] over 6 devices: [{}] -> [{"y"}].

Source: [{}] on <["x"=2, "y"=3]>, shards of 6.
    d1(x, y)[k0] -> t[k0]
Target: [{"y"}] on <["x"=2, "y"=3]>, shards of 2.
    d2(x, y)[k0] -> t[y * 2 + k0]

Tiles are the intersections of source and target shards. Along dimension
    0: shards of 6 meet shards of 2, the cuts repeat every 6, starts are multiples of 2
Of the 6 holders of a tile, the one with the receiver's own coordinates along
the axes that do not split the source sends it.

Bytes received: 0 by the busiest device (the least possible is 0), 0 in all.
Bytes sent: 0 by the busiest device (the least possible is 0).

    device  source  target
    0       [0, 6)  [0, 2)
    1       [0, 6)  [2, 4)
    2       [0, 6)  [4, 6)
    3       [0, 6)  [0, 2)
    4       [0, 6)  [2, 4)
    5       [0, 6)  [4, 6)

Form: windows; chunks of tiles are shifted in VMEM, and put together from a staging area.
On the wire 1.000 times the exact bytes, 0 into the busiest device.
HBM reads and writes 256.50 times the least possible.
Staging 0 bytes of HBM, 65,536 of VMEM.

Made by
    shardwright emit --mesh x=2,y=3 --shape 6 --dtype int32 --source '[{}]' --target '[{"y"}]' --name slice_2x3 -o generated

Tested with jax 0.10.2 in TPU interpret mode; where the tensor is large, a smaller twin.
"""

import contextlib
import functools
import math
import operator
import os

if __name__ == "__main__":
    # One device more than there are: the interpreter needs a thread that no device holds.
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=7")

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir
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

SHAPE = (6,)
DTYPE = "int32"
SOURCE_MESH = '<["x"=2, "y"=3]>'
TARGET_MESH = '<["x"=2, "y"=3]>'
SOURCE = "[{}]"
TARGET = '[{"y"}]'
# For callers: shapes of the largest shards.
LOCAL_SOURCE_SHAPE = (6,)
LOCAL_TARGET_SHAPE = (2,)

# Device ids by mesh position.
SOURCE_IDS = range(6)
TARGET_IDS = range(6)

# The meshes with their axes refined into the sub-axes in use, and the shardings on them.
SOURCE_AXES = (("x", 2), ("y", 3))
TARGET_AXES = (("x", 2), ("y", 3))
SOURCE_SPEC = P(None)
TARGET_SPEC = P("y")

# Shards are padded at their ends to the largest: the shapes of the global arrays.
PADDED_SOURCE_SHAPE = (6,)
PADDED_TARGET_SHAPE = (6,)

# Holders of each target shard, and pieces into which a tile is cut to share the sending.
REPLICAS = 2
PIECES = 1

# The tensor's dimensions in the order in which the kernels take them; TPU memory is tiled over the
# last two.
VIEW = (0,)

# Tiles start and end anywhere. Memory is tiled by 1,024 elements, so a tile travels in chunks
# through windows in VMEM, where each is shifted to its place, into a staging area of its receiver.
# There it starts at a multiple of UNIT; afterwards every block of the target shard is put
# together from it. All ranges are in elements.
UNIT = (1024,)
# Extents of a chunk, and of a window, which holds the whole units that a chunk reaches into.
CHUNK = (1024,)
WINDOW = (2048,)
# Blocks of the target shard, of the extents of a chunk, and how many source shards meet one.
BLOCKS = (1,)
MEET = (1,)

# What arrives at the busiest device, padding included, and what the kernels need beside the shards.
FORM = "windows"
WIRE_BYTES = 0
STAGING_BYTES = 0
VMEM_BYTES = 65536


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
    return (0,)


def target_shard(position):
    """Index of the target shard, per dimension, at a position of the target mesh."""
    return (_rem(position, 3),)


def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    return 0, 6


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    lo0 = _rem(position, 3) * 2
    return lo0, lo0 + 2


def tile(a0, b0):
    """Tensor range shared by a source shard and a target shard; empty where low >= high."""
    target_lo0 = b0 * 2
    return target_lo0, target_lo0 + 2


def senders(position):
    """First and count, per dimension, of the source shards that meet a target shard."""
    return 0, 1


def receivers(position):
    """First and count, per dimension, of the target shards that meet a source shard."""
    return 0, 3


def target_position(b0, replica):
    """Position, in the target mesh, of a replica of a target shard."""
    return replica * 3 + b0


def holder(a0, receiver):
    """Position, in the source mesh, of the holder that sends a piece of a tile to a receiver."""
    return receiver


def source_at(i0):
    """Index of the source shard, per dimension, that holds an element of the tensor."""
    return (0,)


def _ranges(box):
    return tuple(zip(box[::2], box[1::2], strict=True))


def _viewed(box):
    """The ranges of a tensor box, in the kernels' order of dimensions."""
    ranges = _ranges(box)
    return [ranges[axis] for axis in VIEW]


def _is_full(ranges):
    return functools.reduce(operator.and_, (low < high for low, high in ranges))


def _multiple(index, divisor):
    """The index, known to the compiler to be a multiple of the divisor."""
    return index if isinstance(index, int) else pl.multiple_of(index, divisor)


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
    extent = ref.shape[0] // 2
    return ref.at[pl.ds(_multiple(slot * extent, 1024), extent)]


def _within(ref, slot, units):
    """What units take of one of the two windows or chunks, which they fill from its start."""
    return ref.at[pl.ds(_multiple(slot * (ref.shape[0] // 2), 1024), units[0][1])]


def _shifted(values, by):
    """The elements of a window moved to higher indices, and cut to a chunk.

    What goes around the end of the window is beyond the chunk, or masked.
    """
    values = values.reshape(-1, 128)
    by = _rem(by[0] + WINDOW[0], WINDOW[0])
    rows, lanes = _div(by, 128), _rem(by, 128)
    values = pltpu.roll(values, lanes, 1)
    carried = pltpu.roll(values, _rem(rows + 1, values.shape[0]), 0)
    lane = lax.broadcasted_iota(jnp.int32, values.shape, 1)
    values = jnp.where(lane < lanes, carried, pltpu.roll(values, rows, 0))
    return values[: CHUNK[0] // 128]


def _merge(window, y, by, part, block):
    """Writes a part of a block from a window whose elements are moved."""
    words = _shifted(window[...], by)
    rows, lanes = (lax.broadcasted_iota(jnp.int32, words.shape, axis) for axis in (0, 1))
    places = [128 * rows + lanes]
    inside = True
    for place, (low, high), (at, _) in zip(places, part, block, strict=True):
        inside = inside & (place >= low - at) & (place < high - at)
    merged = jnp.where(inside, words, y[...].reshape(words.shape))
    y[...] = merged.reshape(CHUNK)


def _int32(values):
    return jax.tree.map(jnp.int32, values)


def _start(box):
    """Where a shard that covers a box begins, in the kernels' order of dimensions."""
    return [low for low, _ in _viewed(box)]


def _unpack_kernel(x, y, windows, read):
    """Puts a block of the target shard together from the tiles that meet it.

    x: the source shard, in HBM;
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
        block = _cut(_viewed(target_box(receiver)), _div(step, visits), BLOCKS)
        first = source_at(*(block[VIEW.index(axis)][0] for axis in range(len(VIEW))))
        digits = _digits(_div(step, PIECES), MEET)
        shard = tuple(a + digit for a, digit in zip(first, digits, strict=True))
        box = tile(*shard, *target_shard(receiver))
        pairs = zip(_viewed(box), block, strict=True)
        part = [(_maximum(a, c), _minimum(b, d)) for (a, b), (c, d) in pairs]
        comes = (step < steps) & _is_full(part)
        return _int32((comes, True, _start(source_box(me)), part, block))

    def fetches(slot, comes, here, units, part, block):
        """The copies that may bring a part, each with whether it does."""
        window = _within(windows, slot, units)
        copy = pltpu.make_async_copy(_at(x, units), window, read.at[slot])
        return ((comes > 0, copy),)

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
        x = jnp.pad(x, [(0, 1018)])
        interpret = pltpu.InterpretParams() if interpret is True else interpret
    else:
        x = pltpu.with_memory_space_constraint(x, pltpu.HBM)
    return pl.pallas_call(
        _unpack_kernel,
        grid=BLOCKS,
        out_shape=jax.ShapeDtypeStruct((2,), x.dtype),
        in_specs=[in_hbm],
        out_specs=pl.BlockSpec(CHUNK, lambda *block: block),
        scratch_shapes=[pltpu.VMEM((2 * WINDOW[0],), x.dtype), pltpu.SemaphoreType.DMA((2,))],
        # One block after another: each starts to read what the next one needs.
        compiler_params=pltpu.CompilerParams(dimension_semantics=("arbitrary",) * len(BLOCKS)),
        interpret=interpret,
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


_reshard = Primitive("reshard")
_reshard.def_impl(_eager)
_reshard.def_effectful_abstract_eval(_type)
batching.primitive_batchers[_reshard] = _vectorized
mlir.register_lowering(_reshard, mlir.lower_fun(_lowered, multiple_results=False))


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
