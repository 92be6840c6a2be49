"""The steps of a plan. A step is an exchange or a collective.

The transfers of a step are divided into phases. All transfers of a phase happen at once and read
the shards as they were before the phase. If a phase reduces, each target element is the sum,
maximum or minimum of all transfers to it, local copies included; otherwise each transfer overwrites
its target.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from shardwright.ir.axes import AxisRef
from shardwright.ir.exchange import Exchange
from shardwright.ir.reduction import Reduction
from shardwright.ir.sharding import Operator, Sharding
from shardwright.ir.transfers import Transfers, enumerate_transfers

# In `replicated_to_unreduced`, a collective of Shardy, one of several replicas keeps the value, and
# the axes along which devices were replicas become unreduced.
MoveOp = Literal["slice", "all_gather", "all_to_all", "permute", "replicated_to_unreduced"]
ReduceOp = Literal["reduce_scatter", "all_reduce"]


@dataclass(frozen=True)
class Phase:
    """Transfers that happen at once. `reduce`: the operator that combines transfers to the same
    elements; None if transfers overwrite their targets."""

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
    """An exchange: every device receives, at once, the elements that it lacks and all partial sums
    of the values that it reduces."""

    exchange: Exchange

    @property
    def op(self) -> str:
        return "exchange"

    def phases(self) -> tuple[Phase, ...]:
        """Return the only phase."""
        return (Phase(self.exchange.once(enumerate_transfers), self.exchange.operator),)


@dataclass(frozen=True)
class MoveStep:
    """A collective that is performed as an exchange. No device receives elements that it already
    holds. The receiver of partial sums reduces them.

    With an uneven extent, shards before and after the step may have different boundaries. Then the
    exchange may also move elements between devices of different groups.
    """

    op: MoveOp | ReduceOp
    ends: Ends
    exchange: Exchange

    def phases(self) -> tuple[Phase, ...]:
        """Return the only phase."""
        return (Phase(self.exchange.once(enumerate_transfers), self.exchange.operator),)


@dataclass(frozen=True)
class ReduceStep:
    """A reduce-scatter or an all-reduce, which combines partial results into their sum, maximum or
    minimum."""

    op: ReduceOp
    ends: Ends
    reduction: Reduction

    def phases(self) -> tuple[Phase, ...]:
        """Return the phase that adds partial sums and, for an all-reduce, the phase that copies the
        sums."""
        copies = self.reduction.copies()
        sums = Phase(self.reduction.sums(), self.reduction.operator)
        return (sums,) if copies is None else (sums, Phase(copies))


Step: TypeAlias = ExchangeStep | MoveStep | ReduceStep


def ring_bytes(op: str, result: int, devices: int) -> int:
    """Return the bytes that each device of a group receives in a collective, by a ring algorithm.
    `result`: the bytes of its result on a device.

    >>> [ring_bytes(op, 8, 4) for op in ("all_gather", "all_reduce", "reduce_scatter", "permute")]
    [6, 12, 24, 8]
    """
    if op == "permute":
        return result
    if op == "reduce_scatter":
        return result * (devices - 1)
    return (2 if op == "all_reduce" else 1) * result * (devices - 1) // devices
