"""The steps of a plan: one exchange, or one collective of the basis.

Every step says which sharding it starts from and which it ends with, and all that it moves as
transfers in phases: those of a phase happen at once, out of the shards before it. A phase that
reduces makes the sum, the maximum or the minimum of all its transfers, local ones too; any other
overwrites.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from shardwright.ir.axes import AxisRef
from shardwright.ir.exchange import Exchange
from shardwright.ir.reduction import Reduction
from shardwright.ir.sharding import Operator, Sharding
from shardwright.ir.transfers import Transfers, enumerate_transfers

# Shardy has the last one: of replicas along some axes one keeps the value, and these axes become
# unreduced.
MoveOp = Literal["slice", "all_gather", "all_to_all", "permute", "replicated_to_unreduced"]
ReduceOp = Literal["reduce_scatter", "all_reduce"]


@dataclass(frozen=True)
class Phase:
    """Transfers that happen at once; `reduce`: by which operator those to one place are one value,
    None where they overwrite."""

    transfers: Transfers
    reduce: Operator | None = None


@dataclass(frozen=True)
class Ends:
    """The shardings before and after a step, each with its split, and the axes it is about."""

    axes: tuple[AxisRef, ...]
    before: Sharding
    after: Sharding
    before_split: str = "flat"
    after_split: str = "flat"


@dataclass(frozen=True)
class ExchangeStep:
    """All transfers at once; every device receives exactly what it lacks, all terms of what is
    reduced."""

    exchange: Exchange

    @property
    def op(self) -> str:
        return "exchange"

    def phases(self) -> tuple[Phase, ...]:
        """Return the one phase."""
        return (Phase(self.exchange.once(enumerate_transfers), self.exchange.operator),)


@dataclass(frozen=True)
class MoveStep:
    """A collective as an exchange: no device receives what it holds. It moves values, or reduces
    the terms that come to a receiver.

    Where a dimension does not divide, the exchange may also move what the cuts before and after it
    differ by, beyond the group of devices that the collective's name speaks of.
    """

    op: MoveOp | ReduceOp
    ends: Ends
    exchange: Exchange

    def phases(self) -> tuple[Phase, ...]:
        """Return the one phase."""
        return (Phase(self.exchange.once(enumerate_transfers), self.exchange.operator),)


@dataclass(frozen=True)
class ReduceStep:
    """A collective that makes one value of terms: their sum, maximum or minimum."""

    op: ReduceOp
    ends: Ends
    reduction: Reduction

    def phases(self) -> tuple[Phase, ...]:
        """Return the sums, and for an all-reduce the copies of the summed parts."""
        copies = self.reduction.copies()
        sums = Phase(self.reduction.sums(), self.reduction.operator)
        return (sums,) if copies is None else (sums, Phase(copies))


# The steps a plan may hold.
Step: TypeAlias = ExchangeStep | MoveStep | ReduceStep
