"""Plans: one exchange or a sequence of steps (`ir/steps.py`), their bytes, and their JSON."""

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

# With more devices, a plan is stated in closed form unless transfers are requested.
ENUMERATED_DEVICES = 512


@dataclass(frozen=True)
class Traffic:
    """Bytes that a plan moves between devices, next to the lower bounds of its reshard.

    `bound_received_*`: the elements that devices lack. `bound_sent_max`: the maximum over source
    shards of ceil(elements of it that non-holders lack / its holders), times the item size.
    """

    received_max: int
    received_total: int
    sent_max: int
    bound_received_max: int
    bound_received_total: int
    bound_sent_max: int


@dataclass(frozen=True)
class Prediction:
    """The cost model's prediction for a plan under any backend: seconds on links, with all
    transfers of a step at once, and bytes of the largest shards. A module's timeline predicts the
    module (`codegen/planner/network/timeline.py`).

    `least_seconds`: lower bound for any sequence of basis steps with unlimited memory; just below
    `seconds` if this plan is optimal (None for a direct plan). `peak_bytes`: most bytes of the
    tensor on a device, before and after a step, including unreduced terms of an exchange.
    `memory_bytes`: the limit (None: no intermediate shard exceeds the larger of source, target and
    one megabyte). `why`: the reason if the limit could not be met.
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
    """A reshard, the traffic of its plan, and its predicted cost."""

    reshard: Reshard
    traffic: Traffic
    prediction: Prediction | None

    @property
    @abstractmethod
    def strategy(self) -> Strategy:
        """The chosen strategy."""

    @property
    @abstractmethod
    def outline(self) -> Exchange:
        """Both ends side by side, for ranges and pictures."""

    @abstractmethod
    def listed(self) -> tuple[Step, ...]:
        """Return the steps of any kind of plan."""

    @property
    def ops(self) -> str:
        """The names of the steps, in order."""
        return ", ".join(step.op for step in self.listed())

    @property
    def devices(self) -> int:
        """The number of devices on either side."""
        meshes = (self.reshard.source.mesh, self.reshard.target.mesh)
        return int(np.union1d(*map(ids_of, meshes)).size)

    def to_dict(self, transfers: bool | None = None) -> dict[str, Any]:
        """Return the object of `plan --json`. `transfers`: list them; None means up to 512
        devices."""
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
    """One exchange."""

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
        """The single step."""
        return (ExchangeStep(self.exchange),)

    def listed(self) -> tuple[Step, ...]:
        return self.steps

    def transfers(self) -> Transfers:
        """Return every transfer."""
        return self.exchange.once(enumerate_transfers)

    @property
    def target_bytes(self) -> int:
        """Bytes of all target shards together, replicas included."""
        elements = math.prod(self.reshard.shape) * self.exchange.target.replicas
        return elements * DTYPES[self.reshard.dtype]


@dataclass(frozen=True, kw_only=True, repr=False)
class SteppedPlan(_Planned):
    """Collectives in sequence; none if both sides place the tensor equally.

    `by`: their strategy. Strategy direct has two exchanges: the first reduces partial sums to parts
    of target shards, the second copies these to the replicas.
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
    """Return the exchange between source and target, treating partial sums as values."""
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
                "only a direct plan is a single exchange",
                argument="strategy",
                got=f"{plan.strategy}, {plan.ops or 'no steps'}",
                expected="direct; `shardwright plan` lists the steps of others",
            )
        case _:
            assert_never(plan)
