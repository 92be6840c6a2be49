"""Plan the movements of a matmul's operands and result, and compute cheap lower bounds on their
cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from shardwright.codegen.hardware.presets import CPU_COPIES, is_processor
from shardwright.codegen.moves.basis.boxed import layouts_of
from shardwright.codegen.moves.basis.boxed import seconds_of as boxed_seconds
from shardwright.codegen.moves.basis.plan import plan_basis
from shardwright.codegen.moves.basis.traffic import moved
from shardwright.codegen.moves.direct import plan_direct
from shardwright.codegen.moves.network.links import Network
from shardwright.ir.arrays import Integers
from shardwright.ir.exchange import ids_of
from shardwright.ir.layout import Layout
from shardwright.ir.plan import DirectPlan, Plan
from shardwright.ir.reshard import Reshard
from shardwright.ir.steps import Step

_TURNS = {"all_gather": 1, "reduce_scatter": 1, "all_to_all": 2, "exchange": 2}
"""The number of copies of a shard before and after a collective that changes a dimension other than
the first."""


@dataclass(frozen=True)
class Movement:
    """The plan of a movement, and its cost."""

    plan: Plan
    received: int  # the bytes that the busiest device receives
    seconds: float  # the time of all steps, in seconds

    @cached_property
    def by_device(self) -> Integers:
        """The bytes that each device receives, in ascending order of device ids."""
        reshard = self.plan.reshard
        ids = np.sort(ids_of(reshard.source.mesh))
        found = np.zeros(ids.size, dtype=np.int64)
        for step in self.plan.listed():
            (devices, elements), _ = moved(step)
            np.add.at(found, np.searchsorted(ids, devices), elements)
        return found * reshard.itemsize


def busiest(movements: Sequence[Movement]) -> int:
    """Return the maximum bytes that a device receives in all movements."""
    moving = [each for each in movements if each.received]
    if len(moving) < 2:
        return sum(each.received for each in moving)
    return int(np.sum([each.by_device for each in moving], axis=0).max())


Key = Callable[[Movement], tuple[float, ...]]


@dataclass(frozen=True)
class Movements:
    """Plans movements on a network, each only once. `by_bytes`: whether to minimise bytes instead
    of seconds."""

    network: Network
    by_bytes: bool
    known: dict[Reshard, Movement] = field(default_factory=dict)
    bounds: dict[Reshard, int] = field(default_factory=dict)

    def of(self, reshard: Reshard) -> Movement:
        """Return the best plan of a reshard: collectives or, if no axes are reduced or new, one
        exchange in rounds of boxes."""
        if reshard not in self.known:
            self.known[reshard] = self._planned(reshard)
        return self.known[reshard]

    def at_least(self, reshard: Reshard) -> int:
        """Return a lower bound on the bytes that the busiest device receives under any plan."""
        if reshard not in self.bounds:
            self.bounds[reshard] = bound_of(reshard)
        return self.bounds[reshard]

    def least_seconds(self, reshard: Reshard) -> float:
        """Return a lower bound on the time of any plan of a reshard, in seconds."""
        topology, nbytes = self.network.topology, self.at_least(reshard)
        return topology.least_latency + nbytes / topology.ingest if nbytes else 0.0

    def _planned(self, reshard: Reshard) -> Movement:
        made = plan_basis(reshard, self.network)
        seconds = made.prediction.seconds + self._turning(made)
        basis = Movement(made, made.traffic.received_max, seconds)
        if reshard.fate.reduced or reshard.fate.new:
            return basis
        bound = Movement(made, self.at_least(reshard), self.least_seconds(reshard))
        if self._key(basis)[0] <= self._key(bound)[0]:
            return basis
        direct = self._direct(plan_direct(reshard, network=self.network))
        return min(basis, direct, key=self._key)

    def _direct(self, plan: DirectPlan) -> Movement:
        ids, (step,) = ids_of(plan.reshard.source.mesh), plan.steps
        seconds = boxed_seconds(step, ids, self.network, plan.reshard.itemsize)
        seconds += self._turning(plan)
        return Movement(plan, plan.traffic.received_max, seconds)

    def _turning(self, plan: Plan) -> float:
        """Return the time in seconds that a CPU takes to copy shards for collectives along
        dimensions other than the first (`Blocks.outermost`). Return 0 for other devices, which
        reorder elements while they move."""
        if not is_processor(self.network.topology):
            return 0.0
        rate = self.network.topology.memory / 2 or CPU_COPIES  # a copy reads and writes each byte
        return sum(map(_turned, plan.listed())) * plan.reshard.itemsize / rate

    def _key(self, movement: Movement) -> tuple[float, ...]:
        if self.by_bytes:
            return movement.received, movement.seconds
        return movement.seconds, movement.received


def _turned(step: Step) -> int:
    """Return the number of elements that a device copies before and after a step."""
    before, after = layouts_of(step)
    pairs = zip(before.dims[before.hidden :], after.dims[after.hidden :], strict=True)
    changed = [axis for axis, (old, new) in enumerate(pairs) if old != new]
    if step.op not in _TURNS or not any(changed):
        return 0
    return _TURNS[step.op] * max(math.prod(each.local_shape) for each in (before, after))


def bound_of(reshard: Reshard) -> int:
    """Return a lower bound on the bytes that the busiest device receives under any plan of a
    reshard.

    Without partial sums to reduce, the bound is the part of a device's target shard that the device
    lacks. With partial sums, it is the whole target shard, or the average of `traffic_of` if that
    is more.
    """
    moving = reshard.moving
    source = Layout.of(moving.source, moving.shape, moving.source_split)
    target = Layout.of(moving.target, moving.shape, moving.target_split)
    wanted = _boxes(target)
    volume = _volume(wanted)
    if not moving.adds:
        held = _boxes(source)
        low = np.maximum(held[..., 0], wanted[..., 0])
        high = np.minimum(held[..., 1], wanted[..., 1])
        shared = _volume(np.stack([low, high], axis=-1))
        return int((volume - shared).max()) * reshard.itemsize
    terms = math.prod(dim.parts for dim in source.dims[: source.hidden])
    kept = math.prod(map(moving.source.mesh.full_size, moving.fate.kept))
    sums = int(volume.sum()) // target.replicas
    average = -(-sums * (terms // kept + target.replicas - 2) // volume.size)
    return max(int(volume.max()), average) * reshard.itemsize


def _boxes(layout: Layout) -> np.ndarray:
    """Return the box of the tensor at each mesh position: [positions, dimensions, 2]."""
    return layout.boxes()[:, layout.hidden :]


def _volume(boxes: np.ndarray) -> np.ndarray:
    widths = np.maximum(boxes[..., 1] - boxes[..., 0], 0)
    found: np.ndarray = np.prod(widths, axis=1, dtype=np.int64)
    return found
