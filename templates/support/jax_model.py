"""Models on JAX devices: one program for each kind and row of devices, in buckets.

A program moves tensors of one kind between the devices of both meshes, arranged in a row. Other
devices and their processes take no part.
"""

import collections
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from .jax_boxes import bits, long, of_bits, packed, rounds_of, unpacked
from .jax_digest import checked_of, with_digest
from .models import Moves, flat, listed, within
from .progress_line import shown

MOST = 16  # tensors moved per program call, a power of two


class Weights:
    """Tensors of a model on any devices; `data`: as in `Moves`."""

    def __init__(self, data):
        self.moves = Moves(data, padded=True)
        self.program = functools.cache(self._program)
        self._alike: dict = {}

    def source_shardings(self, devices=None):
        """Return the shape, dtype and sharding of each source buffer by name, as
        jax.ShapeDtypeStructs. `devices` have the plan's ids in ascending order; by default the
        first devices of JAX."""
        return self._structs(self._by_id(devices), 0)

    def target_shardings(self, devices=None):
        """Return the same for each target buffer."""
        return self._structs(self._by_id(devices), 1)

    def __call__(self, state, devices=None, *, progress=None, digest=False):
        """Return the target buffers, by name, of source buffers.

        `state`: arrays by name, possibly in nested dicts whose keys joined by dots are the names;
        only those on devices of this process. A buffer is one array, sharded as in
        `source_shardings`, that holds each device's part padded to the largest; padding is never
        read, and zero in results. `devices`: as in `source_shardings`. `progress`: called as (bytes
        of messages done, bytes in all, number of the bucket) after each bucket. `digest`: every
        tensor in a message carries a digest, which receivers check.

        At most two buckets are in flight. Raises ValueError for wrong names,
        shapes, dtypes or shardings before anything moves, and RuntimeError for a wrong digest.
        """
        by_id = self._by_id(devices)
        call = _Call(self, by_id, _checked(state, self._structs(by_id, 0)), bool(digest))
        sizes = [sum(map(self._bytes, bucket)) for bucket in self.moves.buckets]
        progress = shown(progress, jax.process_index() == 0)
        done, waiting = 0, collections.deque()  # type: ignore[var-annotated]

        def finish():
            number, calls = waiting.popleft()
            call.finish(calls)
            nonlocal done
            done += sizes[number]
            if progress is not None:
                progress(done, sum(sizes), number + 1)

        for number, bucket in enumerate(self.moves.buckets):
            if len(waiting) == 2:
                finish()
            waiting.append((number, call.begin(bucket)))
        while waiting:
            finish()
        return call.arrays(self._structs(by_id, 1))

    def _by_id(self, devices):
        """Return devices by id. Raises ValueError if there are too few."""
        ids = self.moves.ranks
        found = jax.devices()[: len(ids)] if devices is None else [*devices]
        if len(found) != len(ids):
            raise ValueError(f"devices: got {len(found)}, expected {len(ids)}, for ids {ids}")
        return dict(zip(ids, found, strict=True))

    def _structs(self, by_id, end):
        """Return the shape, dtype and sharding of each buffer at an end, by name."""
        found = {}
        for member in self.moves.members:
            kind = self.moves.kinds[member.kind]
            names, buffers, place = (
                (member.target, kind.target, member.target_place)
                if end
                else (member.source, kind.source, member.source_place)
            )
            axes = kind.axes[end]
            held = np.array([by_id[each] for each in self.moves.places[place]])
            mesh = Mesh(held.reshape([*axes.values()]), [*axes])
            for name, (_, (shape, *_)), spec in zip(names, buffers, kind.specs[end], strict=True):
                counts = (math.prod(axes[axis] for axis in each) for each in spec)
                whole = tuple(size * count for size, count in zip(shape, counts, strict=True))
                sharding = NamedSharding(mesh, P(*(tuple(each) or None for each in spec)))
                found[name] = jax.ShapeDtypeStruct(whole, kind.dtype, sharding=sharding)
        return found

    def _bytes(self, item):
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
        """Return the first item seen with the same kind, devices and piece."""
        member = self.moves.members[item.member]
        return self._alike.setdefault((*member[:4], *item[1:]), item)

    def row(self, item):
        """Return the ids of the devices that take part in an item."""
        member = self.moves.members[item.member]
        return sorted(
            {*self.moves.places[member.source_place], *self.moves.places[member.target_place]}
        )

    def _relays(self, item):
        """Yield an item's relays between places in its row."""
        member, row = self.moves.members[item.member], self.row(item)
        for device in self.moves.places[member.target_place]:
            for moved in self.moves.of_device(device, item, 1):
                buffer, buffers, loops = self.moves.kinds[member.kind].forms[moved.form]
                boxes = within(moved.starts, tuple(map(tuple, loops)), moved.low, moved.high)
                for starts, nest in boxes:
                    form = buffer, tuple(buffers), tuple(nest)
                    yield row.index(moved.peer), row.index(device), form, *starts

    def _program(self, item, count, devices, digest):
        """Return the program that moves `count` items, the sender of each receiver by round, and
        the row. The program takes the source and target buffers of all items, one shard per device
        of the row, and returns the target buffers, whose memory it reuses, and whether digests are
        right, by device, round and item."""
        kind = self.moves.kinds[self.moves.members[item.member].kind]
        rounds = rounds_of(self._relays(item), len(devices))
        sources, targets = len(kind.source), len(kind.target)
        held, made = ([shape for _, (shape, *_) in end] for end in (kind.source, kind.target))
        shapes = made * count

        def one(*shards):
            me = lax.axis_index("device")
            lines = [long(bits(x).reshape(-1), 1) for x in shards]
            given, results = lines[: sources * count], lines[sources * count :]
            right = []
            for (forms, stays), moves in rounds:
                parts = [
                    packed(given[first : first + sources], held, forms, moves, me, len(devices))
                    for first in range(0, len(given), sources)
                ]
                parts = [part.reshape(-1) for part in parts]
                if not stays:
                    parts = [with_digest(part) for part in parts] if digest else parts
                    message = lax.ppermute(jnp.concatenate(parts), "device", [*moves])
                    parts = jnp.split(message, count)
                    if digest:
                        checked = [checked_of(part) for part in parts]
                        parts = [part for part, _ in checked]
                        right.append(jnp.stack([same for _, same in checked]))
                for place, part in enumerate(parts):
                    own = results[targets * place : targets * (place + 1)]
                    unpacked(part, own, made, forms, moves, me, len(devices))
                    results[targets * place : targets * (place + 1)] = own
            found = [
                of_bits(y[: math.prod(shape)], kind.dtype).reshape(shape or (1,))
                for y, shape in zip(results, shapes, strict=True)
            ]
            told = jnp.stack(right) if right else jnp.ones((1, count), bool)
            return found, lax.all_gather(told, "device")

        row = Mesh(np.array(devices), ("device",))
        every, out = (P("device"),) * (sources + targets) * count, [P("device")] * targets * count
        mapped = jax.shard_map(one, mesh=row, in_specs=every, out_specs=(out, P()), check_vma=False)
        donated = range(sources * count, len(every))
        pairs = [{r: s for s, r in moves} for (_, stays), moves in rounds if not stays]
        return jax.jit(mapped, donate_argnums=tuple(donated)), pairs, row


class _Call:
    """A call: the buffers of each device before and after, by name."""

    def __init__(self, model, by_id, given, digest):
        self.model, self.by_id, self.digest = model, by_id, digest
        self.given = {
            name: {shard.device: shard.data for shard in x.addressable_shards}
            for name, x in given.items()
        }
        self.results: dict = {}

    def begin(self, bucket):
        """Call the programs of a bucket; return the handle for `finish`."""
        groups: dict = {}
        for item in bucket:
            groups.setdefault(self.model.alike(item), []).append(item)
        said = []
        for first, items in groups.items():
            while items:
                count = min(MOST, 1 << (len(items).bit_length() - 1))
                said.append(self._moved(first, items[:count]))
                items = items[count:]
        return [each for each in said if each is not None]

    def _moved(self, first, items):
        """Move equal items; return the names, the ids of devices, the sender of each receiver by
        round, and whether digests are right."""
        model, moves = self.model, self.model.moves
        ids = model.row(first)
        devices = tuple(self.by_id[each] for each in ids)
        here = [each for each in devices if each.process_index == jax.process_index()]
        if not here:
            return None
        program, pairs, row = model.program(first, len(items), devices, self.digest)
        members = [moves.members[item.member] for item in items]
        kind = moves.kinds[members[0].kind]
        stack = functools.partial(_stacked, row, here, kind.dtype)
        sources = [
            stack(self.given[name], shape)
            for member in members
            for name, (_, (shape, *_)) in zip(member.source, kind.source, strict=True)
        ]
        names = [name for member in members for name in member.target]
        shapes = [shape for _, (shape, *_) in kind.target] * len(items)
        targets = [
            stack(self.results.get(name, {}), shape)
            for name, shape in zip(names, shapes, strict=True)
        ]
        own = {self.by_id[each] for each in moves.places[members[0].target_place]}
        results, right = program(*sources, *targets)
        for name, y in zip(names, results, strict=True):
            held = {shard.device: shard.data for shard in y.addressable_shards}
            self.results.setdefault(name, {}).update((d, x) for d, x in held.items() if d in own)
        said = [listed(member.target) for member in members]
        return said, ids, pairs, right

    def finish(self, calls):
        """Wait for programs. Raises RuntimeError for a wrong digest."""
        for names, ids, pairs, right in calls:
            for rank, place, item in np.argwhere(~np.asarray(right)).tolist():
                if rank in pairs[place]:  # other devices receive nothing in this round
                    ends = f"from device {ids[pairs[place][rank]]} to device {ids[rank]}"
                    raise RuntimeError(f"{names[item]}: other bytes came {ends} than were sent")

    def arrays(self, structs):
        """Return the target buffers on devices of this process."""
        found = {}
        for name, struct in structs.items():
            sharding, local = struct.sharding, struct.sharding.shard_shape(struct.shape)
            here = [x for x in sharding.mesh.devices.flat if x in self.results.get(name, {})]
            if here:
                shards = [_shaped(self.results[name][device], local) for device in here]
                make = jax.make_array_from_single_device_arrays
                found[name] = make(struct.shape, sharding, shards, dtype=struct.dtype)
        return found


def _stacked(row, here, dtype, held, shape):
    """Return the buffers of a row's devices as one array, with zeros for missing ones."""
    shape = tuple(shape) or (1,)
    shards = [
        _shaped(held[device], shape) if device in held else jnp.zeros(shape, dtype, device=device)
        for device in here
    ]
    whole, sharding = (row.size * shape[0], *shape[1:]), NamedSharding(row, P("device"))
    return jax.make_array_from_single_device_arrays(whole, sharding, shards, dtype=dtype)


def _shaped(x, shape):
    return x if x.shape == shape else x.reshape(shape)


def _checked(state, structs):
    """Return the arrays on devices of this process, by name, checked."""
    here = {name: struct for name, struct in structs.items() if struct.sharding.addressable_devices}
    found = {name: x for name, x in flat(state or {}) if x is not None}
    lacking, extra = [n for n in here if n not in found], [n for n in found if n not in structs]
    if lacking or extra:
        got = f"none for {listed(lacking)}" if lacking else f"more: {listed(extra)}"
        raise ValueError(f"state: got {got}, expected an array for each source buffer")
    for name, struct in here.items():
        x = found[name]
        if isinstance(x, jax.core.Tracer) or not isinstance(x, jax.Array):
            got = "a traced array" if isinstance(x, jax.core.Tracer) else type(x).__name__
            raise ValueError(f"state, {name}: got {got}, expected a jax.Array, outside of jit")
        if (x.shape, x.dtype) != (struct.shape, struct.dtype):
            got = f"{x.dtype}{[*x.shape]}"
            expected = f"{struct.dtype}{[*struct.shape]}"
            raise ValueError(f"state, {name}: got {got}, expected {expected}")
        if not x.sharding.is_equivalent_to(struct.sharding, x.ndim):
            raise ValueError(f"state, {name}: got {x.sharding}, expected {struct.sharding}")
    return {name: found[name] for name in here}
