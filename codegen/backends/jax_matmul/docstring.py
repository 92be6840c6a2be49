"""The docstring of a matmul module."""

from __future__ import annotations

from shardwright.codegen.backends.jax_matmul.product import product_said
from shardwright.codegen.backends.jax_matmul.steps import MatmulSteps
from shardwright.codegen.backends.matmul_facts import case_lines, device_table, dims_said, wrapped
from shardwright.codegen.text.docstring import mesh_text, side_lines
from shardwright.codegen.text.python_text import INDENT
from shardwright.ir.dtypes import is_floating
from shardwright.ir.layout import Layout
from shardwright.ir.matmul import Side
from shardwright.ir.matmul_plan import MatmulPlan

USAGE = (
    "Call `c = unpad(matmul(pad_lhs(a), pad_rhs(b), mesh))`, also in `jax.jit`, with operands "
    "sharded as `lhs_sharding(mesh)` and `rhs_sharding(mesh)`."
)
"""A sentence on how to call a module."""


def matmul_facts(
    plan: MatmulPlan, steps: MatmulSteps, layouts: dict[Side, Layout], more: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """Return docstring lines about shardings, how the matmul uses each axis, steps, traffic, and
    the index ranges of devices. `more`: additional lines about the product."""
    matmul = plan.matmul
    lines = [f"C[{dims_said(matmul, 'out')}] = sum over j of A[{dims_said(matmul, 'lhs')}] * "
             f"B[{dims_said(matmul, 'rhs')}], on {mesh_text(matmul.mesh)}."]  # fmt: skip
    names: tuple[tuple[Side, str], ...] = (("lhs", "A"), ("rhs", "B"), ("out", "C"))
    for side, name in names:
        stated = side_lines(side, name, str(matmul.sharding(side)), layouts[side], "padded")
        lines += [stated[0].replace(f" on {mesh_text(matmul.mesh)}", ""), *stated[2:]]
    return (*lines, "", *case_lines(plan), "", *_step_lines(plan, steps), *_sums(plan),
            *(line for text in more for line in wrapped(text, "")),
            *device_table(layouts))  # fmt: skip


def _step_lines(plan: MatmulPlan, steps: MatmulSteps) -> list[str]:
    said = [(s.number, f"{s.said}; {s.received} bytes") for s in steps.before]
    rotated = ""
    if steps.rotated is not None:
        carried = steps.rotated.received if steps.carried is None else steps.carried
        rotated = f"; {carried} bytes"
    said.append((steps.product, product_said(plan, steps) + rotated))
    said += [(step.number, f"{step.said}; {step.received} bytes") for step in steps.after]
    lines = ["Steps, with the bytes that each brings to the busiest device:"]
    for number, text in said:
        lines += wrapped(f"{number}. {text}", INDENT)
    padded = ", padding included" if steps.received > plan.chosen.cost.received_max else ""
    return [*lines, "", f"The busiest device receives {steps.received} bytes{padded}."]


def _sums(plan: MatmulPlan) -> list[str]:
    matmul = plan.matmul
    text = f"A device sums its products in {matmul.sum_dtype}."
    if plan.chosen.multiplication.shardings["out"].unreduced:
        text += f" Partial sums sent between devices are {matmul.out_dtype}"
        floats = "; they are added in an order that XLA chooses."
        if plan.chosen.loop is not None and plan.chosen.loop.side == "out":
            floats = f"; a part is rounded to {matmul.out_dtype} at every hop."
        text += floats if is_floating(matmul.out_dtype) else ", and wrap."
    return wrapped(text, "")
