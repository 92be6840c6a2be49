"""The matmul modules of plain JAX."""

from __future__ import annotations

from shardwright.codegen.backends.jax_matmul.context import MatmulKind, matmul_text
from shardwright.codegen.backends.jax_matmul.docstring import USAGE
from shardwright.codegen.backends.jax_matmul.product import product_lines
from shardwright.codegen.backends.matmul_facts import refuse_wide_matmul
from shardwright.codegen.text.templates import render
from shardwright.ir.matmul import Matmul
from shardwright.ir.matmul_plan import MatmulPlan

NAME = "jax_xla"
PLAIN = MatmulKind(NAME, ("jax_matmul", "ArrayMatmul"), "a, b", 0, product_lines)


def refuse_matmul(matmul: Matmul) -> None:
    """Raise InputError for a matmul that this backend does not support."""
    refuse_wide_matmul(matmul, NAME)


def render_matmul(
    plan: MatmulPlan, command: str, backward: tuple[str, ...] = (), collective_id: int = 0
) -> str:
    """Return the text of a matmul's module. `backward`: the names of the sibling modules that
    compute the cotangents of lhs and rhs."""
    del collective_id  # only kernels use it
    return render("common/matmul.py.jinja", matmul_text(plan, command, backward, PLAIN))


def matmul_usage(plan: MatmulPlan) -> tuple[str, ...]:
    """Return sentences on how to use a module."""
    return (USAGE,)
