"""Reductions in which partial results move around rings: the code around the module's kernel. The
kernel passes partial results from device to device, and every device combines them with its own
term.

A ring runs along a digit of the device's position; each ring works on the result of the previous
one. Both directions are used at once, each for half of every part.
"""

import functools
import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental.pallas import tpu as pltpu

from .pallas_peers import div, rem
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
        up, is_back = 2 * place, div(2 * place, self.size)
        return up + is_back * (2 * self.size - 1 - 2 * up) if self.folded else place

    def place(self, position):
        """Return the place in the ring of the device at a position."""
        own = rem(div(position, self.stride), self.size)
        half = div(own + 1, 2)
        return half + rem(own, 2) * (self.size - 2 * half) if self.folded else own

    def neighbours(self, position):
        """Return the next and the previous position in the ring, the receivers of the upward and
        the downward direction."""
        place, own = self.place(position), rem(div(position, self.stride), self.size)
        others = (self.coordinate(rem(place + by, self.size)) for by in (1, self.size - 1))
        return [position + (other - own) * self.stride for other in others]


class Ring(PallasProgram):
    """A program that reduces terms; each part of a shard ends on the device that keeps it.
    `kernel`: see `carried`; `rounds`: the rings in sequence; `terms`: the `Terms` to reduce;
    `rows`, `chunks`: half of a part consists of `chunks` chunks of `rows` memory rows."""

    form = "ring"

    def __init__(self, kernel, rounds, terms, rows, chunks, collective_id, powers_of_two=False):
        self.kernel, self.rounds, self.terms = kernel, rounds, terms
        self.rows, self.chunks, self.collective_id = rows, chunks, collective_id
        self.powers_of_two, self.carriers = powers_of_two, (self,)
        sizes = [turn.size for turn in rounds]
        self.parts = math.prod(sizes)
        # Half of the elements of a part move upwards, the others downwards.
        self.half = chunks * rows * LANES
        # The number of chunks per direction on a device after each ring.
        self.held = [chunks * math.prod(sizes[after:]) for after in range(1, len(sizes) + 1)]

    def attach(self, host):
        """Bind to the host of a reshard."""
        super().attach(host)
        self.rank = len(host.shape)
        self.given, self.part = host.source.local[-self.rank :], host.target.local[-self.rank :]

    def starts(self):
        """Return, for each part, the set of its starts in the source shards of the devices that
        keep it. Parts are numbered by the places of these devices in the rings."""
        found: list[set] = [set() for _ in range(self.parts)]
        for position in range(len(self.host.source.ids)):
            number = 0
            for turn in self.rounds:
                number = number * turn.size + turn.place(position)
            ends = (side.box(position) for side in (self.host.source, self.host.target))
            before, after = (box[-2 * self.rank :: 2] for box in ends)
            found[number].add(tuple(low - start for low, start in zip(after, before, strict=True)))
        return found

    def pairs(self):
        """Return the ranks of senders and receivers as arrays."""
        ranks = range(len(self.host.source.ids))
        ends = [(a, int(b)) for a in ranks for turn in self.rounds for b in turn.neighbours(a)]
        return np.array(ends, int).T

    def fault(self):
        """Return the first fault: a device keeps a part that rings deliver elsewhere, or the parts
        do not cover the shard; "" if there is none."""
        starts = self.starts()
        if apart := next((each for each in starts if len(each) > 1), None):
            return f"devices that keep one part by the rings keep parts at {sorted(apart)}"
        if len(set.union(*starts)) * math.prod(self.part) != math.prod(self.given):
            return f"parts at {starts} do not make up a shard"
        return ""

    def carried(self, shard, call):
        """Return this device's reduced part. The kernel takes the parts of a shard as [direction,
        chunks of all parts, rows, lanes]; the last chunks of its result are the part."""
        dtype = self.host.dtype
        wide = jnp.float32 if jnp.issubdtype(dtype, jnp.floating) else jnp.int32
        x = shard.reshape(self.given).astype(wide)
        starts = jnp.array([min(each) for each in self.starts()], jnp.int32)
        parts = lax.map(lambda start: lax.dynamic_slice(x, start, self.part), starts)
        parts = parts.reshape(self.parts, -1)  # not within the loop, where it takes more code
        parts = jnp.pad(parts, [(0, 0), (0, 2 * self.half - parts.shape[1])])
        halves = jnp.moveaxis(parts.reshape(self.parts, 2, -1, self.rows, LANES), 1, 0)
        vmem, dma = pltpu.VMEM((2, 2, self.rows, LANES), wide), pltpu.SemaphoreType.DMA((2, 2))
        free = pltpu.SemaphoreType.REGULAR((len(self.rounds), 2))
        x, shape = halves.reshape(2, -1, self.rows, LANES), (2, sum(self.held), self.rows, LANES)
        y = call.pushed(self.kernel, x, shape, [*[vmem] * 3, *[dma] * 3, free])[:, -self.chunks :]
        return y.reshape(-1)[: math.prod(self.part)].astype(dtype).reshape(self.host.target.local)


def put(into, operator, *values):
    """Combine values in VMEM by an operator, in order, and write the result to `into`."""
    into[...] = functools.reduce(COMBINED[operator], [value[...] for value in values])
