"""The price of communication on a network, in bytes that a device receives over the fastest axis.

Prices follow the network model, including latencies, so programs are compared by their predicted
seconds. Some transfers are not known yet when a price is needed. A permute, whose pairs are
unknown, is priced as a gather of as many bytes over the slowest of its axes. The rounds of a direct
exchange, whose blocks cross all axes, are priced as gathers over each of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from shardwright.codegen.moves.basis.digits import Pair
from shardwright.codegen.moves.network.collectives import Prices


@dataclass(frozen=True, eq=False)
class Pace:
    """Prices of communication over axes. `digits`: the digit (stride, size) of each axis in a mesh
    position; `bandwidth`: the bytes per second over the fastest axis."""

    prices: Prices
    digits: dict[str, Pair]
    bandwidth: float
    _known: dict[tuple[str, tuple[str, ...], int], float] = field(default_factory=dict)

    def of(self, op: str, axes: Iterable[str], received: int) -> float:
        """Return the price of a collective, or of a round of an exchange, over axes. `received`:
        the bytes that a device receives."""
        key = op, tuple(axes), received
        if key not in self._known:
            self._known[key] = self.bandwidth * self._seconds(*key)
        return self._known[key]

    @property
    def least(self) -> float:
        return self.bandwidth / self.prices.network.topology.ingest

    def _seconds(self, op: str, axes: tuple[str, ...], received: int) -> float:
        digits = tuple(self.digits[name] for name in axes if self.digits[name][1] > 1)
        if op in ("permute", "exchange"):
            gathers = [self.prices.seconds("all_gather", (d,), received) for d in digits]
            return max(gathers) if op == "permute" else sum(gathers)
        return self.prices.seconds(op, digits, received)
