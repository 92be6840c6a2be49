"""The steps of a plan: one exchange, or one collective of the basis.

Every step says which sharding it starts from and which it ends with, and all that it moves as
transfers in phases: those of a phase happen at once, out of the shards before it. A phase that
reduces makes the sum, the maximum or the minimum of all its transfers, local ones too; any other
overwrites.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from shardwright.ir.algebra.identities import simplify
from shardwright.ir.algebra.index import Index, Value
from shardwright.ir.algebra.printers import PYTHON
from shardwright.ir.axes import AxisRef
from shardwright.ir.exchange import Exchange
from shardwright.ir.layout import Layout
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
    """All transfers at once; every device receives exactly what it lacks."""

    exchange: Exchange

    @property
    def op(self) -> str:
        return "exchange"

    @property
    def is_even(self) -> bool:
        """Whether every dimension whose sharding changes divides, before and after."""
        return _is_even(self.exchange.source, self.exchange.target)

    def phases(self) -> tuple[Phase, ...]:
        """The one phase."""
        return (Phase(enumerate_transfers(self.exchange)),)


@dataclass(frozen=True)
class MoveStep:
    """A collective that moves values. It is an exchange too: no device receives what it holds.

    Where a dimension does not divide, the exchange also moves what the cuts before and after it
    differ by, beyond the group of devices that the collective's name speaks of; `is_even` says
    that it does not, so that the collective of that name does the step.
    """

    op: MoveOp
    ends: Ends
    exchange: Exchange

    @property
    def is_even(self) -> bool:
        """Whether every dimension whose sharding changes divides, before and after."""
        return _is_even(self.exchange.source, self.exchange.target)

    def phases(self) -> tuple[Phase, ...]:
        """The one phase."""
        return (Phase(enumerate_transfers(self.exchange)),)


@dataclass(frozen=True)
class ReduceStep:
    """A collective that makes one value of terms: their sum, maximum or minimum."""

    op: ReduceOp
    ends: Ends
    reduction: Reduction

    @property
    def is_even(self) -> bool:
        """Whether every dimension whose sharding changes divides, before and after."""
        return _is_even(self.reduction.before, self.reduction.after)

    def phases(self) -> tuple[Phase, ...]:
        """The sums, and for an all-reduce the copies of the summed parts."""
        copies = self.reduction.copies()
        sums = Phase(self.reduction.sums(), self.reduction.operator)
        return (sums,) if copies is None else (sums, Phase(copies))


def _is_even(before: Layout, after: Layout) -> bool:
    dims = before.dims[before.hidden :], after.dims[after.hidden :]
    return all(a == b or (a.is_even and b.is_even) for a, b in zip(*dims, strict=True))


# The steps a plan may hold.
Step: TypeAlias = ExchangeStep | MoveStep | ReduceStep


def rows(phases: tuple[Phase, ...]) -> list[dict[str, Any]]:
    """The transfers of a step as JSON has them; copies after sums, in the order of the phases."""
    names = ("from", "to", "tensor", "source", "target")
    found = []
    for phase in phases:
        moved = phase.transfers
        columns = (moved.sender, moved.receiver, moved.tensor, moved.source, moved.target)
        for row in zip(*(column.tolist() for column in columns), strict=True):
            transfer = dict(zip(names, row, strict=True))
            found.append({**transfer, "reduce": phase.reduce} if phase.reduce else transfer)
    return found


def closed_forms(exchange: Exchange) -> dict[str, Any]:
    """An exchange as Python expressions: in `position` of either mesh; for the holder, in the
    source shard a0, a1, ..., the receiver's position in the target mesh, and the piece."""
    shard = tuple(Index(f"a{axis}", dim.parts) for axis, dim in enumerate(exchange.source.dims))
    receiver = Index("receiver", exchange.target.mesh.size)
    piece = Index("piece", exchange.rule.pieces)
    forms = _side_forms(exchange.source, exchange.target)
    forms["holder"] = _python(exchange.holder(shard, receiver, piece))
    forms["pieces"] = exchange.rule.pieces
    return forms


def reduction_forms(reduction: Reduction) -> dict[str, Any]:
    """A reduction as Python expressions, as `closed_forms`; `sender` in the number of the term."""
    dims = reduction.before.dims[reduction.before.hidden :]
    shard = tuple(Index(f"a{axis}", dim.parts) for axis, dim in enumerate(dims))
    receiver = Index("receiver", reduction.after.mesh.size)
    term = Index("term", reduction.count)
    forms = _side_forms(reduction.before, reduction.after)
    forms["sender"] = _python(reduction.sender(shard, receiver, term))
    forms["terms"] = reduction.count
    return forms


def _side_forms(source: Layout, target: Layout) -> dict[str, Any]:
    forms: dict[str, Any] = {}
    for side, layout in (("source", source), ("target", target)):
        position = Index("position", layout.mesh.size)
        box = layout.box(position)[layout.hidden :]
        forms[f"{side}_shard"] = [_python(index) for index in layout.index(position)]
        forms[f"{side}_range"] = [[_python(end) for end in ends] for ends in box]
    return forms


def _python(expr: Value) -> str:
    return PYTHON.text(simplify(expr))
