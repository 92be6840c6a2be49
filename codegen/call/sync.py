"""Whole models in one call: `sw.sync(model, source, target)`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from shardwright.ir.errors import check_type
from shardwright.ir.model import Model
from shardwright.ir.model_moves import Arrays, moved
from shardwright.ir.model_plan import MEMORY_LIMIT, ModelPlan, plan_model
from shardwright.ir.model_proof import ModelProof, prove


@dataclass(frozen=True)
class Sync:
    """A model from one side to another: its plan, its proof, and what moves it.

    `print` says what moves, and what was proved of it.
    """

    plan: ModelPlan

    @cached_property
    def proof(self) -> ModelProof:
        """The proof that every target element is written once, from its own source element."""
        return prove(self.plan)

    @property
    def data(self) -> dict[str, Any]:
        """All that a runtime needs, as JSON has it."""
        return self.plan.data

    def local(self, shards: Arrays) -> dict[int, dict[str, Any]]:
        """Return the target buffers of all devices, by device id and name, from source buffers.

        `shards`: by device id and name, arrays of numpy. It moves elements in this process as the
        plan says; padding of the results is zero. Raises InputError for a buffer that is missing
        or has another shape.
        """
        return moved(self.plan.data, shards)

    def __str__(self) -> str:
        return f"{self.plan}\n{self.proof}"


def sync(model: Model, source: object, target: object, *, memory_limit: int = MEMORY_LIMIT) -> Sync:
    """Return what moves a model from a source to a target.

    `source`, `target`: `sw.Rules`, or a `sw.Stored` of all its tensors, as learned. Both may be on
    any devices. `memory_limit`: bytes of messages in flight on any device, 1 GiB by default. Raises
    InputError for rules and layouts that do not fit the model, and a limit that is too small.
    """
    check_type(model, Model, 'sw.Model({"wq": (64, 64)}, "bfloat16")', "model")
    return Sync(plan_model(model, source, target, memory_limit=memory_limit))
