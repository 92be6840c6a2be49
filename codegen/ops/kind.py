"""What is known about one kind of op: the row that its family's file has for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from shardwright.codegen.ops.build import Shapes
from shardwright.codegen.ops.form_texts.statement import FormLines, FormText
from shardwright.codegen.ops.forms.form import LocalForm, OpTensors
from shardwright.codegen.ops.text import MakeText
from shardwright.ir.program import Op, Rule

MakeRule = Callable[[Op, Shapes, Shapes], Rule]
MakeForm = Callable[[OpTensors], LocalForm | None]
MakeFormText = Callable[[FormText], FormLines]
Group = Literal["", "elementwise", "cumulative", "collective", "constant", "control", "opaque"]


@dataclass(frozen=True)
class OpKind:
    """A kind of op, by its name in a jaxpr, and what each stage knows about it.

    Propagation. `rule`: makes the sharding rule of an op from the shapes of its operands and
    results; None: no sharding propagates through it. `passes`: whether it is visited early, as
    elementwise ops are.

    Modules. `text`: writes the op for shards; None: another file of the backend writes it, or
    nothing does. `symbol`: Python's operator for it. `numbers`: whether it accepts a Python number
    as an operand. `imports`: the import that its text needs besides `jax`, `jnp` and `lax`, or the
    function that returns it for an op.
    `refused`: why a module cannot contain it.

    Local forms. `form`: makes the form in which it runs along split dimensions; `form_text`: writes
    this form; `form_imports`: the import that this text needs.
    """

    name: str
    rule: MakeRule | None = None
    text: MakeText | None = None
    form: MakeForm | None = None
    form_text: MakeFormText | None = None
    group: Group = ""
    passes: bool = False
    symbol: str = ""
    numbers: bool = False
    imports: str | Callable[[Op], str] = ""
    form_imports: str = ""
    refused: str = ""

    @property
    def is_elementwise(self) -> bool:
        """Whether all operands and results have one shape, and elements are computed alone."""
        return self.group == "elementwise"
