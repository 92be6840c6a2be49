"""The module of a matmul with a Pallas kernel, in which parts travel around rings while devices
multiply.

Other moves are collectives, as in a plain JAX module. If the plan has no loop, XLA computes the
product.
"""

from __future__ import annotations

from shardwright.codegen.backends.base import RingText
from shardwright.codegen.backends.jax_matmul.context import MatmulKind, matmul_text
from shardwright.codegen.backends.jax_matmul.docstring import USAGE
from shardwright.codegen.backends.jax_matmul.product import (
    ProductText,
    padding_lines,
    product_lines,
    product_said,
)
from shardwright.codegen.backends.jax_matmul.steps import MatmulSteps
from shardwright.codegen.backends.jax_steps.plan import comment
from shardwright.codegen.backends.jax_steps.statements import used_by
from shardwright.codegen.backends.matmul_facts import refuse_dtype, refuse_wide_matmul
from shardwright.codegen.backends.pallas_tpu.context import NAME
from shardwright.codegen.backends.pallas_tpu.matmul.kernel import MatmulRing
from shardwright.codegen.backends.pallas_tpu.matmul.lines import calls_of, kernel_lines
from shardwright.codegen.text.templates import render
from shardwright.ir.errors import InternalError
from shardwright.ir.matmul import Matmul
from shardwright.ir.matmul_plan import MatmulPlan

DTYPES = "bfloat16", "float32", "int8"
"""The dtypes that kernels can multiply."""

MODULE = "pallas_matmul"
"""The support module for matmul kernels."""

JAX = (
    "import numpy as np",
    "from jax.experimental import pallas as pl",
    "from jax.experimental.pallas import tpu as pltpu",
)
"""The import lines that kernels need in addition to `jnp`."""


def refuse_matmul(matmul: Matmul) -> None:
    """Raise InputError for a matmul that this backend does not support."""
    refuse_wide_matmul(matmul, NAME)
    refuse_dtype(matmul, NAME, DTYPES)


def matmul_usage(plan: MatmulPlan) -> tuple[str, ...]:
    """Return sentences on how to use a module."""
    return (
        USAGE,
        "Such kernels have run in JAX's interpreter and compile for TPUs; none has run on a TPU.",
    )


def render_matmul(
    plan: MatmulPlan, command: str, backward: tuple[str, ...] = (), collective_id: int = 0
) -> str:
    """Return the text of a module; `backward`: the names of the modules that compute the cotangents
    of lhs and rhs; `collective_id`: the id of its kernel."""

    def product(plan: MatmulPlan, steps: MatmulSteps) -> ProductText:
        return _product(plan, steps, collective_id)

    kind = MatmulKind(NAME, (MODULE, "PallasMatmul"), "a, b, interpret", 1, product)
    return render("common/matmul.py.jinja", matmul_text(plan, command, backward, kind))


def ring_of(plan: MatmulPlan, name: str, axes: str, collective_id: int) -> RingText:
    """Return the kernel of a plan's loop, as the text of a constant in a program's module.

    Raises InputError for a matmul that this backend does not support, and InternalError for a plan
    without a loop.
    """
    refuse_matmul(plan.matmul)
    if plan.chosen.loop is None:
        raise InternalError("a kernel of a program needs a plan with a loop")
    ring = MatmulRing.of(plan, plan.chosen.loop)
    lines = kernel_lines(ring, name, axes, collective_id)
    return RingText(("", "", *lines), JAX, calls_of(lines))


def _product(plan: MatmulPlan, steps: MatmulSteps, collective_id: int) -> ProductText:
    loop = plan.chosen.loop
    if loop is None:
        plain = product_lines(plan, steps)
        facts = ("Nothing travels while devices multiply, so the product is XLA's.",)
        return ProductText(
            ("del interpret  # of kernels", *plain.lines), plain.calls, plain.uses, facts
        )
    ring = MatmulRing.of(plan, loop)
    padding = padding_lines(plan.chosen.multiplication, steps)
    lines = [*comment(f"{steps.product}. {product_said(plan, steps)}"), *padding]
    lines.append("c = _RING.product(a, b, interpret)")
    kernel = kernel_lines(ring, "_RING", "AXES", collective_id)
    calls = calls_of(kernel).items()
    return ProductText(
        tuple(lines),
        ("without_padding",) if padding else (),
        used_by(lines) | frozenset(("jnp", "np", "pl", "pltpu")),
        ring.facts(),
        ("", "", *kernel),
        tuple((module, name) for module, names in calls for name in names),
        ("ring=_RING",),
        ring.carried,
    )
