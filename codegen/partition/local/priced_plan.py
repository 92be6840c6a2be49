"""A plan of a program, with its price."""

from __future__ import annotations

from typing import NamedTuple

from shardwright.codegen.partition.local.lower import Choice


class PricedPlan(NamedTuple):
    """The splits of a program. `price`: their cost; `received`: the part that is received bytes."""

    price: float
    received: float
    choice: Choice

    def by_price(self) -> float:
        return self.price
