"""Emission of models: turn a plan or a description into the files of its bundle."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from shardwright.codegen.operations.emit.model import model_backends, model_files
from shardwright.codegen.operations.emit.write import bundle_folder, write_bundle
from shardwright.codegen.registry import MODELLING
from shardwright.codegen.show.model_explorer import MODEL_PAGE, model_explorer
from shardwright.codegen.show.review import commands_text
from shardwright.codegen.spec.model import ModelDescription, of_key
from shardwright.codegen.text.templates import render
from shardwright.ir.drawn import Drawn
from shardwright.ir.errors import InputError
from shardwright.ir.model_plan import ModelPlan, plan_model
from shardwright.ir.model_proof import prove


@dataclass(frozen=True, repr=False)
class ModelBundle(Drawn):
    """The emission of a model: one module per backend, and the data that they share."""

    plan: ModelPlan
    backends: tuple[str, ...] = MODELLING

    def __repr__(self) -> str:
        return f"<ModelBundle for {', '.join(self.backends)}: {self.plan!r}>"

    def description(self, name: str) -> ModelDescription:
        """Return the description from which this bundle can be emitted again, under a name."""
        return ModelDescription.of(self.plan, name, self.backends)

    def files(self, name: str) -> dict[str, str]:
        """Return the text of every file of the bundle, by file name. Raises ProofError, which is a
        bug in Shardwright, if the plan does not move its model correctly."""
        lines = (*str(self.plan).splitlines(), *str(prove(self.plan)).splitlines())
        command = self.description(name).command()
        page = ModelPage(self.plan, name, command, lines)
        return {
            **model_files(self.plan.data, self.backends, lines[:7], command),
            "README.md": render("common/model.md.jinja", page),
            MODEL_PAGE: model_explorer(self.plan, name),
            "plan.json": self.plan.to_json(),
        }

    def write(self, path: str | Path) -> tuple[Path, ...]:
        """Write the bundle into the folder `path` and record it in the manifest next to that
        folder. The last part of `path` is the bundle's name. Return the files that were changed or
        removed. On an error, write nothing."""
        folder = bundle_folder(path, "generated/weights")
        return write_bundle(folder, self.description(folder.name), self.files(folder.name))


@dataclass(frozen=True)
class ModelPage:
    """The contents of the review page."""

    plan: ModelPlan
    name: str
    command: str
    lines: tuple[str, ...]

    @property
    def commands(self) -> str:
        return commands_text(self.name, self.command)

    @property
    def sides(self) -> list[tuple[str, str, list[tuple[str, str]]]]:
        """The name and the mesh of each side, and its rules with their layouts."""
        return [
            (name, str(rules.mesh), [(rule.glob.text, rule.said) for rule in rules.rules])
            for name, rules in (("source", self.plan.source), ("target", self.plan.target))
        ]

    @property
    def kinds(self) -> list[str]:
        """The table rows of the kinds: first tensor, number of tensors, shape, dtype, layouts."""
        return [
            f"| {self.plan.firsts[number]} | {self.plan.counts[number]:,} | "
            f"{'x'.join(map(str, kind.tensor.shape)) or '()'} | {kind.tensor.dtype} | "
            f"`{kind.said[0]}` | `{kind.said[1]}` |"
            for number, kind in enumerate(self.plan.kinds.kinds)
        ]

    @property
    def rows(self) -> list[str]:
        """The table rows of the devices, with the bytes that each sends and receives."""
        sent, received = self.plan.sent, self.plan.received
        return [
            f"| {device} | {sent.get(device, 0):,} | {received.get(device, 0):,} |"
            for device in self.plan.devices
        ]


def emit_model(plan: ModelPlan, backends: tuple[str, ...] | None = None) -> ModelBundle:
    """Return the bundle of a model's plan. Raises InputError for a backend that cannot emit
    models."""
    return ModelBundle(plan, model_backends(backends))


def plan_described(description: ModelDescription) -> ModelPlan:
    limit = description.memory_limit
    try:
        return plan_model(description.model(), *description.rules(), memory_limit=limit)
    except InputError as error:
        raise of_key(error) from None
