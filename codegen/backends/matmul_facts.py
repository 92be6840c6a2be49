"""The facts that matmul modules of every backend state, and the checks that all backends share."""

from __future__ import annotations

import textwrap

from shardwright.codegen.backends.int32 import MAX_INDEX, ROUNDING
from shardwright.codegen.backends.jax_terms import with_terms
from shardwright.codegen.text.context import check_ascii_names
from shardwright.codegen.text.docstring import TABLE_DEVICES, box_text
from shardwright.codegen.text.python_text import INDENT, WIDTH
from shardwright.ir.errors import InputError, one_of
from shardwright.ir.layout import Layout
from shardwright.ir.matmul import SIDES, Matmul, Side
from shardwright.ir.matmul_plan import MatmulPlan


def matmul_title(matmul: Matmul) -> str:
    """Return the title of a matmul's module, with the shapes of the operands and the number of
    devices."""
    shapes = (f"[{', '.join(map(str, matmul.shape(side)))}]" for side in ("lhs", "rhs"))
    lhs, rhs = shapes
    return f"Multiplies {matmul.dtype}{lhs} by {rhs} over {matmul.mesh.size} devices."


def dims_said(matmul: Matmul, side: Side) -> str:
    names = (matmul.factor_name(factor) for factor in matmul.factors(side))
    return ", ".join(name.replace("batch ", "b") for name in names)


def case_lines(plan: MatmulPlan) -> list[str]:
    """Return one sentence per axis on how the matmul uses it."""
    lines = [] if plan.cases else ["Case 1: every device has all of both operands."]
    for case in plan.cases:
        number = f"case {case.number}" if case.number else "a sum still to be made"
        lines += wrapped(f"Along {case.axis}, {number}: {case.why}.", "")
    return lines


def device_table(layouts: dict[Side, Layout]) -> list[str]:
    """Return a table of the index ranges of the three tensors on every device, or no lines for a
    mesh of more than TABLE_DEVICES devices."""
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


def wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent=indent, subsequent_indent=indent + INDENT,
        break_long_words=False,
    )  # fmt: skip


def layout_of(matmul: Matmul, side: Side) -> Layout:
    """Return the layout of a side's array. The terms of a side, if it has any, are its first
    dimension."""
    return with_terms(Layout.of(matmul.sharding(side), matmul.shape(side), "flat"))


def refuse_wide_matmul(matmul: Matmul, name: str) -> None:
    """Raise InputError if axis names are not ASCII or padded extents exceed 32-bit indices."""
    check_ascii_names(matmul.mesh, "mesh")
    padded = max(dim.parts * dim.size for side in SIDES for dim in layout_of(matmul, side).dims)
    if padded > MAX_INDEX - ROUNDING:
        raise InputError(
            f"padded shards have indices up to {padded}, which {name} cannot compute in 32 bits",
            argument="lhs",
            got=" and ".join("x".join(map(str, matmul.shape(side))) for side in SIDES[:2]),
            expected=f"padded shards that end at or below {MAX_INDEX - ROUNDING}",
        )


def refuse_dtype(matmul: Matmul, name: str, dtypes: tuple[str, ...]) -> None:
    if matmul.dtype not in dtypes:
        raise InputError(
            f"{name} cannot multiply this dtype",
            argument="dtype",
            got=matmul.dtype,
            expected=one_of(dtypes),
        )
