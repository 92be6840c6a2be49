"""Models on JAX devices. A model moves in units of equal tensors, or of equal pieces of tensors,
and the units in flight stay within a memory limit.

A unit moves tensors of one kind between the devices of both meshes, arranged in a row. Other
devices and their processes take no part.
"""

import collections
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from .jax_boxes import bits, of_bits, rounds_of
from .jax_units import Unit, needed
from .models import Moves, cut, flat, listed, within
from .progress_line import shown

MOST = 16  # the maximum number of tensors moved per program call, a power of two


class Weights:
    """The tensors of a model, to be moved between any devices; `data`: the contents of the model's
    JSON file (see `models`)."""

    def __init__(self, data):
        self.moves = Moves(data, padded=True)
        self.rounds, self.needed = functools.cache(self._rounds), functools.cache(self._needed)
        self.pieces, self.unit = functools.cache(self._pieces), functools.cache(self._unit)
        self._alike: dict = {}

    def source_shardings(self, devices=None):
        """Return the shape, dtype and sharding of each source buffer by name, as
        jax.ShapeDtypeStructs. `devices`: the devices for the plan's ids in ascending order; by
        default the first devices of JAX."""
        return self._structs(self._by_id(devices), 0)

    def target_shardings(self, devices=None):
        """Return the shape, dtype and sharding of each target buffer by name, as
        jax.ShapeDtypeStructs. `devices`: as in `source_shardings`."""
        return self._structs(self._by_id(devices), 1)

    def __call__(self, state, devices=None, *, progress=None, digest=False):
        """Return a dict of the target buffers by name, given the source buffers.

        `state`: arrays by name, possibly in nested dicts whose keys joined by dots are the names; a
        process needs only the arrays on its own devices. A buffer is one array, sharded as in
        `source_shardings`, that holds each device's part padded to the largest; padding is never
        read, and zero in results. `devices`: as in `source_shardings`. `progress`: a function
        called after each bucket with (bytes of messages done, total bytes, bucket number).
        `digest`: whether every tensor in a message carries a digest, which receivers check.

        Besides its buffers, a device holds at most the plan's `memory_limit` bytes, or one element
        of every message of a tensor if that is more. Raises ValueError for wrong names, shapes,
        dtypes or shardings before anything moves, and RuntimeError for a wrong digest.
        """
        if progress is not None and not callable(progress):
            raise ValueError(
                f"progress: got {progress!r}, expected a function of the bytes done, all bytes, "
                "and the number of the bucket"
            )
        by_id = self._by_id(devices)
        source, target = (self._structs(by_id, end) for end in (0, 1))
        given = _checked(state, source)
        progress = shown(progress, jax.process_index() == 0)
        return Call(self, by_id, given, target, bool(digest), progress).run()

    def _by_id(self, devices):
        """Return a dict of the devices by id. Raises ValueError for a wrong number of devices."""
        ids = self.moves.ranks
        found = jax.devices()[: len(ids)] if devices is None else [*devices]
        if len(found) != len(ids):
            raise ValueError(f"devices: got {len(found)}, expected {len(ids)}, for ids {ids}")
        return dict(zip(ids, found, strict=True))

    def _structs(self, by_id, end):
        """Return the shape, dtype and sharding of each source buffer (end 0) or target buffer (end
        1), by name."""
        alike: dict = {}
        found: dict = {}
        for member in self.moves.members:
            key = member.kind, (member.source_place, member.target_place)[end]
            if key not in alike:
                alike[key] = self.buffers(*key, by_id, end)
            found.update(zip((member.source, member.target)[end], alike[key], strict=True))
        return found

    def buffers(self, number, place, by_id, end):
        """Return the shape, dtype and sharding of each buffer of kind `number` at an end (0:
        source, 1: target). `place`: the index of the device list in `Moves.places`."""
        kind, found = self.moves.kinds[number], []
        axes = kind.axes[end]
        held = np.array([by_id[each] for each in self.moves.places[place]])
        mesh = Mesh(held.reshape([*axes.values()]), [*axes])
        buffers = (kind.source, kind.target)[end]
        for (_, (shape, *_)), spec in zip(buffers, kind.specs[end], strict=True):
            counts = (math.prod(axes[axis] for axis in each) for each in spec)
            whole = tuple(size * count for size, count in zip(shape, counts, strict=True))
            sharding = NamedSharding(mesh, P(*(tuple(each) or None for each in spec)))
            found.append(jax.ShapeDtypeStruct(whole, kind.dtype, sharding=sharding))
        return found

    def bytes(self, item):
        """Return the bytes that an item moves between devices."""
        member = self.moves.members[item.member]
        count = sum(
            moved.high - moved.low
            for device in self.moves.places[member.target_place]
            for moved in self.moves.of_device(device, item, 1)
            if moved.peer != device
        )
        return count * self.moves.kinds[member.kind].itemsize

    def alike(self, item):
        """Return the first item seen with the same kind, devices, turn and piece. Equal items
        thus share one program."""
        member = self.moves.members[item.member]
        return self._alike.setdefault((*member[:4], *item[1:]), item)

    def row(self, item):
        """Return the ids of the devices that take part in an item."""
        member = self.moves.members[item.member]
        return sorted(
            {*self.moves.places[member.source_place], *self.moves.places[member.target_place]}
        )

    def _relays(self, item):
        """Yield an item's relays as tuples: the index of the sender in the item's row, the index of
        the receiver, the form, and the first element in each buffer."""
        member, row = self.moves.members[item.member], self.row(item)
        for device in self.moves.places[member.target_place]:
            for moved in self.moves.of_device(device, item, 1):
                buffer, buffers, loops = self.moves.kinds[member.kind].forms[moved.form]
                boxes = within(moved.starts, tuple(map(tuple, loops)), moved.low, moved.high)
                for starts, nest in boxes:
                    form = buffer, tuple(buffers), tuple(nest)
                    yield row.index(moved.peer), row.index(device), form, *starts

    def _rounds(self, first):
        return rounds_of(self._relays(first), len(self.row(first)))

    def _needed(self, first, digest):
        kind = self.moves.kinds[self.moves.members[first.member].kind]
        return needed(kind, self.rounds(first), len(self.row(first)), digest)

    def units(self, bucket, digest):
        """Yield lists of equal items of a bucket, or of equal pieces of its items, each with the
        bytes that a device needs to move the list at once. If possible, that is at most half the
        limit, so that devices pack one list while another is in flight."""
        groups: dict = {}
        for item in bucket:
            for piece in cut(item, self.pieces(self.alike(item), digest)):
                groups.setdefault(self.alike(piece), []).append(piece)
        for first, items in groups.items():
            each = self.needed(first, digest)
            most = max(min(MOST, self.moves.limit // 2 // max(each, 1)), 1)
            while items and self.rounds(first):
                count = 1 << (min(most, len(items)).bit_length() - 1)
                yield items[:count], count * each
                items = items[count:]

    def _pieces(self, first, digest):
        """Return the smallest number of pieces found for which each piece of an item needs at most
        half the limit, or has one element of every message."""
        kind, half = self.moves.kinds[self.moves.members[first.member].kind], self.moves.limit // 2
        longest, count = max(map(kind.count, kind.relays), default=1) // first.pieces + 1, 1
        while True:
            most = max(self.needed(self.alike(each), digest) for each in cut(first, count))
            if most <= half or count >= longest:
                return count
            count = min(max(count + 1, -(-count * most // max(half, 1))), longest)

    def _unit(self, first, count, devices, digest):
        member, ids = self.moves.members[first.member], self.row(first)
        by_id = dict(zip(ids, devices, strict=True))
        structs = [
            self.buffers(member.kind, place, by_id, end)
            for end, place in enumerate((member.source_place, member.target_place))
        ]
        kind = self.moves.kinds[member.kind]
        return Unit(kind, self.rounds(first), count, devices, structs, digest)


class Call:
    """A call in progress: the source and target buffers by name, and the unfinished work."""

    def __init__(self, model, by_id, given, target, digest, progress):
        self.model, self.by_id, self.given, self.target = model, by_id, given, target
        self.digest, self.progress, self.made = digest, progress, {}
        self.held: collections.Counter = collections.Counter()  # bytes besides buffers, by device
        self.waiting: collections.deque = collections.deque()
        self.sizes = [sum(map(model.bytes, bucket)) for bucket in model.moves.buckets]

    def run(self):
        """Move all buckets and return the target buffers on devices of this process, by name."""
        for number, bucket in enumerate(self.model.moves.buckets):
            for items, size in self.model.units(bucket, self.digest):
                self.begin(items, size)
            self.waiting.append(functools.partial(self.tell, number))
        while self.waiting:
            self.waiting.popleft()()
        here = {name: x for name, x in self.target.items() if x.sharding.addressable_devices}
        return {name: _cast(self.buffer(name), struct) for name, struct in here.items()}

    def begin(self, items, size):
        """Start moving equal items as soon as every device has room for them. `size`: the bytes
        that the items need on a device."""
        model, ids = self.model, self.model.row(items[0])
        devices = tuple(self.by_id[each] for each in ids)
        if not any(each.process_index == jax.process_index() for each in devices):
            return
        while self.waiting and any(self.held[each] + size > model.moves.limit for each in ids):
            self.waiting.popleft()()
        self.held.update(dict.fromkeys(ids, size))
        members = [model.moves.members[item.member] for item in items]
        unit = model.unit(model.alike(items[0]), len(items), devices, self.digest)
        names = [name for member in members for name in member.target]
        sources = [self.given.get(name) for member in members for name in member.source]
        results, right, done = unit(sources, [self.buffer(name) for name in names])
        self.made.update(zip(names, results, strict=False))
        self.waiting.append(
            functools.partial(self.end, members, ids, size, unit.senders, right, done)
        )

    def buffer(self, name):
        """Return a target buffer as bits, zeros if nothing was written yet; None if this process
        has no device of the buffer."""
        struct = self.target[name]
        if name not in self.made and struct.sharding.addressable_devices:
            self.made[name] = _zeros(struct.shape, struct.dtype, struct.sharding)()
        return self.made.get(name)

    def end(self, members, ids, size, senders, right, done):
        """Wait until items have moved, then release the memory counted for them. Raises
        RuntimeError for a wrong digest."""
        jax.block_until_ready(done)
        self.held.subtract(dict.fromkeys(ids, size))
        wrong = [] if right is None else np.argwhere(~np.asarray(right)).tolist()
        for rank, place, item in wrong:
            if rank in senders[place]:  # other devices receive nothing in this round
                sent = f"the bytes that device {ids[senders[place][rank]]} sent"
                names = listed(members[item].target)
                raise RuntimeError(f"{names}: device {ids[rank]} did not receive {sent}")

    def tell(self, number):
        """Report that a bucket is done."""
        if self.progress is not None:
            self.progress(sum(self.sizes[: number + 1]), sum(self.sizes), number + 1)


@functools.cache
def _zeros(shape, dtype, sharding):
    like = jax.eval_shape(bits, jax.ShapeDtypeStruct((), dtype)).dtype
    return jax.jit(lambda: jnp.zeros(shape, like), out_shardings=sharding)


def _cast(x, struct):
    """Return an array of bits as an array of the dtype and sharding of `struct`, in the same
    memory."""
    if not x.size:  # XLA may shard an empty array differently
        empty = np.zeros(struct.shape, struct.dtype)
        return jax.make_array_from_callback(struct.shape, struct.sharding, empty.__getitem__)
    is_cpu = next(iter(struct.sharding.device_set)).platform == "cpu"
    if x.dtype != struct.dtype and not is_cpu:
        x = _caster(struct.dtype, struct.sharding)(x)
    shards = [shard.data for shard in x.addressable_shards]
    if x.dtype != struct.dtype:  # XLA copies on a CPU; numpy does not
        shards = [jax.device_put(np.asarray(y).view(struct.dtype), y.device) for y in shards]
    return jax.make_array_from_single_device_arrays(struct.shape, struct.sharding, shards)


@functools.cache
def _caster(dtype, sharding):
    cast = functools.partial(of_bits, dtype=dtype)
    return jax.jit(cast, donate_argnums=0, out_shardings=sharding)


def _checked(state, structs):
    """Return the arrays on this process's devices by name. Raise ValueError for wrong names,
    shapes, dtypes or shardings."""
    here = {name: struct for name, struct in structs.items() if struct.sharding.addressable_devices}
    found = {name: x for name, x in flat(state or {}) if x is not None}
    lacking, extra = [n for n in here if n not in found], [n for n in found if n not in structs]
    if lacking or extra:
        got = f"none for {listed(lacking)}" if lacking else f"unknown {listed(extra)}"
        raise ValueError(f"state: got {got}, expected an array for each source buffer")
    for name, struct in here.items():
        x = found[name]
        if isinstance(x, jax.core.Tracer) or not isinstance(x, jax.Array):
            got = "a traced array" if isinstance(x, jax.core.Tracer) else type(x).__name__
            raise ValueError(f"state, {name}: got {got}, expected a jax.Array, outside jit")
        if (x.shape, x.dtype) != (struct.shape, struct.dtype):
            got = f"{x.dtype}{[*x.shape]}"
            expected = f"{struct.dtype}{[*struct.shape]}"
            raise ValueError(f"state, {name}: got {got}, expected {expected}")
        if not x.sharding.is_equivalent_to(struct.sharding, x.ndim):
            raise ValueError(f"state, {name}: got {x.sharding}, expected {struct.sharding}")
    return {name: _placed(found[name], struct) for name, struct in here.items()}


def _placed(x, struct):
    """Return an array with the sharding of `struct`, which is equivalent to its own."""
    if x.sharding == struct.sharding:
        return x
    shards = [shard.data for shard in x.addressable_shards]
    return jax.make_array_from_single_device_arrays(x.shape, struct.sharding, shards)
