"""Plans of reshards: one exchange or a sequence of steps (`ir/steps.py`), and their cost."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, TypeAlias, assert_never

import numpy as np

from shardwright.ir.drawn import Drawn
from shardwright.ir.dtypes import DTYPES
from shardwright.ir.errors import InputError
from shardwright.ir.exchange import Exchange, HolderRule, ids_of
from shardwright.ir.once import Once
from shardwright.ir.plan_json import format_plan, side, step_fields
from shardwright.ir.reshard import Reshard
from shardwright.ir.steps import (
    ExchangeStep,
    MoveStep,
    ReduceStep,
    Step,
)
from shardwright.ir.transfers import Transfers, enumerate_transfers

__all__ = [
    "ENUMERATED_DEVICES",
    "DirectPlan",
    "ExchangeStep",
    "MoveStep",
    "Plan",
    "Prediction",
    "ReduceStep",
    "Step",
    "SteppedPlan",
    "Traffic",
    "direct_of",
]

Strategy = Literal["direct", "basis"]

# With more devices, a plan lists closed forms in place of transfers, unless transfers are
# requested.
ENUMERATED_DEVICES = 512


@dataclass(frozen=True)
class Traffic:
    """The bytes that a plan moves between devices, and lower bounds for any plan of its reshard.

    `bound_received_max`, `bound_received_total`: the bytes that devices lack. `bound_sent_max`: the
    maximum over source shards of ceil(elements of the shard that other devices lack / number of its
    holders), times the item size.
    """

    received_max: int
    received_total: int
    sent_max: int
    bound_received_max: int
    bound_received_total: int
    bound_sent_max: int


@dataclass(frozen=True)
class Prediction:
    """The cost model's prediction for a plan, independent of backends: its time on the links of a
    topology, with all transfers of a step at once, and its memory. The timeline of an emitted
    module predicts the module's time (`codegen/moves/network/timeline.py`).

    `least_seconds`: a lower bound for any sequence of basis steps with unlimited memory, just below
    `seconds` if the plan is optimal; None for a direct plan. `peak_bytes`: the largest number of
    bytes of the tensor on a device during a step, counting its shards before and after the step and
    the partial sums that an exchange has yet to reduce. `memory_bytes`: the limit; None if
    intermediate shards were allowed the size of the source shard, of the target shard or of 1
    MiB, whichever is largest. `why`: the reason if no plan meets the limit.
    """

    topology: str
    seconds: float
    step_seconds: tuple[float, ...]
    least_seconds: float | None
    peak_bytes: int
    memory_bytes: int | None = None
    why: str | None = None


@dataclass(frozen=True, kw_only=True)
class _Planned(Once, Drawn, ABC):
    """The fields and methods that all plans share: the reshard, its traffic, and its predicted
    cost."""

    reshard: Reshard
    traffic: Traffic
    prediction: Prediction | None

    @property
    @abstractmethod
    def strategy(self) -> Strategy:
        """The strategy that made the plan."""

    @property
    @abstractmethod
    def outline(self) -> Exchange:
        """The exchange from source to target, which provides the ranges and pictures of a
        report."""

    @abstractmethod
    def listed(self) -> tuple[Step, ...]:
        """Return the steps of the plan in order."""

    @property
    def ops(self) -> str:
        """The names of the steps, in order."""
        return ", ".join(step.op for step in self.listed())

    @property
    def devices(self) -> int:
        """The number of distinct devices of the source and the target mesh."""
        meshes = (self.reshard.source.mesh, self.reshard.target.mesh)
        return int(np.union1d(*map(ids_of, meshes)).size)

    def to_dict(self, transfers: bool | None = None) -> dict[str, Any]:
        """Return the plan as plain data, as `plan --json` prints it. `transfers`: whether to list
        transfers; by default for at most 512 devices."""
        wanted = self.devices <= ENUMERATED_DEVICES if transfers is None else transfers
        reshard = self.reshard
        found = {
            "shape": list(reshard.shape),
            "dtype": reshard.dtype,
            "source": side(reshard.source, reshard.source_split),
            "target": side(reshard.target, reshard.target_split),
            "strategy": self.strategy,
            "steps": [step_fields(step, reshard, wanted) for step in self.listed()],
            "bytes": asdict(self.traffic),
        }
        if self.prediction is not None:
            found["prediction"] = asdict(self.prediction)
        return found

    def to_json(self, transfers: bool | None = None) -> str:
        return format_plan(self.to_dict(transfers))

    def __repr__(self) -> str:
        reshard = self.reshard
        return (
            f"<{type(self).__name__}: {reshard.dtype}{list(reshard.shape)} on {self.devices} "
            f"devices, {reshard.source} -> {reshard.target}, {self.ops or 'no steps'}, "
            f"at most {self.traffic.received_max:,} bytes to a device>"
        )


@dataclass(frozen=True, kw_only=True, repr=False)
class DirectPlan(_Planned):
    """A plan that consists of one exchange."""

    exchange: Exchange
    prediction: Prediction | None = None

    @property
    def strategy(self) -> Strategy:
        return "direct"

    @property
    def outline(self) -> Exchange:
        fate = self.reshard.fate
        return self.once(_outline) if fate.new or fate.reduced else self.exchange

    @property
    def steps(self) -> tuple[ExchangeStep]:
        """The only step, an exchange."""
        return (ExchangeStep(self.exchange),)

    def listed(self) -> tuple[Step, ...]:
        return self.steps

    def transfers(self) -> Transfers:
        """Return all transfers of the exchange."""
        return self.exchange.once(enumerate_transfers)

    @property
    def target_bytes(self) -> int:
        """The bytes of all target shards together, replicas included."""
        elements = math.prod(self.reshard.shape) * self.exchange.target.replicas
        return elements * DTYPES[self.reshard.dtype]


@dataclass(frozen=True, kw_only=True, repr=False)
class SteppedPlan(_Planned):
    """A plan of one or more steps, or of no steps if source and target place the tensor equally.

    `by`: the strategy. With "basis", the steps are collectives. With "direct", there are two
    exchanges: the first reduces partial sums to parts of target shards, and the second copies the
    parts to all replicas.
    """

    steps: tuple[MoveStep | ReduceStep, ...]
    prediction: Prediction
    by: Strategy = "basis"

    @property
    def strategy(self) -> Strategy:
        return self.by

    @property
    def outline(self) -> Exchange:
        return self.once(_outline)

    def listed(self) -> tuple[Step, ...]:
        return self.steps


def _outline(plan: _Planned) -> Exchange:
    """Return the exchange from source to target as if no axes were unreduced."""
    reshard = plan.reshard
    source, target = (replace(side, unreduced=()) for side in (reshard.source, reshard.target))
    return Exchange.of(replace(reshard, source=source, target=target), HolderRule())


Plan: TypeAlias = DirectPlan | SteppedPlan


def direct_of(plan: Plan) -> DirectPlan:
    """Return a direct plan unchanged. Raise InputError for any other plan."""
    match plan:
        case DirectPlan():
            return plan
        case SteppedPlan():
            raise InputError(
                "the strategy must be direct, whose plan is a single exchange",
                argument="strategy",
                got=f"{plan.strategy}, {plan.ops or 'no steps'}",
                expected="direct; `shardwright plan` lists the steps of others",
            )
        case _:
            assert_never(plan)
