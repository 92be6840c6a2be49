"""The `Answers` for each class of description."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

from shardwright.codegen.operations.answers import Answers
from shardwright.codegen.spec.description import Description
from shardwright.codegen.spec.group import Group
from shardwright.codegen.spec.matmul import MatmulDescription, Operation
from shardwright.codegen.spec.model import ModelDescription
from shardwright.codegen.spec.program import ProgramDescription
from shardwright.codegen.spec.relayout import RelayoutDescription

FILES: dict[type, str] = {
    Description: "reshard",
    MatmulDescription: "matmul",
    ProgramDescription: "program",
    RelayoutDescription: "relayout",
    ModelDescription: "model",
    Group: "group",
}
"""The file in this folder with the answers for each class of description. A command loads only the
files of its operations."""


def answers_of(said: Operation | Group) -> Answers[Any]:
    return _loaded(FILES[type(said)])


@cache
def _loaded(name: str) -> Answers[Any]:
    found: Answers[Any] = import_module(f"{__package__}.{name}").ANSWERS
    return found
