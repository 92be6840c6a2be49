"""Reshards float32[16, 24] over 8 devices: [{"x"}, {"y"}] -> [{"y"}, {}].

Source: [{"x"}, {"y"}] on <["x"=2, "y"=4]>, shards of 8 x 6.
    d1(x, y)[k0, k1] -> t[x * 8 + k0, y * 6 + k1]
Target: [{"y"}, {}] on <["x"=2, "y"=4]>, shards of 4 x 24.
    d2(x, y)[k0, k1] -> t[y * 4 + k0, k1]

Steps, with the bytes that each brings to the busiest device:
    1. all_to_all over "y":(2)2: [{"x"}, {"y"}] -> [{"x", "y":(2)2}, {"y":(1)2}]; 96 bytes
    2. all_gather over "y":(1)2: [{"x", "y":(2)2}, {"y":(1)2}] -> [{"x", "y":(2)2}, {}]; 192 bytes
    3. permute over "x", "y": [{"x", "y":(2)2}, {}] -> [{"y"}, {}]; 384 bytes

Bytes received: 672 by the busiest device (the least possible is 384), 3840 in all.
Bytes sent: 480 by the busiest device (the least possible is 384).
Memory: 768 bytes of the tensor on a device at most, the shards
before and after one step together; what XLA takes within a step is beside that.

    device  source              target
    0       [0, 8) x [0, 6)     [0, 4) x [0, 24)
    1       [0, 8) x [6, 12)    [4, 8) x [0, 24)
    2       [0, 8) x [12, 18)   [8, 12) x [0, 24)
    3       [0, 8) x [18, 24)   [12, 16) x [0, 24)
    4       [8, 16) x [0, 6)    [0, 4) x [0, 24)
    5       [8, 16) x [6, 12)   [4, 8) x [0, 24)
    6       [8, 16) x [12, 18)  [8, 12) x [0, 24)
    7       [8, 16) x [18, 24)  [12, 16) x [0, 24)

On the wire 672 bytes into the busiest device.

Made by
    shardwright emit --mesh x=2,y=4 --shape 16x24 --dtype float32 --source '[{"x"}, {"y"}]' --target '[{"y"}, {}]' --backends jax_xla --strategy basis --topology torus:2x4,wrap=0x0,bandwidth=5e+10,latency=1e-06,powers_of_two=1,ragged=512,memory=8.19e+11 --name steps_2x4 -o generated

Tested with jax 0.10.2 on CPU devices.
"""

import contextlib
import functools
import importlib.util
import math
import os

if __name__ == "__main__":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
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

SHAPE = (16, 24)
DTYPE = "float32"
SOURCE_MESH = '<["x"=2, "y"=4]>'
TARGET_MESH = '<["x"=2, "y"=4]>'
SOURCE = '[{"x"}, {"y"}]'
TARGET = '[{"y"}, {}]'
LOCAL_SOURCE_SHAPE = (8, 6)
LOCAL_TARGET_SHAPE = (4, 24)

# Device ids by mesh position.
SOURCE_IDS = range(8)
TARGET_IDS = range(8)

# The meshes with their axes refined into the sub-axes in use, and the shardings on them.
SOURCE_AXES = (("x", 2), ("y:(1)2", 2), ("y:(2)2", 2))
TARGET_AXES = (("x", 2), ("y", 4))
SOURCE_SPEC = P("x", ("y:(1)2", "y:(2)2"))
TARGET_SPEC = P("y", None)

# Shards are padded at their ends to the largest: the shapes of the global arrays.
PADDED_SOURCE_SHAPE = (16, 24)
PADDED_TARGET_SHAPE = (16, 24)

# Elements move as integers of their width.
BITS = jnp.int32

# The axes over which devices are ranked for the exchange, and how many devices they have.
AXES = ("x", "y:(1)2", "y:(2)2")
DEVICES = 8

# What arrives at the busiest device, padding included.
WIRE_BYTES = 672


def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    lo0 = position // 4 * 8
    lo1 = position % 4 * 6
    return lo0, lo0 + 8, lo1, lo1 + 6


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    lo0 = position % 4 * 4
    return lo0, lo0 + 4, 0, 24


def _ranges(box):
    return tuple(zip(box[::2], box[1::2], strict=True))


def _number(digits, position):
    """The number that digits (stride, size) of a position make, major to minor."""
    number = 0
    for stride, size in digits:
        number = number * size + position // stride % size
    return number


def _permuted(held, wanted):
    """Who sends its shard to whom: (sender, receiver), the same for those that keep theirs.

    held, wanted: the digits (stride, size) of a position that number the shards before and after.
    """
    ranks = range(DEVICES)
    have, want = ([_number(digits, rank) for rank in ranks] for digits in (held, wanted))
    away = [rank for rank in ranks if have[rank] != want[rank]]
    senders, receivers = (sorted(away, key=each.__getitem__) for each in (have, want))
    kept = [(rank, rank) for rank in ranks if have[rank] == want[rank]]
    return [*kept, *zip(senders, receivers, strict=True)]


def _exchange(x):
    """The target shard of this device from its source shard, inside shard_map."""
    # 1. all_to_all over "y":(2)2: [{"x"}, {"y"}] -> [{"x", "y":(2)2}, {"y":(1)2}]
    x = lax.all_to_all(x, "y:(2)2", split_axis=0, concat_axis=1, tiled=True)
    # 2. all_gather over "y":(1)2: [{"x", "y":(2)2}, {"y":(1)2}] -> [{"x", "y":(2)2}, {}]
    x = lax.all_gather(x, "y:(1)2", axis=1, tiled=True)
    # 3. permute over "x", "y": [{"x", "y":(2)2}, {}] -> [{"y"}, {}]
    y = lax.ppermute(x, AXES, _permuted(((4, 2), (1, 2)), ((1, 4),)))
    return y[None]


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
        return _exchange(shard)

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
    `interpret` and `collective_id`, which `pallas_tpu.py` takes, change nothing here. Under
    `jax.distributed` every process calls it, with an array of which it has its devices' shards
    (`jax.make_array_from_callback`).
    Under `jax.vmap` one exchange follows another. Raises ValueError for a wrong shape, dtype or
    mesh, TypeError for what is none.

    Differentiable, forward and backward: the cotangent of `x` is that of the result, moved back
    by `_reverse()`.
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
    # Its reverse, which gives the cotangent, may be among axes of its own.
    source = _refined(source, SOURCE_AXES, "source")
    target = _refined(target, TARGET_AXES, "target")
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
    """Moves numbered elements if they are few, else traces the program."""
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
