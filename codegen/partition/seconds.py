"""The seconds of a program's communications on a topology, according to its network model.

Communications run in sequence and overlap no computation. If XLA overlaps them, the result is an
upper bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from shardwright.codegen.hardware.presets import check_devices, topology_of
from shardwright.codegen.moves.network.collectives import (
    Prices,
    positions_of_groups,
    prices_of,
)
from shardwright.codegen.moves.network.links import Flows, Network
from shardwright.codegen.partition.local import pace
from shardwright.codegen.partition.local.direct import direct
from shardwright.codegen.partition.local.memory import size_of
from shardwright.codegen.partition.local.permutation import permutation
from shardwright.codegen.partition.local.rates import digits_of
from shardwright.codegen.partition.local.steps import LayoutChange, LocalProgram
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
        change, operand = run[0].change, run[0].operand
        if change.inside:
            return self._in_form(change)
        value = self.program.of(operand)
        source = self.program.values[operand].layout
        shard = sum(size_of(self.program, each.operand) for each in run)
        if change.kind == "permute":
            pairs = permutation(change.axes, self.program.axes.sizes, source, change.layout)
            return self._permuted(change.axes, pairs, shard)
        if change.kind == "rounds":
            found = direct(source, change.layout, value.shape, self.program.axes.pieces)
            each = change.received // change.rounds
            return sum(self._permuted(change.axes, list(pairs), each) for _, pairs in found.sent)
        digits = tuple(self.digits[name] for name in change.axes)
        price = {
            "all_gather": self.prices.all_gather,
            "all_to_all": self.prices.all_to_all,
            "reduce_scatter": self.prices.reduce_scatter,
            "all_reduce": self.prices.all_reduce,
        }[change.collective]
        return price(digits, shard)

    def _in_form(self, change: LayoutChange) -> float:
        """Return the seconds of a gather or a halo inside a local form, or of a collective that the
        user wrote."""
        count = math.prod(self.program.axes.sizes[name] for name in change.axes)
        if change.kind == "permute":
            pairs = [(place, place + 1) for place in range(count - 1)]
            return self._permuted(change.axes, pairs, change.received)
        digits = tuple(self.digits[name] for name in change.axes)
        return pace.seconds_of(change.kind, digits, change.received, self.prices)

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
