"""The price of communication on a network, in bytes that a device receives over the fastest axis.

Prices follow the network model, including latencies, so programs are compared by their predicted
seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from shardwright.codegen.moves.basis.digits import Pair, parts_of
from shardwright.codegen.moves.network.collectives import Pairs, Prices
from shardwright.codegen.ops.layout import Names


@dataclass(frozen=True, eq=False)
class Pace:
    """Prices of communication over axes. `digits`: the digit (stride, size) of each axis in a mesh
    position; `bandwidth`: the bytes per second over the fastest axis."""

    prices: Prices
    digits: dict[str, Pair]
    bandwidth: float
    _known: dict[tuple[object, ...], float] = field(default_factory=dict)

    def of(self, op: str, axes: Names, received: int, rounds: tuple[Pairs, ...] = ()) -> float:
        """Return the price of a collective, or of permutes one after another, over axes.

        `received`: the bytes that a device receives in all; `rounds`: the (sender, receiver)
        positions of each permute. If they are not known, every device sends to the next.
        """
        key = op, axes, received, rounds
        if key not in self._known:
            self._known[key] = self.bandwidth * self.seconds(*key)
        return self._known[key]

    def seconds(self, op: str, axes: Names, received: int, rounds: tuple[Pairs, ...] = ()) -> float:
        """Return the price in seconds."""
        digits = tuple(self.digits[name] for name in axes if self.digits[name][1] > 1)
        if op != "permute":
            return self.prices.seconds(op, digits, received)
        if not rounds:
            rounds = (tuple((at, at + 1) for at in range(parts_of(digits) - 1)),)
        each = received // len(rounds)
        return sum(self.prices.permute(digits, pairs, each) for pairs in rounds)

    @cached_property
    def least(self) -> float:
        """The least price of a received byte."""
        return self.bandwidth / self.prices.network.topology.ingest

    @cached_property
    def _least_collective(self) -> float:
        topology = self.prices.network.topology
        return self.bandwidth * (topology.collective + topology.least_latency)

    def at_least(self, received: int) -> float:
        """Return a lower bound on the price of collectives in which a device receives this many
        bytes in all."""
        return self._least_collective + self.least * received
