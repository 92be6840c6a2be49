"""The steps of a plan: one exchange, or one collective of the basis.

Every step has its source and target shardings, and its transfers in phases. The transfers of a
phase happen at once and read the shards as they were before it. A reducing phase makes the sum,
maximum or minimum of all its transfers, local ones included; any other phase overwrites.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from shardwright.ir.axes import AxisRef
from shardwright.ir.exchange import Exchange
from shardwright.ir.reduction import Reduction
from shardwright.ir.sharding import Operator, Sharding
from shardwright.ir.transfers import Transfers, enumerate_transfers

# The last one is Shardy's: along some axes one replica keeps the value, and the axes become
# unreduced.
MoveOp = Literal["slice", "all_gather", "all_to_all", "permute", "replicated_to_unreduced"]
ReduceOp = Literal["reduce_scatter", "all_reduce"]


@dataclass(frozen=True)
class Phase:
    """Transfers that happen at once. `reduce`: the operator that combines the transfers into one
    place; None overwrites."""

    transfers: Transfers
    reduce: Operator | None = None


@dataclass(frozen=True)
class Ends:
    """The shardings before and after a step, each with its split, and the axes involved."""

    axes: tuple[AxisRef, ...]
    before: Sharding
    after: Sharding
    before_split: str = "flat"
    after_split: str = "flat"


@dataclass(frozen=True)
class ExchangeStep:
    """All transfers at once. Every device receives exactly the elements that it lacks, and all
    partial sums of a reduced value."""

    exchange: Exchange

    @property
    def op(self) -> str:
        return "exchange"

    def phases(self) -> tuple[Phase, ...]:
        """Return the single phase."""
        return (Phase(self.exchange.once(enumerate_transfers), self.exchange.operator),)


@dataclass(frozen=True)
class MoveStep:
    """A collective as an exchange: no device receives elements it already holds. It moves values,
    or reduces the partial sums that arrive at a receiver.

    If a dimension is uneven, the cuts before and after differ, and the exchange may also move
    elements beyond the collective's group of devices.
    """

    op: MoveOp | ReduceOp
    ends: Ends
    exchange: Exchange

    def phases(self) -> tuple[Phase, ...]:
        """Return the single phase."""
        return (Phase(self.exchange.once(enumerate_transfers), self.exchange.operator),)


@dataclass(frozen=True)
class ReduceStep:
    """A collective that combines partial results: their sum, maximum or minimum."""

    op: ReduceOp
    ends: Ends
    reduction: Reduction

    def phases(self) -> tuple[Phase, ...]:
        """Return the sums and, for an all-reduce, the copies of the summed parts."""
        copies = self.reduction.copies()
        sums = Phase(self.reduction.sums(), self.reduction.operator)
        return (sums,) if copies is None else (sums, Phase(copies))


# The steps that a plan may have.
Step: TypeAlias = ExchangeStep | MoveStep | ReduceStep
