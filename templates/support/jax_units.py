"""Programs that move equal tensors of a model, or equal pieces of them, between JAX devices.

Source devices pack a line for each round, all devices exchange the lines, and target devices write
them into their buffers in place. Besides its buffers, a device holds only these lines and the
elements that it is rearranging.
"""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from .jax_boxes import (
    bits,
    box_seen,
    long,
    loop_order,
    packed,
    reach_of,
    starts_of,
    taking,
    written,
)
from .jax_digest import checked_of, with_digest, words


def needed(kind, rounds, size, digest):
    """Return an upper bound on the bytes that a device holds for a tensor besides its buffers,
    summed over the rounds. In each round it holds its line before and after the exchange, and the
    elements that it rearranges. Digests add the 4-byte words that senders and receivers hash.
    `size`: the number of devices."""
    shapes, total = _shapes(kind.target), 0
    for (forms, stays), moves in rounds:
        line = _length(kind, forms, digest and not stays)
        between = sum(_reads(shapes, forms, moves, size, which)[0] for which in _parts(forms))
        total += (line * (2 if stays else 3) + 3 * between) * kind.itemsize
        total += 8 * line * (digest and not stays)
    return total


class Unit:
    """The programs that move `count` equal tensors of a kind. `row`: the devices that senders and
    receivers in `rounds` index; `structs`: the source and the target buffers of one tensor."""

    def __init__(self, kind, rounds, count, row, structs, digest):
        self.kind, self.rounds, self.count, self.digest = kind, rounds, count, digest
        self.row = Mesh(np.array(row), ("device",))
        self.source, self.target = meshes = [end[0].sharding.mesh for end in structs]
        self.places = [[row.index(each) for each in mesh.devices.flat] for mesh in meshes]
        self.senders = [{r: s for s, r in moves} for (_, stays), moves in rounds if not stays]
        held, made = ([x.sharding.spec for x in end] * count for end in structs)
        line, leave, arrive = P("device"), *(P(mesh.axis_names) for mesh in meshes)
        over = functools.partial(jax.shard_map, check_vma=False)
        pack = over(self._pack, mesh=self.source, in_specs=(held,), out_specs=leave)
        exchange = over(self._exchange, mesh=self.row, in_specs=line, out_specs=(line, P()))
        self.pack, self.exchange = jax.jit(pack), jax.jit(exchange)
        self.idle = [place for place in range(len(row)) if place not in self.places[1]]
        self.unpacks = []
        for writes in self._writes():
            unpack = functools.partial(self._unpack, writes)
            unpack = over(
                unpack, mesh=self.target, in_specs=(arrive, made), out_specs=(made, arrive)
            )
            self.unpacks.append(([n for n, _ in writes], jax.jit(unpack, donate_argnums=1)))
        self.blank = self._blank([each for each in row if each not in {*self.source.devices.flat}])

    def __call__(self, sources, targets):
        """Return three values: the written target buffers, none if this process has no target
        device; whether digests are correct, indexed [device, round, tensor], or None without
        digests; and an array that is ready when all work is done. Buffers are global arrays;
        target buffers are arrays of bits."""
        own = [self.pack(sources)] if _is_here(self.source) else []
        lines = [*zip(*own, *self.blank(), strict=True)]
        arrived, right = lines, None
        moving = [n for n, ((_, stays), _) in enumerate(self.rounds) if not stays]
        if moving:
            sent = [_joined(self.row, lines[n]) for n in moving]
            arrived, right = self.exchange(sent)
            for number, line in zip(moving, arrived, strict=True):
                lines[number] = (line,)
        if not _is_here(self.target):
            return [], right, arrived
        lines = [_joined(self.target, line) for line in lines]
        for numbers, unpack in self.unpacks:
            targets, told = unpack([lines[number] for number in numbers], targets)
        return targets, right, told

    def _pack(self, sources):
        """Return a source device's line for each round."""
        me, shapes = self._me(0), _shapes(self.kind.source)
        flat = [long(bits(x).reshape(-1), 1) for x in sources]
        every = [flat[first : first + len(shapes)] for first in range(0, len(flat), len(shapes))]
        found = []
        for (forms, stays), moves in self.rounds:
            parts = [packed(each, shapes, forms, moves, me, self.row.size) for each in every]
            parts = [part.reshape(-1) for part in parts]
            parts = [with_digest(part) for part in parts] if self._digests(stays) else parts
            found.append(jnp.concatenate(parts))
        return found

    def _exchange(self, lines):
        """Return the lines that a device receives, and whether digests are correct on all
        devices (None without digests)."""
        moves = [moves for (_, stays), moves in self.rounds if not stays]
        found = [
            lax.ppermute(line, "device", [*each]) for line, each in zip(lines, moves, strict=True)
        ]
        if not self.digest:
            return found, None
        parts = (jnp.split(line, self.count) for line in found)
        right = [jnp.stack([checked_of(part)[1] for part in each]) for each in parts]
        return found, lax.all_gather(jnp.stack(right), "device")

    def _writes(self):
        """Return the writes of each unpacking program, as pairs of a round and the indices of a
        form and a target buffer. XLA copies a buffer if a program reads it between writes, so a
        write that also reads comes first in its program."""
        shapes, found = _shapes(self.kind.target), []  # type: ignore[var-annotated]
        for number, ((forms, _), moves) in enumerate(self.rounds):
            for which in _parts(forms):
                if not found or _reads(shapes, forms, moves, self.row.size, which, self.idle)[1]:
                    found.append([])
                found[-1].append((number, which))
        return found

    def _unpack(self, writes, lines, targets):
        """Return a target device's written buffers, and a value to wait for."""
        me, shapes = self._me(1), _shapes(self.kind.target)
        flat = [long(y.reshape(-1), 1) for y in targets]
        every = [flat[first : first + len(shapes)] for first in range(0, len(flat), len(shapes))]
        for (number, which), line in zip(writes, lines, strict=True):
            (forms, stays), moves = self.rounds[number]
            for part, own in zip(jnp.split(line, self.count), every, strict=True):
                part = checked_of(part)[0] if self._digests(stays) else part
                given = part, own, shapes, forms, moves, me, self.row.size
                written(*given, which, self.idle)
        flat = [y for own in every for y in own]
        found = [y[: x.size].reshape(x.shape) for y, x in zip(flat, targets, strict=True)]
        return found, jnp.zeros(1)

    def _me(self, end):
        """Return this device's place in the row; `end`: 0 on source devices, 1 on target
        devices."""
        mesh = (self.source, self.target)[end]
        return jnp.asarray(self.places[end])[lax.axis_index(mesh.axis_names)]

    def _digests(self, stays):
        return self.digest and not stays

    def _blank(self, devices):
        """Return a function that returns lines of zeros, for devices that send nothing."""
        if not any(device.process_index == jax.process_index() for device in devices):
            return list
        mesh = Mesh(np.array(devices), ("device",))
        sizes = [
            self.count * len(devices) * _length(self.kind, forms, self._digests(stays))
            for (forms, stays), _ in self.rounds
        ]
        like = jax.eval_shape(bits, jax.ShapeDtypeStruct((), self.kind.dtype)).dtype
        zeros = jax.jit(
            lambda: [jnp.zeros(size, like) for size in sizes],
            out_shardings=NamedSharding(mesh, P("device")),
        )
        return lambda: [zeros()]


def _reads(shapes, forms, moves, size, which, idle=()):
    """Return the number of elements that a write reads because the elements that it writes are
    not a box, and whether it reads any elements at all. For the arguments see `written`."""
    number, place = which
    _, buffers, loops = forms[number]
    nest = [(loops[n][0], loops[n][2 + place]) for n in loop_order(loops, place)]
    starts = starts_of(moves, len(forms), size)[1][number][:, place]
    box = box_seen(shapes[buffers[place]], starts, nest)
    return (0 if box else reach_of(nest)), not (box and taking(moves, size, idle).all())


def _shapes(end):
    return [tuple(shape) for _, (shape, *_) in end]


def _parts(forms):
    return [(n, place) for n, (_, buffers, _) in enumerate(forms) for place in range(len(buffers))]


def _length(kind, forms, digest):
    """Return the number of elements that a tensor and its digest take in a line."""
    elements = sum(math.prod(times for times, *_ in loops) for *_, loops in forms)
    return elements + words(kind.itemsize) * digest


def _is_here(mesh):
    return any(each.process_index == jax.process_index() for each in mesh.devices.flat)


def _joined(mesh, arrays):
    """Join arrays on the devices of a mesh into one array without copying: they become its
    shards."""
    held = {shard.device: shard.data for x in arrays for shard in x.addressable_shards}
    shards = [held[device] for device in mesh.devices.flat if device in held]
    shape, sharding = (mesh.size * len(shards[0]),), NamedSharding(mesh, P(mesh.axis_names))
    return jax.make_array_from_single_device_arrays(shape, sharding, shards)
