"""The `Answers` for each class of description."""

from __future__ import annotations

from typing import Any

from shardwright.codegen.operations.answers import Answers
from shardwright.codegen.operations.group import GroupAnswers
from shardwright.codegen.operations.matmul import MatmulAnswers
from shardwright.codegen.operations.model import ModelAnswers
from shardwright.codegen.operations.program import ProgramAnswers
from shardwright.codegen.operations.relayout import RelayoutAnswers
from shardwright.codegen.operations.reshard import ReshardAnswers
from shardwright.codegen.spec.description import Description
from shardwright.codegen.spec.group import Group
from shardwright.codegen.spec.matmul import MatmulDescription, Operation
from shardwright.codegen.spec.model import ModelDescription
from shardwright.codegen.spec.program import ProgramDescription
from shardwright.codegen.spec.relayout import RelayoutDescription

ANSWERS: dict[type, Answers[Any]] = {
    Description: ReshardAnswers(),
    MatmulDescription: MatmulAnswers(),
    ProgramDescription: ProgramAnswers(),
    RelayoutDescription: RelayoutAnswers(),
    ModelDescription: ModelAnswers(),
    Group: GroupAnswers(),
}
"""The `Answers` for each class of description."""


def answers_of(said: Operation | Group) -> Answers[Any]:
    return ANSWERS[type(said)]
