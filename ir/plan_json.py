"""Write plans as JSON: each step with its transfers, one line per sender, or with its closed
forms."""

from __future__ import annotations

import itertools
import json
from typing import Any

from shardwright.ir.algebra.identities import simplify
from shardwright.ir.algebra.index import Index, Value
from shardwright.ir.algebra.printers import PYTHON
from shardwright.ir.exchange import Exchange
from shardwright.ir.layout import Layout
from shardwright.ir.reduction import Reduction
from shardwright.ir.reshard import Reshard
from shardwright.ir.sharding import Sharding
from shardwright.ir.steps import ExchangeStep, Phase, ReduceStep, Step


def step_fields(step: Step, reshard: Reshard, transfers: bool) -> dict[str, Any]:
    """Return a step of a plan as plain data. `transfers`: whether to list the step's transfers in
    place of its closed forms."""
    found: dict[str, Any] = {"op": step.op}
    if not isinstance(step, ExchangeStep):
        found["axes"] = list(map(str, step.ends.axes))
        found["before"] = _short_side(reshard, step.ends.before, step.ends.before_split)
        found["after"] = _short_side(reshard, step.ends.after, step.ends.after_split)
    found["transfers"] = rows(step.phases()) if transfers else None
    if not transfers:
        found["closed_forms"] = (
            reduction_forms(step.reduction)
            if isinstance(step, ReduceStep)
            else closed_forms(step.exchange)
        )
    return found


def _short_side(reshard: Reshard, sharding: Sharding, split: str) -> str | dict[str, Any]:
    """Return a sharding as text if it has the mesh and split of both sides of the reshard, else as
    the data of `side`."""
    ends = {
        (reshard.source.mesh, reshard.source_split),
        (reshard.target.mesh, reshard.target_split),
    }
    return str(sharding) if ends == {(sharding.mesh, split)} else side(sharding, split)


LISTED_IDS = 512
"""The largest number of devices for which the device ids 0, 1, 2, … are listed."""


def side(sharding: Sharding, split: str) -> dict[str, Any]:
    """Return a sharding as plain data, with its mesh and its split."""
    mesh = sharding.mesh
    in_order = mesh.is_iota and mesh.size > LISTED_IDS
    return {
        "mesh": str(mesh),
        "device_ids": None if in_order else list(mesh.device_ids),
        "sharding": str(sharding),
        "split": split,
    }


def rows(phases: tuple[Phase, ...]) -> list[dict[str, Any]]:
    """Return the transfers of phases as plain data, in the order of the phases. A transfer that is
    reduced has the key `reduce`."""
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
    """Return the closed forms of an exchange as Python expressions.

    Shards and ranges depend on `position`, in the source or the target mesh. The holder depends on
    the source shard `a0, a1, …`, on the position `receiver` in the target mesh, and on the number
    `piece`.
    """
    shard = tuple(Index(f"a{axis}", dim.parts) for axis, dim in enumerate(exchange.source.dims))
    receiver = Index("receiver", exchange.target.mesh.size)
    piece = Index("piece", exchange.rule.pieces)
    forms = _side_forms(exchange.source, exchange.target)
    forms["holder"] = _python(exchange.holder(shard, receiver, piece))
    forms["pieces"] = exchange.rule.pieces
    return forms


def reduction_forms(reduction: Reduction) -> dict[str, Any]:
    """Return the closed forms of a reduction as Python expressions, like `closed_forms`. The sender
    depends on the shard, on the receiver, and on the number `term` of the partial sum."""
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


def format_plan(plan: dict[str, Any]) -> str:
    """Return the data of a plan as JSON, one line per sender of transfers, for readable diffs."""
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
            sent = itertools.groupby(value, key=lambda transfer: transfer["from"])
            lines = (", ".join(map(json.dumps, transfers)) for _, transfers in sent)
            text = "[\n    " + ",\n    ".join(lines) + "\n  ]"
        fields.append(f"{json.dumps(key)}: {text}")
    return "{" + ", ".join(fields) + "}"
