"""Reductions in which partial results move around rings: the code around the module's kernel. The
kernel passes partial results from device to device, and every device combines them with its own
term.

A ring runs along a digit of the device's position; each ring works on the result of the previous
one. Both directions are used at once, each for half of every part.
"""

import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental.pallas import tpu as pltpu

from .pallas_peers import div, is_traced, rem
from .pallas_program import PallasProgram

LANES = 128
COMBINED = {"sum": jnp.add, "max": jnp.maximum, "min": jnp.minimum}


class Round(NamedTuple):
    """A ring along the digit of a position with this stride and size. `folded`: whether it visits
    even coordinates upwards, then odd coordinates downwards, for an axis whose ends are not
    linked."""

    stride: int
    size: int
    folded: bool = False

    def coordinate(self, place):
        """Return the coordinate at a place of the ring."""
        if not self.folded:
            return place
        return either(2 * place < self.size, 2 * place, 2 * (self.size - place) - 1)

    def place(self, position):
        """Return the place in the ring of the device at a position."""
        own = rem(div(position, self.stride), self.size)
        if not self.folded:
            return own
        return either(rem(own, 2) == 0, div(own, 2), self.size - div(own + 1, 2))

    def neighbours(self, position):
        """Return the next and the previous position in the ring, the receivers of the upward and
        the downward direction."""
        place, own = self.place(position), rem(div(position, self.stride), self.size)
        others = (self.coordinate(rem(place + by, self.size)) for by in (1, self.size - 1))
        return [position + (other - own) * self.stride for other in others]


def either(condition, one, other):
    """Return `one` if the condition holds, else `other`. Both are integers."""
    if is_traced(condition):
        return jnp.where(condition, one, other)
    return one if condition else other


class Ring(PallasProgram):
    """A program that reduces terms; each part of a shard ends on the device that keeps it.
    `kernel`: see `carried`; `rounds`: the rings in sequence; `terms`: the `Terms` to reduce;
    `rows`, `chunks`: half of a part consists of `chunks` chunks of `rows` memory rows."""

    form = "ring"

    def __init__(self, kernel, rounds, terms, rows, chunks, collective_id, powers_of_two=False):
        self.kernel, self.rounds, self.terms = kernel, rounds, terms
        self.rows, self.chunks, self.collective_id = rows, chunks, collective_id
        self.powers_of_two, self.carriers = powers_of_two, (self,)
        self.parts = math.prod(turn.size for turn in rounds)

    def attach(self, host):
        """Bind to the host of a reshard."""
        super().attach(host)
        self.rank = len(host.shape)
        self.given, self.part = host.source.local[-self.rank :], host.target.local[-self.rank :]

    @property
    def half(self):
        """Return the number of elements of a part that move upwards; the others move downwards."""
        return self.chunks * self.rows * LANES

    @property
    def held(self):
        """Return the number of chunks per direction on a device after each ring."""
        sizes = [turn.size for turn in self.rounds]
        return [self.chunks * math.prod(sizes[number + 1 :]) for number in range(len(sizes))]

    def starts(self):
        """Return the start in a source shard of each part, by the places in the rings of the device
        that keeps the part."""
        found = []
        for places in np.ndindex(*(turn.size for turn in self.rounds)):
            pairs = zip(self.rounds, places, strict=True)
            position = sum(int(turn.coordinate(place)) * turn.stride for turn, place in pairs)
            ends = (side.box(position) for side in (self.host.source, self.host.target))
            before, after = (box[-2 * self.rank :: 2] for box in ends)
            found.append([low - start for low, start in zip(after, before, strict=True)])
        return found

    def pairs(self):
        """Return the ranks of senders and receivers as arrays."""
        ranks = range(len(self.host.source.ids))
        ends = [(a, int(b)) for a in ranks for turn in self.rounds for b in turn.neighbours(a)]
        return np.array(ends, int).T

    def fault(self):
        """Return the first fault: a device keeps a part that rings deliver elsewhere, or the parts
        do not cover the shard; "" if there is none."""
        starts, sides = self.starts(), (self.host.source, self.host.target)
        if len({*map(tuple, starts)}) * math.prod(self.part) != math.prod(self.given):
            return f"parts at {starts} do not make up a shard"
        for position in range(len(sides[0].ids)):
            number = 0
            for turn in self.rounds:
                number = number * turn.size + turn.place(position)
            before, after = (side.box(position)[-2 * self.rank :: 2] for side in sides)
            if [low - start for low, start in zip(after, before, strict=True)] != starts[number]:
                return f"device {sides[0].ids[position]} keeps a part that rings do not bring to it"
        return ""

    def carried(self, shard, call):
        """Return this device's reduced part. The kernel takes the array that `_packed` returns; the
        last chunks of its result are the part."""
        dtype = self.host.dtype
        wide = jnp.float32 if jnp.issubdtype(dtype, jnp.floating) else jnp.int32
        x = self._packed(shard.reshape(self.given).astype(wide))
        y = self._ran(call, x)[:, -self.chunks :].reshape(-1)[: math.prod(self.part)]
        return y.astype(dtype).reshape(self.host.target.local)

    def _packed(self, x):
        """Return the parts of a shard as [direction, chunks of all parts, rows, lanes]."""
        starts = jnp.array(self.starts(), jnp.int32)
        parts = lax.map(lambda start: lax.dynamic_slice(x, start, self.part), starts)
        flat = parts.reshape(self.parts, -1)
        flat = jnp.pad(flat, [(0, 0), (0, 2 * self.half - flat.shape[1])])
        halves = flat.reshape(self.parts, 2, self.chunks, self.rows, LANES)
        return jnp.moveaxis(halves, 1, 0).reshape(2, -1, self.rows, LANES)

    def _ran(self, call, x):
        dma, two = pltpu.SemaphoreType.DMA((2, 2)), (2, 2, self.rows, LANES)
        free = pltpu.SemaphoreType.REGULAR((len(self.rounds), 2))
        return call.pushed(
            self.kernel,
            x,
            (2, sum(self.held), self.rows, LANES),
            [*[pltpu.VMEM(two, x.dtype)] * 3, dma, dma, dma, free],
        )


def put(into, operator, *values):
    """Combine values in VMEM by an operator, in order, and write the result to `into`."""
    total = values[0][...]
    for value in values[1:]:
        total = COMBINED[operator](total, value[...])
    into[...] = total
