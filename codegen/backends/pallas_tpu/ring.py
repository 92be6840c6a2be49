"""The ring form: terms are reduced while they travel around rings along the unreduced axes.

Each device ends up with one part of its group's tensor. In each direction it receives partial sums
from one neighbour, combines its own terms with them, and sends them on. So, unlike in an exchange,
a link carries the sends of only one device. The rings run one after another, each along one digit
of the positions. Along an axis without a wrap-around link, a ring is folded: it goes up over the
even coordinates and down over the odd ones.

Partial sums are computed and forwarded as float32 or as 32-bit integers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from shardwright.codegen.backends.pallas_tpu.facts import FormFacts, Kernels
from shardwright.codegen.backends.pallas_tpu.memory import LANES, round_up
from shardwright.codegen.hardware.presets import topology_of
from shardwright.codegen.hardware.torus import Torus
from shardwright.codegen.moves.network.links import Flows, Network
from shardwright.codegen.moves.network.rings import Rings
from shardwright.codegen.moves.network.timeline import Copies, Sends, Stage
from shardwright.ir.algebra.index import Integers
from shardwright.ir.dtypes import DTYPES
from shardwright.ir.exchange import ids_of
from shardwright.ir.mesh import AxisRef, Digit
from shardwright.ir.plan import DirectPlan

RINGS = FormFacts(
    name="ring",
    rank=8,
    does="terms are combined on their way around rings",
    kernels=Kernels(("kernel",), ("rounds", "rows", "chunks", "held", "half")),
    buffers="rings",
    support=("pallas_ring",),
)
ROWS = 1024
"""The most rows of a chunk. The twelve chunks in VMEM then take six MiB."""
SUBLANES = 8
WIDE = 4
"""The bytes of an element in flight."""


@dataclass(frozen=True)
class RingTurn:
    """A ring along a digit of positions; `folded`: whether it goes up over the digit's even values
    and down over the odd ones."""

    digit: Digit
    folded: bool

    def coordinate(self, place: Integers) -> Integers:
        if not self.folded:
            return place
        size = self.digit.size
        return np.where(2 * place < size, 2 * place, 2 * (size - place) - 1)

    def after(self, positions: Integers) -> Integers:
        """Return the position that follows each given position in the ring, in the upward
        direction."""
        stride, size = self.digit.stride, self.digit.size
        order = self.coordinate(np.arange(size))
        follows = np.empty(size, dtype=np.int64)
        follows[order] = np.roll(order, -1)
        own = positions // stride % size
        found: Integers = positions + (follows[own] - own) * stride
        return found


@dataclass(frozen=True)
class RingForm:
    """The rings of a plan, in order. `chunks`: the number of chunks of half a part; `rows`: the
    number of rows of a chunk."""

    plan: DirectPlan
    turns: tuple[RingTurn, ...]
    rows: int
    chunks: int

    @staticmethod
    def of(plan: DirectPlan) -> RingForm | None:
        """Return the rings that reduce a plan's terms. Return None if rings cannot: each device
        must keep one part of its own source shard, all parts must have the same size, and
        neighbours must be able to send to each other directly."""
        topology = None if plan.prediction is None else topology_of(plan.prediction.topology)
        if not isinstance(topology, Torus) or not _are_parts(plan):
            return None
        digits = [plan.reshard.source.mesh.digit(ref) for ref in plan.reshard.fate.reduced]
        network = Network(topology, 1 + max(plan.reshard.source.mesh.device_ids))
        turns = tuple(_best(digit, plan, network) for digit in digits if digit.size > 1)
        if any(each is None for each in turns):
            return None
        whole = math.ceil(math.prod(plan.exchange.target.local_shape) / 2 / LANES)
        chunks = math.ceil(whole / ROWS)
        rows = round_up(math.ceil(whole / chunks), SUBLANES)
        return RingForm(plan, tuple(filter(None, turns)), rows, chunks)

    @property
    def parts(self) -> int:
        """The number of parts of a source shard. A device has one term of each part."""
        return math.prod(turn.digit.size for turn in self.turns)

    @property
    def half(self) -> int:
        """The number of elements of a part that travel in one direction, padding included."""
        return self.chunks * self.rows * LANES

    @property
    def wire_bytes(self) -> int:
        return 2 * WIDE * self.half * (self.parts - 1)

    def stages(self) -> Iterator[Stage]:
        """Yield the stages of the module's timeline: XLA's copies, and between them one stage per
        step of a ring."""
        elements, itemsize = math.prod(self.plan.exchange.target.local_shape), self.itemsize
        packed = 2 * WIDE * self.half
        yield Copies("XLA packs parts", self.parts * (itemsize * elements + packed))
        left = self.parts
        for turn in self.turns:
            left //= turn.digit.size
            send = partial(_around, self.plan, turn, float(left * WIDE * self.half))
            for number in range(1, turn.digit.size):
                what = f"step {number} of a ring of {turn.digit.size}"
                yield Sends(what, send, 4.0 * left * packed)
        yield Copies("XLA unpacks the part", packed + itemsize * elements)

    @property
    def refs(self) -> tuple[AxisRef, ...]:
        """The mesh axes along which the rings run, in order."""
        return tuple(ref for ref in self.plan.reshard.fate.reduced if self.size_of(ref) > 1)

    @property
    def rings(self) -> Rings:
        """The sends of all devices in each step."""
        along, ids = tuple(map(str, self.refs)), ids_of(self.plan.reshard.source.mesh)
        return Rings.of(self.turns, along, WIDE * self.half, ids)

    def size_of(self, ref: AxisRef) -> int:
        """Return the number of devices that differ only along an axis."""
        return self.plan.reshard.source.mesh.digit(ref).size

    @property
    def itemsize(self) -> int:
        return DTYPES[self.plan.reshard.dtype]


def _are_parts(plan: DirectPlan) -> bool:
    """Return whether a ring kernel can reduce a plan's terms. The target shards of the devices that
    have terms of one source shard must be its equal, non-empty parts, in the same order in every
    group, and kernels must be able to reduce the dtype."""
    exchange, reshard = plan.exchange, plan.reshard
    before, after = exchange.source, exchange.target
    dims = before.dims[before.hidden :], after.dims[after.hidden :]
    if not exchange.same_order or not reshard.adds or reshard.places or not dims[0]:
        return False
    unsigned = reshard.dtype == "uint32" and reshard.extremum
    if reshard.itemsize > WIDE or unsigned or not all(dim.is_even for dim in (*dims[0], *dims[1])):
        return False
    digits = [reshard.source.mesh.digit(ref) for ref in reshard.fate.reduced]
    parts, positions = exchange.terms, np.arange(before.mesh.size, dtype=np.int64)
    sizes = [[dim.size for dim in each] for each in dims]
    if math.prod(sizes[1]) * parts != math.prod(sizes[0]):
        return False
    boxes = [side.boxes()[:, side.hidden :] for side in (before, after)]
    inside = (boxes[1][:, :, 0] >= boxes[0][:, :, 0]) & (boxes[1][:, :, 1] <= boxes[0][:, :, 1])
    start = boxes[1][:, :, 0] - boxes[0][:, :, 0]
    number = np.zeros_like(positions)
    for digit in digits:
        number = number * digit.size + positions // digit.stride % digit.size
    first = np.unique(number, return_index=True)[1]
    alike = bool((start == start[first][number]).all())
    return bool(inside.all()) and alike and len(np.unique(start[first], axis=0)) == parts


def _best(digit: Digit, plan: DirectPlan, network: Network) -> RingTurn | None:
    """Return the ring along a digit, folded or not, with the lowest link load, or None if
    neighbours cannot send to each other directly."""
    found = []
    for folded in (False, True) if digit.size > 3 else (False,):
        turn = RingTurn(digit, folded)
        (flows,) = _around(plan, turn, 1e6)
        if (network.topology.messages(flows.sender, flows.receiver) == 1).all():
            found.append((network.seconds(network.load(flows)), folded, turn))
    return min(found)[-1] if found else None


def _around(plan: DirectPlan, turn: RingTurn, nbytes: float) -> Iterator[Flows]:
    ids = ids_of(plan.reshard.source.mesh)
    positions = np.arange(ids.size, dtype=np.int64)
    after = turn.after(positions)
    senders, receivers = np.concatenate([positions, after]), np.concatenate([after, positions])
    yield Flows(ids[senders], ids[receivers], np.full(senders.size, nbytes))


def ring_facts(form: RingForm) -> tuple[str, ...]:
    """Return the lines about the form for the module docstring."""
    refs = form.refs
    lines = [
        "Form: ring; partial results go from device to device; each device combines its term.",
        f"Rings along {', then '.join(map(str, refs))} move 32 bits per element; "
        f"every device receives {form.wire_bytes:,} bytes.",
    ]
    for ref, turn in zip(refs, form.turns, strict=True):
        if turn.folded:
            lines.append(
                f"Along {ref} a ring visits even coordinates upwards, then odd ones downwards."
            )
    return (
        *lines,
        f"The first {form.half:,} elements of a part travel upwards: their terms are combined",
        "in ring order, from the device after the part's keeper round to the keeper. The others",
        "travel downwards.",
    )
