"""Move float32 x 2x64x16 from one stored layout to another.

The busiest device receives 2,048 bytes, the least possible.
No device sends over 2,048; all devices together receive 6,144.

Emitted by
    shardwright emit manifest.json --name zigzag_sequence  # in the parent folder
"""

import functools
import itertools
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
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

# _support/jax_boxes.py
"""Strided boxes of elements that devices in a row exchange in rounds.

Shards are flat arrays of bits. In a round each device sends and receives at most one message. A
message has a part for each of the round's forms. A form consists of the index of the source buffer,
the indices of the target buffers, and nested loops, outer to inner. A loop consists of its count
and its step in each buffer, source first.
"""


def rounds_of(relays, size):
    """Return a list of rounds. A round is a pair. Its first item is the forms of its messages,
    and whether the messages stay on their devices. Its second item is a dict from (sender,
    receiver) to the first element of each form in each buffer. `relays`: tuples (sender,
    receiver, form, first element in each buffer...); `size`: the number of devices."""
    messages: dict = {}
    for sender, receiver, form, *starts in relays:
        messages.setdefault((sender, receiver), []).append((form, starts))
    found: list = []
    for ends in sorted(messages, key=lambda ends: ((ends[1] - ends[0]) % size, ends)):
        kind = [form for form, _ in messages[ends]], ends[0] == ends[1]
        for alike, moves in found:
            if alike == kind and all(ends[0] != s and ends[1] != r for s, r in moves):
                break
        else:
            moves = {}
            found.append((kind, moves))
        moves[ends] = [starts for _, starts in messages[ends]]
    return found


def packed(shards, shapes, forms, moves, me, size):
    """Return a device's message in a round, read from its source shards: a flat array or, if the
    message has one part, that part in its own shape, which XLA sends without a copy. `shapes`: the
    source buffers' shapes."""
    reads, parts = starts_of(moves, len(forms), size)[0], []
    for place, (buffer, _, loops) in enumerate(forms):
        nest = [(times, step) for times, step, *_ in loops]
        parts.append(taken(shards[buffer], shapes[buffer], reads[:, place], me, nest))
    return parts[0] if len(parts) == 1 else jnp.concatenate([part.reshape(-1) for part in parts])


def unpacked(message, results, shapes, forms, moves, me, size):
    """Write the message that a device receives in a round into `results`, its target shards.
    `shapes`: the target buffers' shapes."""
    for number, (_, buffers, _) in enumerate(forms):
        for place in range(len(buffers)):
            written(message, results, shapes, forms, moves, me, size, (number, place))


def written(message, results, shapes, forms, moves, me, size, which, idle=()):
    """Write one part of a message into one target buffer; `which`: the index of the form, and the
    index of the buffer in the form. `idle`: the devices that do not run this program."""
    number, place = which
    begin = sum(math.prod(times for times, *_ in loops) for *_, loops in forms[:number])
    _, buffers, loops = forms[number]
    sizes, order = [times for times, *_ in loops], loop_order(loops, place)
    part = message.reshape(-1)[begin : begin + math.prod(sizes)].reshape(sizes).transpose(order)
    nest = [(loops[n][0], loops[n][2 + place]) for n in order]
    starts, buffer = starts_of(moves, len(forms), size)[1][number][:, place], buffers[place]
    takes = taking(moves, size, idle)
    results[buffer] = put(results[buffer], shapes[buffer], starts, me, nest, part, takes)


def loop_order(loops, place):
    """Return the indices of the loops in order of decreasing step in a target buffer."""
    return sorted(range(len(loops)), key=[-loop[2 + place] for loop in loops].__getitem__)


def taking(moves, size, idle):
    """Return a mask by device: whether the device receives a message in a round or is in `idle`."""
    return np.isin(np.arange(size), [*idle, *(receiver for _, receiver in moves)])


def starts_of(moves, count, size):
    """Return two arrays: the first element of each read, indexed [device, form], and the first
    element of each write, indexed [form, device, target buffer]. `count`: the number of forms;
    `size`: the number of devices."""
    reads = np.zeros((size, count), np.int32)
    most = max(len(starts) for each in moves.values() for starts in each) - 1
    writes = np.zeros((count, size, most), np.int32)
    for (sender, receiver), relays in moves.items():
        for place, (read, *written) in enumerate(relays):
            reads[sender, place] = read
            writes[place, receiver, : len(written)] = written
    return reads, writes


def taken(x, shape, starts, me, loops):
    """Return the elements of a flat array in the order in which the loops visit them. `loops`:
    pairs (count, step), outer to inner; `shape`: the buffer's shape; `starts`: the first element
    on each device."""
    box = box_seen(shape, starts, loops)
    if box is not None:
        shape, sizes, first = box
        return lax.dynamic_slice(x.reshape(shape), [*jnp.asarray(first)[me]], sizes)
    window = lax.dynamic_slice(x, (jnp.asarray(starts)[me],), (reach_of(loops),))
    for times, step in loops:
        rows = long(window, times * step)[..., : times * step]
        window = rows.reshape(*window.shape[:-1], times, step)
    return window[..., 0]


def put(y, shape, starts, me, loops, part, takes):
    """Return a flat array in which `part` replaces the elements that the loops visit, on devices
    where `takes` is true. `shape`: the buffer's shape; `starts`: the first element on each
    device."""
    box = box_seen(shape, starts, loops)
    if box is not None:
        shape, sizes, first = box
        index, whole, part = [*jnp.asarray(first)[me]], y.reshape(shape), part.reshape(sizes)
        if not takes.all():
            held = lax.dynamic_slice(whole, index, sizes)
            part = jnp.where(jnp.asarray(takes)[me], part, held)
        return lax.dynamic_update_slice(whole, part, index).reshape(-1)
    start = jnp.asarray(starts)[me]
    window = lax.dynamic_slice(y, (start,), (reach_of(loops),))
    window = jnp.where(jnp.asarray(takes)[me], _replaced(window, loops, part), window)
    return lax.dynamic_update_slice(y, window, (start,))


def box_seen(shape, starts, loops):
    """Return a shape of the buffer in which the elements that the loops visit form a box, the sizes
    of the box, and its first index on each device; None if no such shape is found, for instance if
    a row of a loop straddles rows of the buffer."""
    found = _box_of(shape, starts, loops)
    return _box_of((math.prod(shape),), starts, loops) if found is None else found


def _box_of(shape, starts, loops):
    dense = [math.prod(shape[dim + 1 :]) for dim in range(len(shape))]
    steps = sorted({1, *dense, *(step for _, step in loops)}, reverse=True)
    wholes = [math.prod(shape), *steps]
    if any(step < 1 or whole % step for whole, step in itertools.pairwise(wholes)):
        return None
    seen = [whole // step for whole, step in itertools.pairwise(wholes)]
    sizes = [1] * len(seen)
    for times, step in reversed(loops):
        dim, left = steps.index(step), times
        while left > seen[dim]:  # fill this dimension, and continue in the previous one
            if left % seen[dim] or sizes[dim] > 1 or dim == 0:
                return None
            sizes[dim], left, dim = seen[dim], left // seen[dim], dim - 1
        if sizes[dim] > 1:
            return None
        sizes[dim] = left
    first = np.stack(np.unravel_index(starts, seen), axis=-1).astype(np.int32)
    return (seen, sizes, first) if (first + sizes <= seen).all() else None


def _replaced(window, loops, part):
    if not loops:
        return jnp.concatenate([part[..., None], window[..., 1:]], axis=-1)
    (times, step), *inner = loops
    size, width = times * step, window.shape[-1]
    rows = long(window, size)
    first = rows[..., :size].reshape(*rows.shape[:-1], times, step)
    first = _replaced(first, inner, part).reshape(*rows.shape[:-1], size)
    return jnp.concatenate([first, rows[..., size:]], axis=-1)[..., :width]


def reach_of(loops):
    """Return the number of elements from the first to the last that the loops visit, inclusive."""
    return 1 + sum((times - 1) * step for times, step in loops)


def long(x, size):
    """Pad an array with zeros at the end of its last dimension to at least this size."""
    return jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, max(size - x.shape[-1], 0))])


def bits(x):
    """Return the elements as integers of the same width. Return complex arrays unchanged."""
    if x.dtype == jnp.bool_:
        return x.astype(jnp.int8)
    if jnp.iscomplexobj(x):
        return x
    return lax.bitcast_convert_type(x, f"int{8 * x.dtype.itemsize}")


def of_bits(x, dtype):
    """Reinterpret an array of integers as elements of `dtype`, which has the same width. Return
    an array of that dtype unchanged."""
    if x.dtype == dtype or dtype == "bool":
        return x.astype(dtype)
    return lax.bitcast_convert_type(x, dtype)


# _support/pallas_call.py
"""Calls of kernels: arrays in HBM, tables in SMEM, and the interpreter's threads."""

HBM = pl.BlockSpec(memory_space=pltpu.HBM)


class Call(NamedTuple):
    """The parameters of a program call. `order`: the table of ranks or moves that is a kernel's
    first argument, or None; `interpret`: False, True or `pltpu.InterpretParams`; `collective_id`:
    the collective id of the kernels."""

    order: Any
    interpret: Any
    collective_id: int | None

    def seen(self, kernel):
        """Return the kernel, with its first argument bound to None if there is no table."""
        return functools.partial(kernel, None) if self.order is None else kernel

    def run(self, kernel, *arrays, **settings):
        """Run a kernel on the table, if there is one, and on arrays in HBM; return its results."""
        specs = [HBM] * len(arrays)
        # A block spec tells only the kernel where an array is. Tell XLA too; otherwise it may place
        # the array elsewhere, and the kernel moves unrelated bytes of HBM.
        if not self.interpret:
            arrays = tuple(pltpu.with_memory_space_constraint(x, pltpu.HBM) for x in arrays)
        elif jax.sharding.get_abstract_mesh().size >= jax.local_device_count("cpu"):
            refuse_to_hang((arrays, settings["out_shape"], settings["scratch_shapes"]))
        if self.order is not None:
            arrays, specs = (self.order, *arrays), [in_smem(self.order), *specs]
        interpret = pltpu.InterpretParams() if self.interpret is True else self.interpret
        return pl.pallas_call(kernel, in_specs=specs, interpret=interpret, **settings)(*arrays)

    def pushed(self, kernel, x, shape, scratch, *beside, **more):
        """Run a kernel that sends array `x` and return an array of `shape` that it receives, both
        in HBM. `beside`: the shapes of its scratch arrays in HBM."""
        shapes = [pltpu.HBM(each, x.dtype) for each in (shape, *beside)]
        out = {"out_shape": shapes, "out_specs": [HBM] * len(shapes), "scratch_shapes": scratch}
        params = pltpu.CompilerParams(has_side_effects=True, collective_id=self.collective_id)
        return self.run(kernel, x, **out, compiler_params=params, **more)[0]


# _support/pallas_reach.py
"""The direct routes of a TPU v5e: a power of two of hops along one axis.

Source: JAX's guide to distributed Pallas kernels, "Routing".
"""

# If this environment variable is set, transfers that a v5e cannot send directly only cause a
# warning.
FAR = "SHARDWRIGHT_FAR_SENDS"


def is_v5e(devices):
    """Return whether devices are v5e chips, which send directly over some offsets only."""
    return all("v5 lite" in device.device_kind for device in devices)


def are_near(devices, sender, receiver):
    """Return, for each pair of ranks, whether they are a power of two of hops apart along one
    axis; `devices`: the devices by rank."""
    coords = np.array([device.coords for device in devices])
    hops = np.abs(coords[sender] - coords[receiver])
    # an axis of 16 wraps around
    hops = np.where(coords.max(axis=0) == 15, np.minimum(hops, 16 - hops), hops)
    return ((hops > 0).sum(axis=1) == 1) & ((hops & (hops - 1)) == 0).all(axis=1)


def refuse_far(near, advice):
    """Raise ValueError with `advice` if `near` is false for some pairs of devices; only warn if
    `FAR` is set."""
    if near.all():
        return
    far = (
        f"a v5e cannot send directly between {(~near).sum()} of the {near.size} pairs of devices "
        f"that exchange data: {advice}"
    )
    if not os.environ.get(FAR):
        raise ValueError(f"mesh: {far}; {FAR}=1 in the environment makes this a warning")
    warnings.warn(far, stacklevel=3)


# _support/pallas_tables.py
"""Tables that kernels read."""


def in_smem(table):
    """Return a block spec that holds a whole table in SMEM."""
    # The default index map returns 64-bit integers if JAX enables 64-bit types.
    start = (np.int32(0),) * table.ndim
    return pl.BlockSpec(table.shape, lambda *_: start, memory_space=pltpu.SMEM)


# _support/pallas_threads.py
"""Check that XLA has enough threads to interpret kernels."""

# XLA on CPU copies arrays of more bytes in a separate thread (kSmallDataTransferByteSize).
COPIED_AT_ONCE = 102400


def refuse_to_hang(held):
    """Raise ValueError if the interpreter would deadlock: each device occupies one of XLA's
    threads, and none remains to copy a large array. `held`: the arrays that one device holds."""
    devices, threads = jax.sharding.get_abstract_mesh().size, xla_threads()
    leaves = jax.tree.leaves(held)
    sized = (each for each in leaves if hasattr(getattr(each, "dtype", None), "itemsize"))
    largest = max(math.prod(each.shape) * each.dtype.itemsize for each in sized)
    if devices < threads or largest <= COPIED_AT_ONCE:
        return
    raise ValueError(
        f"interpret: got {threads} XLA threads for {devices} devices, but on arrays over 100 KiB "
        f"(here {largest} bytes) the interpreter hangs without a spare thread; set XLA_FLAGS="
        f"--xla_force_host_platform_device_count={devices + 1} before jax is imported"
    )


def xla_threads():
    """Return the number of XLA threads on this CPU: the number of JAX devices or, if larger,
    PJRT_NPROC, else NPROC, else the number of cores (DefaultThreadPoolSize in XLA)."""
    said = (os.environ.get(name, "") for name in ("PJRT_NPROC", "NPROC"))
    cores = next((int(each) for each in said if each.isdecimal()), None)
    if cores is None:
        has_affinity = hasattr(os, "sched_getaffinity")
        cores = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    return max(cores, jax.local_device_count("cpu"))


__all__ = ["RECEIVED", "reshard", "source_sharding", "target_sharding"]

DTYPE = "float32"
SOURCE_MESH = '<["cp"=4]>'
SOURCE_IDS = range(4)
# Each buffer's layout, the parts that each device stores in it, in order (ranges index
# the part as stored), and its shape on every device.
SOURCE = {
    "x": (
        'x[{}, {"cp"}]',
        # device 0: x[:, 0:16]
        # device 1: x[:, 16:32]
        # device 2: x[:, 32:48]
        # device 3: x[:, 48:64]
        [(2, 16, 16)] * 4,
    ),
}
TARGET_MESH = '<["cp"=4]>'
TARGET_IDS = range(4)
# Each buffer's layout, the parts that each device stores in it, in order (ranges index
# the part as stored), and its shape on every device.
TARGET = {
    "buffer": (
        'stack(1, x[{}, {"cp"} into(8)], x[{}, {"cp"} into(8) reversed])',
        # device 0: x[:, 0:8], x[:, 56:64]
        # device 1: x[:, 8:16], x[:, 48:56]
        # device 2: x[:, 16:24], x[:, 40:48]
        # device 3: x[:, 24:32], x[:, 32:40]
        [(2, 16, 16)] * 4,
    ),
}
# Forms of relays: the source buffer, the target buffers, and nested loops, each with its count and
# its step in each buffer, in elements, source first.
FORMS = [
    (0, (0,), ((2, 256, 256), (128, 1, 1))),
]
# Sender, receiver, form, and the first element in each buffer, source first; comments give
# the number of elements and their ranges in a tensor.
RELAYS = [
    (0, 0, 0, 0, 0),  # 256 of x[:, 0:8]
    (0, 1, 0, 128, 0),  # 256 of x[:, 8:16]
    (1, 2, 0, 0, 0),  # 256 of x[:, 16:24]
    (1, 3, 0, 128, 0),  # 256 of x[:, 24:32]
    (2, 2, 0, 128, 128),  # 256 of x[:, 40:48]
    (2, 3, 0, 0, 128),  # 256 of x[:, 32:40]
    (3, 0, 0, 128, 128),  # 256 of x[:, 56:64]
    (3, 1, 0, 0, 128),  # 256 of x[:, 48:56]
]
RECEIVED = 2048  # bytes received by the busiest device, the minimum
# Axes of the mesh, and the axes along which dimensions of each buffer are concatenated.
SOURCE_AXES = {"cp": 4}
SOURCE_SPECS = {
    "x": P(None, "cp", None),
}
# Axes of the mesh, and the axes along which dimensions of each buffer are concatenated.
TARGET_AXES = {"cp": 4}
TARGET_SPECS = {
    "buffer": P(None, "cp", None),
}
ONE_ORDER = tuple(SOURCE_IDS) == tuple(TARGET_IDS)
# Order of devices in a row: as the meshes list them, or by id if the meshes differ.
ORDER = SOURCE_IDS if ONE_ORDER else sorted({*SOURCE_IDS, *TARGET_IDS})
RANKS = {each: rank for rank, each in enumerate(ORDER)}
COLLECTIVE_ID = 704


def reshard(buffers, mesh, *, target_mesh=None, interpret=False, collective_id=None):
    """Return the target buffers, given the source buffers, as dicts of arrays by name.

    A buffer is one array, sharded as in `source_sharding(mesh)`, that holds each device's part
    padded to the largest. Padding is never read, and zero in results. `mesh.devices.flat[i]` is the
    device of SOURCE_IDS[i]; `target_mesh` defaults to the same devices in the same order. Usable
    under `jax.jit` if both meshes list the same devices in one order, and under `jax.grad`: the
    cotangent of an element is the sum of its copies' cotangents. In Pallas modules
    `interpret` is a bool or `pltpu.InterpretParams`, and `collective_id` replaces the module's own;
    plain JAX ignores both.

    Raises ValueError for wrong names, shapes, dtypes or axes.
    """
    if target_mesh is None:
        if not ONE_ORDER:
            raise ValueError(f"target_mesh: got None, expected a mesh with the axes {TARGET_AXES}")
        target_mesh = Mesh(mesh.devices.reshape([*TARGET_AXES.values()]), [*TARGET_AXES])
    meshes = _checked(mesh, SOURCE_AXES, "mesh"), _checked(target_mesh, TARGET_AXES, "target_mesh")
    _devices(*meshes)
    if buffers.keys() != SOURCE.keys():
        raise ValueError(f"buffers: got {[*buffers]}, expected {[*SOURCE]}")
    given = [buffers[name] for name in SOURCE]
    for name, x in zip(SOURCE, given, strict=True):
        shape = _global_shape(SOURCE[name], SOURCE_SPECS[name], SOURCE_AXES)
        if (tuple(x.shape), x.dtype) != (shape, DTYPE):
            raise ValueError(f"{name}: got {x.dtype}{[*x.shape]}, expected {DTYPE}{[*shape]}")
    if not interpret:
        check_routes(*meshes)
    if ONE_ORDER:
        specs = SOURCE_SPECS.values()
        given = [_untyped(x, meshes[0], spec) for x, spec in zip(given, specs, strict=True)]
    moved = _moved(given, *meshes, (interpret, collective_id))
    return dict(zip(TARGET, moved, strict=True))


def source_sharding(mesh):
    """Return the sharding of each buffer passed to `reshard`, by name."""
    return {name: NamedSharding(mesh, spec) for name, spec in SOURCE_SPECS.items()}


def target_sharding(mesh):
    """Return the sharding of each buffer returned by `reshard`, by name."""
    return {name: NamedSharding(mesh, spec) for name, spec in TARGET_SPECS.items()}


def exchanged(shards, how):
    """Return a device's target shards as flat arrays; `how`: `interpret` and the collective id, or
    None if the values need derivatives."""
    me, size = lax.axis_index("device"), len(RANKS)
    relays = ((RANKS[s], RANKS[r], FORMS[form], *starts) for s, r, form, *starts in RELAYS)
    every = rounds_of(relays, size)
    given, made = ([each[0] for _, each in side.values()] for side in (SOURCE, TARGET))
    messages = [packed(shards, given, forms, moves, me, size) for (forms, _), moves in every]
    pairs = [[] if stays else [*moves] for (_, stays), moves in every]
    messages = sent(messages, pairs, how)
    results = [jnp.zeros(max(math.prod(shape), 1), shards[0].dtype) for shape in made]
    for ((forms, _), moves), message in zip(every, messages, strict=True):
        unpacked(message, results, made, forms, moves, me, size)
    return results


def check_routes(mesh, target_mesh):
    """Raise ValueError if a v5e cannot send directly between devices that exchange."""
    by_id = dict(zip(SOURCE_IDS, mesh.devices.flat, strict=True))
    by_id |= dict(zip(TARGET_IDS, target_mesh.devices.flat, strict=True))
    devices = [by_id[each] for each in RANKS]
    ends = {(RANKS[s], RANKS[r]) for s, r, *_ in RELAYS if s != r}
    if ends and is_v5e(devices):
        near = are_near(devices, *np.transpose(sorted(ends)))
        refuse_far(near, "use the module jax_xla, which XLA routes itself")


def sent(messages, pairs, how):
    """Return the messages that a device receives, given the messages it sends, all in one kernel;
    `pairs`: (sender, receiver) in each round, empty if messages stay on their device."""
    going = [number for number, each in enumerate(pairs) if each]
    if not going:
        return messages
    if how is None:  # kernels have no derivative: XLA moves cotangents
        moves = zip(messages, pairs, strict=True)
        return [lax.ppermute(x, "device", each) if each else x for x, each in moves]
    interpret, collective_id = how
    ends = np.full((len(going), len(RANKS), 2), -1, np.int32)  # receiver, sender
    for place, number in enumerate(going):
        for sender, receiver in pairs[number]:
            ends[place, sender, 0], ends[place, receiver, 1] = receiver, sender
    blocks = [_blocks(messages[number]) for number in going]
    starts = np.cumsum([0, *map(len, blocks)]).tolist()
    ranges = list(zip(starts, map(len, blocks), strict=False))
    mine = jnp.asarray(ends)[:, lax.axis_index("device")].reshape(-1)
    call = Call(mine, interpret, COLLECTIVE_ID if collective_id is None else collective_id)
    x, scratch = jnp.concatenate(blocks), [pltpu.SemaphoreType.DMA] * 2
    y = call.pushed(functools.partial(push, ranges), x, x.shape, scratch)
    found = list(messages)
    for number, (begin, size) in zip(going, ranges, strict=True):
        found[number] = _message(y[begin : begin + size], messages[number])
    return found


def push(ranges, ends, x, y, sending, arriving):
    """Push this device's messages. ranges: their blocks (first, number); ends: for each message its
    receiver and the sender of the arriving one, -1 for none; x, y: messages leaving and arriving,
    in HBM; sending, arriving: DMA semaphores."""
    barrier = pltpu.get_barrier_semaphore()
    expected = jnp.int32(0)
    for number in range(len(ranges)):  # senders may write to this device from here on
        sender = ends[2 * number + 1]

        @pl.when(sender >= 0)
        def tell(sender=sender):
            logical = pl.DeviceIdType.LOGICAL
            pl.semaphore_signal(barrier, 1, device_id=sender, device_id_type=logical)

        expected += (ends[2 * number] >= 0).astype(jnp.int32)
    # 1 from each receiver of this device, once it has entered the kernel.
    pl.when(expected > 0)(lambda: pl.semaphore_wait(barrier, expected))
    copies = []
    for number, (begin, size) in enumerate(ranges):
        receiver, blocks = ends[2 * number], pl.ds(begin, size)
        copy = pltpu.make_async_remote_copy(
            x.at[blocks],
            y.at[blocks],
            sending,
            arriving,
            device_id=receiver,
            device_id_type=pl.DeviceIdType.LOGICAL,
        )
        pl.when(receiver >= 0)(copy.start)
        copies.append((receiver, copy))
    for receiver, copy in copies:
        pl.when(receiver >= 0)(copy.wait_send)  # the bytes of its message have left
    for number, (begin, size) in enumerate(ranges):
        place = y.at[pl.ds(begin, size)]
        comes = ends[2 * number + 1] >= 0
        # The bytes of the sender's message, signalled by its copy.
        pl.when(comes)(pltpu.make_async_copy(place, place, arriving).wait)


def _blocks(message):
    """Return a message as memory blocks, [blocks, rows, 128], of elements of at most 32 bits."""
    if jnp.iscomplexobj(message):
        message = jnp.stack([message.real, message.imag], axis=-1)
    elif message.dtype.itemsize == 8:
        message = lax.bitcast_convert_type(message, jnp.int32)
    rows, message = 32 // message.dtype.itemsize, message.reshape(-1)
    message = jnp.pad(message, (0, -message.size % (rows * 128)))
    return message.reshape(-1, rows, 128)


def _message(blocks, like):
    """Return the message in `blocks`, with the size and type of `like`."""
    if like.dtype.itemsize < 8:
        return blocks.reshape(-1)[: like.size]
    halves = blocks.reshape(-1)[: 2 * like.size].reshape(-1, 2)
    if jnp.iscomplexobj(like):
        return lax.complex(halves[:, 0], halves[:, 1])
    return lax.bitcast_convert_type(halves, like.dtype)


def _untyped(x, mesh, spec):
    """Return an array without the sharding that Explicit axes may have put into its type."""
    types = jax.typeof(x).sharding.mesh.axis_types
    explicit = isinstance(x, jax.core.Tracer) and AxisType.Explicit in types
    return jax.device_put(x, NamedSharding(mesh, spec)) if explicit else x


def _checked(mesh, axes, what):
    """Return the mesh with untyped axes. Raises ValueError for a mesh of different axes."""
    if dict(mesh.shape) != axes or tuple(mesh.shape) != tuple(axes):
        raise ValueError(f"{what}: got axes {dict(mesh.shape)}, expected {axes}")
    return Mesh(mesh.devices, mesh.axis_names)


def _devices(mesh, target_mesh):
    """Return the devices of both meshes by id. Raises ValueError unless each id has one device."""
    by_id = dict(zip(SOURCE_IDS, mesh.devices.flat, strict=True))
    ends = zip(TARGET_IDS, target_mesh.devices.flat, strict=True)
    wrong = [number for number, device in ends if by_id.setdefault(number, device) != device]
    if wrong or len({*by_id.values()}) < len(by_id):
        got = [device.id for device in target_mesh.devices.flat]
        raise ValueError(
            f"target_mesh: got devices {got}, expected, for the ids {[*TARGET_IDS]}, the devices that "
            f"mesh has for {[*SOURCE_IDS]}, and devices outside mesh for other ids"
        )
    return by_id


def _global_shape(buffer, spec, axes):
    _, (local, *_) = buffer
    counts = (math.prod(axes[name] for name in _names(each)) for each in spec)
    return tuple(size * count for size, count in zip(local, counts, strict=True))


def _names(entry):
    return () if entry is None else (entry,) if isinstance(entry, str) else entry


def _row(devices):
    return Mesh(np.array([*devices]).reshape(-1), ("device",))


def _mapped(function, mesh, in_specs, out_specs):
    return jax.shard_map(
        function, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False
    )


def _stacked(arrays, mesh, as_bits=True):
    """Return each device's part of each buffer as [devices, elements], of bits or of values."""

    def lines(*shards):
        given = map(bits, shards) if as_bits else shards
        return [long(shard.reshape(1, -1), 1) for shard in given]

    specs = tuple(SOURCE_SPECS.values())
    return _mapped(lines, mesh, specs, [P(mesh.axis_names)] * len(specs))(*arrays)


def _exchange(stacks, row, how):
    """Return flat target shards, given flat source shards, [devices, elements]."""

    def one(*stacks):
        return [y[None] for y in exchanged([stack[0] for stack in stacks], how)]

    sides = (P("device"),) * len(SOURCE), [P("device")] * len(TARGET)
    return _mapped(one, row, *sides)(*stacks)


def _parted(stacks, mesh):
    """Return the target buffers made of flat target shards."""

    def shards(*lines):
        shapes = [shapes[0] for _, shapes in TARGET.values()]
        pairs = zip(lines, shapes, strict=True)
        return [of_bits(x[0, : math.prod(shape)], DTYPE).reshape(shape) for x, shape in pairs]

    specs = [*TARGET_SPECS.values()]
    return _mapped(shards, mesh, (P(mesh.axis_names),) * len(specs), specs)(*stacks)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1, 2, 3))
def _moved(arrays, mesh, target_mesh, how):
    """Return the target buffers."""
    move = _within if ONE_ORDER else _between
    return move(arrays, mesh, target_mesh, how)


def _moved_back(mesh, target_mesh, how, _, cotangents):
    """Return the cotangents of the source buffers."""
    del how
    move = _within_back if ONE_ORDER else _between_back
    return (move(cotangents, mesh, target_mesh),)


_moved.defvjp(lambda *given: (_moved(*given), None), _moved_back)


def _within(arrays, mesh, target_mesh, how):
    """Return the target buffers in one program."""
    return _jitted(_in_one, target_mesh, (*TARGET_SPECS.values(),), mesh, how)(arrays)


def _in_one(arrays, target_mesh, mesh, how):
    row = _row(mesh.devices.flat)
    stacks = _stacked(arrays, mesh, as_bits=how is not None)
    return _parted(_exchange(stacks, row, how), target_mesh)


@functools.cache
def _jitted(stage, mesh, specs, *static):
    """Jit a stage, and set its result shardings, which XLA would otherwise choose."""
    shardings = [NamedSharding(mesh, spec) for spec in specs]
    return jax.jit(lambda arrays: stage(arrays, mesh, *static), out_shardings=shardings)


def _between(arrays, mesh, target_mesh, how):
    """Return the target buffers of concrete arrays, on meshes of different devices or orders."""
    union, target_row = _union(arrays, mesh, target_mesh), _row(target_mesh.devices.flat)
    stacks = _jitted(_stacked, mesh, _flat(SOURCE, mesh))(arrays)
    stacks = [_relabelled(stack, union) for stack in stacks]
    stacks = _jitted(_exchange, union, _flat(TARGET, union), how)(stacks)
    stacks = [_relabelled(stack, target_row) for stack in stacks]
    return _jitted(_parted, target_mesh, (*TARGET_SPECS.values(),))(stacks)


def _flat(side, mesh):
    """Return the specs of a side's flat shards."""
    return (P(mesh.axis_names),) * len(side)


def _union(arrays, mesh, target_mesh):
    """Return the devices of both meshes in a row. Raises ValueError for traced arrays."""
    if any(isinstance(x, jax.core.Tracer) for x in arrays):
        raise ValueError(
            "reshard: one jit cannot use both meshes: call reshard, and its jax.grad, outside jit"
        )
    by_id = _devices(mesh, target_mesh)
    return _row(by_id[each] for each in RANKS)


def _relabelled(stack, row):
    """Return a stack of shards reordered by the devices' places in a row."""
    held = {shard.device: shard.data for shard in stack.addressable_shards}
    for device in {*row.local_devices} - {*held}:  # in the target mesh only: never read
        held[device] = jnp.zeros((1, *stack.shape[1:]), stack.dtype, device=device)
    given = [held[device] for device in row.local_devices]
    shape, sharding = (row.size, *stack.shape[1:]), NamedSharding(row, P("device"))
    make = jax.make_array_from_single_device_arrays
    return make(shape, sharding, given, dtype=stack.dtype)


def _within_back(cotangents, mesh, target_mesh):
    """Return the cotangents of the source buffers: JAX transposes the linear exchange."""
    return _jitted(_in_one_back, mesh, (*SOURCE_SPECS.values(),), target_mesh)(cotangents)


def _in_one_back(cotangents, mesh, target_mesh):
    return _turned(lambda given: _in_one(given, target_mesh, mesh, None), _zeros(), cotangents)


def _between_back(cotangents, mesh, target_mesh):
    """Return the cotangents of the source buffers: the transposed stages, last first."""
    union, row = _union(cotangents, mesh, target_mesh), _row(mesh.devices.flat)
    stacks = _jitted(_parted_back, target_mesh, _flat(TARGET, target_mesh))(cotangents)
    stacks = [_relabelled(stack, union) for stack in stacks]
    stacks = _jitted(_exchange_back, union, _flat(SOURCE, union))(stacks)
    stacks = [_relabelled(stack, row) for stack in stacks]
    return _jitted(_stacked_back, mesh, (*SOURCE_SPECS.values(),))(stacks)


def _parted_back(cotangents, mesh):
    given = _flat_zeros(TARGET, mesh)
    return _turned(lambda stacks: _parted(stacks, mesh), given, cotangents)


def _exchange_back(cotangents, row):
    given = _flat_zeros(SOURCE, row)
    return _turned(lambda stacks: _exchange(stacks, row, None), given, cotangents)


def _stacked_back(cotangents, mesh):
    return _turned(lambda arrays: _stacked(arrays, mesh, as_bits=False), _zeros(), cotangents)


def _turned(stage, given, cotangents):
    """Return the cotangents of a linear stage's inputs, which have the shapes of `given`."""
    return jax.vjp(stage, given)[1](cotangents)[0]


def _zeros():
    """Return source buffers of zeros."""
    sides = zip(SOURCE.values(), SOURCE_SPECS.values(), strict=True)
    return [jnp.zeros(_global_shape(buffer, spec, SOURCE_AXES), DTYPE) for buffer, spec in sides]


def _flat_zeros(side, mesh):
    """Return flat shards of zeros, [devices, elements], for each buffer of a side."""
    sizes = (max(math.prod(shapes[0]), 1) for _, shapes in side.values())
    return [jnp.zeros((mesh.size, size), DTYPE) for size in sizes]


if __name__ == "__main__":
    import sys

    print("this module has no self-check: run `shardwright verify FOLDER`", file=sys.stderr)
    sys.exit(2)
