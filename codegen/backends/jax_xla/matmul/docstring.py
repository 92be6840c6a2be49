"""The docstring of the module of a matmul."""

from __future__ import annotations

import textwrap

from shardwright.codegen.backends.jax_xla.matmul.product import product_said
from shardwright.codegen.backends.jax_xla.matmul.steps import MatmulSteps
from shardwright.codegen.text.docstring import TABLE_DEVICES, box_text, mesh_text, side_lines
from shardwright.codegen.text.python_text import INDENT, WIDTH
from shardwright.ir.dtypes import is_floating
from shardwright.ir.layout import Layout
from shardwright.ir.matmul import SIDES, Matmul, Side
from shardwright.ir.matmul_plan import MatmulPlan


def matmul_title(matmul: Matmul) -> str:
    """Return one line: the operands, and the number of devices."""
    shapes = (f"[{', '.join(map(str, matmul.shape(side)))}]" for side in ("lhs", "rhs"))
    lhs, rhs = shapes
    return f"Multiplies {matmul.dtype}{lhs} by {rhs} over {matmul.mesh.size} devices."


def matmul_facts(
    plan: MatmulPlan, steps: MatmulSteps, layouts: dict[Side, Layout], more: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """Return lines on shardings, the case, steps, traffic, and the devices' ranges; `more`: further
    lines on the product."""
    matmul = plan.matmul
    lines = [f"C[{dims_said(matmul, 'out')}] = sum over j of A[{dims_said(matmul, 'lhs')}] * "
             f"B[{dims_said(matmul, 'rhs')}], on {mesh_text(matmul.mesh)}."]  # fmt: skip
    names: tuple[tuple[Side, str], ...] = (("lhs", "A"), ("rhs", "B"), ("out", "C"))
    for side, name in names:
        stated = side_lines(side, name, str(matmul.sharding(side)), layouts[side], "padded")
        lines += [stated[0].replace(f" on {mesh_text(matmul.mesh)}", ""), *stated[2:]]
    return (*lines, "", *case_lines(plan), "", *_step_lines(plan, steps), *_sums(plan),
            *(line for text in more for line in _wrapped(text, "")),
            *device_table(layouts))  # fmt: skip


def dims_said(matmul: Matmul, side: Side) -> str:
    names = (matmul.factor_name(factor) for factor in matmul.factors(side))
    return ", ".join(name.replace("batch ", "b") for name in names)


def case_lines(plan: MatmulPlan) -> list[str]:
    """Return the case of every axis, in words."""
    lines = [] if plan.cases else ["Case 1: every device has all of both operands."]
    for case in plan.cases:
        number = f"case {case.number}" if case.number else "a sum still to be made"
        lines += _wrapped(f"Along {case.axis}, {number}: {case.why}.", "")
    return lines


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
        lines += _wrapped(f"{number}. {text}", INDENT)
    return [*lines, "", f"On the wire {steps.received} bytes into the busiest device."]


def _sums(plan: MatmulPlan) -> list[str]:
    """Return the dtype in which products are summed, and to which partial sums are rounded."""
    matmul = plan.matmul
    text = f"A device sums its products in {matmul.sum_dtype}."
    if plan.chosen.multiplication.shardings["out"].unreduced:
        text += f" Partial sums of devices are {matmul.out_dtype}"
        floats = "; they are added in an order that XLA chooses."
        if plan.chosen.loop is not None and plan.chosen.loop.side == "out":
            floats = "; a part is rounded to that at each of its hops round a ring."
        text += floats if is_floating(matmul.out_dtype) else ", and wrap."
    return _wrapped(text, "")


def device_table(layouts: dict[Side, Layout]) -> list[str]:
    """Return every device's part of the three tensors, in columns, if there are few devices."""
    mesh = layouts["out"].mesh
    if mesh.size > TABLE_DEVICES:
        return []
    boxes = [layouts[side].boxes().tolist() for side in SIDES]
    rows = [("device", *SIDES)]
    rows += [
        (str(device), *(box_text(each[position]) for each in boxes))
        for position, device in enumerate(mesh.device_ids)
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    text = ("  ".join([*(f"{row[c]:<{widths[c]}}" for c in range(3)), row[3]]) for row in rows)
    return ["", *(f"{INDENT}{line}" for line in text)]


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent=indent, subsequent_indent=indent + INDENT,
        break_long_words=False,
    )  # fmt: skip
