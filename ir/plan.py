"""Plans: a sequence of steps, each one exchange or one collective of the basis; their JSON."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import Any

from shardwright.ir.dtypes import DTYPES
from shardwright.ir.exchange import Exchange
from shardwright.ir.identities import simplify
from shardwright.ir.index import Index, Value
from shardwright.ir.printers import PYTHON
from shardwright.ir.reshard import Reshard
from shardwright.ir.sharding import Sharding
from shardwright.ir.transfers import Transfers, enumerate_transfers

# Above this many devices a plan is stated in closed form unless transfers are asked for.
ENUMERATED_DEVICES = 512


@dataclass(frozen=True)
class ExchangeStep:
    """All transfers at once; every device receives exactly what it lacks."""

    exchange: Exchange


# The steps a plan may hold. Collectives of the basis join this union with their planner.
Step = ExchangeStep


@dataclass(frozen=True)
class Traffic:
    """Bytes a plan moves between devices beside the lower bounds of its reshard.

    `bound_received_*`: what devices lack. `bound_sent_max`: the maximum over source shards of
    ceil(elements that non-holders lack of it / its holders), times the item size.
    """

    received_max: int
    received_total: int
    sent_max: int
    bound_received_max: int
    bound_received_total: int
    bound_sent_max: int


@dataclass(frozen=True)
class Plan:
    """A reshard, the strategy that was chosen, its steps and its traffic."""

    reshard: Reshard
    strategy: str
    steps: tuple[Step, ...]
    traffic: Traffic

    @property
    def exchange(self) -> Exchange:
        """The one exchange of a direct plan."""
        return self.steps[0].exchange

    def transfers(self) -> Transfers:
        """Every transfer of the plan, enumerated."""
        return enumerate_transfers(self.exchange)

    @property
    def target_bytes(self) -> int:
        """Bytes of all target shards together, replicas included."""
        elements = math.prod(self.reshard.shape) * self.exchange.target.replicas
        return elements * DTYPES[self.reshard.dtype]

    @property
    def devices(self) -> int:
        """How many devices take part, on either side."""
        return int(self.exchange.ranks.size)

    def to_dict(self, transfers: bool | None = None) -> dict[str, Any]:
        """The object of `plan --json`. `transfers`: enumerate; None means up to 512 devices."""
        wanted = self.devices <= ENUMERATED_DEVICES if transfers is None else transfers
        step: dict[str, Any] = {"op": "exchange", "transfers": None}
        if wanted:
            step["transfers"] = _rows(self.transfers())
        else:
            step["closed_forms"] = closed_forms(self.exchange)
        reshard = self.reshard
        return {
            "shape": list(reshard.shape),
            "dtype": reshard.dtype,
            "source": _side(reshard.source, reshard.source_split),
            "target": _side(reshard.target, reshard.target_split),
            "strategy": self.strategy,
            "steps": [step],
            "bytes": asdict(self.traffic),
        }

    def to_json(self, transfers: bool | None = None) -> str:
        """`to_dict` as JSON text, one transfer a line, ending in a newline."""
        return format_plan(self.to_dict(transfers))


def _side(sharding: Sharding, split: str) -> dict[str, Any]:
    mesh = sharding.mesh
    return {
        "mesh": str(mesh),
        "device_ids": list(mesh.device_ids),
        "sharding": str(sharding),
        "split": split,
    }


def _rows(transfers: Transfers) -> list[dict[str, Any]]:
    columns = (
        transfers.sender.tolist(),
        transfers.receiver.tolist(),
        transfers.tensor.tolist(),
        transfers.source.tolist(),
        transfers.target.tolist(),
    )
    names = ("from", "to", "tensor", "source", "target")
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def closed_forms(exchange: Exchange) -> dict[str, Any]:
    """An exchange as Python expressions: in `position` of either mesh; for the holder, in the
    source shard a0, a1, ..., the receiver's position in the target mesh, and the piece."""
    shard = tuple(Index(f"a{axis}", dim.parts) for axis, dim in enumerate(exchange.source.dims))
    receiver = Index("receiver", exchange.target.mesh.size)
    piece = Index("piece", exchange.rule.pieces)
    forms: dict[str, Any] = {}
    for side, layout in (("source", exchange.source), ("target", exchange.target)):
        position = Index("position", layout.mesh.size)
        box = layout.box(position)[layout.hidden :]
        forms[f"{side}_shard"] = [_python(index) for index in layout.index(position)]
        forms[f"{side}_range"] = [[_python(end) for end in ends] for ends in box]
    forms["holder"] = _python(exchange.holder(shard, receiver, piece))
    forms["pieces"] = exchange.rule.pieces
    return forms


def _python(expr: Value) -> str:
    return PYTHON.text(simplify(expr))


def format_plan(plan: dict[str, Any]) -> str:
    """A plan's object as JSON, one transfer a line so that a person can review a change of it."""
    lines = []
    for key, value in plan.items():
        text = _format_steps(value) if key == "steps" else json.dumps(value)
        lines.append(f"  {json.dumps(key)}: {text}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _format_steps(steps: list[dict[str, Any]]) -> str:
    return "[" + ", ".join(_format_step(step) for step in steps) + "]"


def _format_step(step: dict[str, Any]) -> str:
    fields = []
    for key, value in step.items():
        text = json.dumps(value)
        if key == "transfers" and value:
            text = "[\n    " + ",\n    ".join(map(json.dumps, value)) + "\n  ]"
        fields.append(f"{json.dumps(key)}: {text}")
    return "{" + ", ".join(fields) + "}"
