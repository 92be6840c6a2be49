"""The seconds of a program's communications on a topology, according to its network model.

Communications run in sequence and overlap no computation. If XLA overlaps them, the result is an
upper bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from shardwright.codegen.hardware.presets import check_devices, topology_of
from shardwright.codegen.moves.block_moves import direct, permutation
from shardwright.codegen.moves.network.collectives import (
    Prices,
    positions_of_groups,
    prices_of,
)
from shardwright.codegen.moves.network.links import Flows, Network
from shardwright.codegen.partition.local.rates import digits_of
from shardwright.codegen.partition.local.steps import LocalProgram, MoveValue
from shardwright.codegen.partition.local.together import Run, rows_of
from shardwright.ir.errors import wrong_type


def seconds_of(program: LocalProgram, topology: str) -> tuple[float, ...]:
    """Return the seconds of each communication, multiplied by its count, in order.

    Raises InputError for an unknown topology, or one with too few devices.
    """
    if not isinstance(topology, str):
        raise wrong_type(topology, str, '"v5e:2x4"', "topology")
    ids = np.array(program.axes.mesh.device_ids, dtype=np.int64)
    devices = int(ids.max()) + 1
    found = topology_of(topology)
    check_devices(found, devices)
    priced = ProgramPrices(program, prices_of(Network(found, devices), ids))
    return tuple(priced.seconds())


class ProgramPrices:
    """The seconds of a program's communications on a network."""

    def __init__(self, program: LocalProgram, prices: Prices) -> None:
        self.program, self.prices = program, prices
        self.digits = digits_of(program.axes.pieces)

    def seconds(self) -> Iterator[float]:
        """Yield the seconds of each communication, multiplied by its count."""
        for run, times in rows_of(self.program):
            yield times * self._seconds(run)

    def _seconds(self, run: Run) -> float:
        change = run[0].change
        received = sum(each.change.received for each in run)
        if change.collective == "permute":
            each = received // change.collectives
            return sum(self._permuted(change.axes, pairs, each) for pairs in self._pairs(run[0]))
        digits = tuple(self.digits[name] for name in change.axes)
        return self.prices.seconds(change.collective, digits, received)

    def _pairs(self, move: MoveValue) -> list[list[tuple[int, int]]]:
        """Return the (sender, receiver) positions of each round of a permute. Inside a local form,
        or as the user wrote it, every device counts as sending to the next."""
        change, axes = move.change, self.program.axes
        if move.inside:
            count = math.prod(axes.sizes[name] for name in change.axes)
            return [[(place, place + 1) for place in range(count - 1)]]
        source = self.program.values[move.operand].layout
        if change.op == "permute":
            return [permutation(change.axes, axes.sizes, source, change.after)]
        shape = self.program.of(move.operand).shape
        return [list(pairs) for _, pairs in direct(source, change.after, shape, axes.pieces).sent]

    def _permuted(self, axes: tuple[str, ...], pairs: list[tuple[int, int]], shard: int) -> float:
        """Return the seconds in which devices send their shards. `pairs`: (sender, receiver)
        positions along the axes; `shard`: the bytes of a shard."""
        digits = tuple(self.digits[name] for name in axes)
        groups = self.prices.ids[positions_of_groups(digits, self.prices.ids.size)]
        senders, receivers = (groups[:, side] for side in np.transpose(pairs))
        apart = senders != receivers
        weight = np.full(int(apart.sum()), float(shard))
        network = self.prices.network
        return network.collective_seconds(
            network.load(Flows(senders[apart], receivers[apart], weight))
        )
