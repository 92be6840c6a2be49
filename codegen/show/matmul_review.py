"""The review page of a matmul's bundle."""

from __future__ import annotations

import textwrap

from shardwright.codegen.show.matmul import (
    CANDIDATES,
    Row,
    candidate_rows,
    case_lines,
    columns,
    matmul_words,
    picture_rows,
    sharding_rows,
    why_line,
)
from shardwright.ir.matmul_plan import MatmulPlan

PICTURE = "![What each device has of A, B and C while it multiplies](matmul.svg)"
WIDTH = 80
"""Characters of a line, but for commands and tables."""


def matmul_page(plan: MatmulPlan, name: str, command: str) -> str:
    """Return the README.md of a bundle, in Markdown; the same for the same input."""
    picture = columns(picture_rows(plan))
    sections = (
        f"# {name}",
        f"{matmul_words(plan.matmul)}, C[…, i, k] = sum over j of A[…, i, j] B[…, j, k].",
        _block(columns(sharding_rows(plan.matmul))),
        "## The case",
        *(textwrap.fill(line, WIDTH, break_on_hyphens=False) for line in case_lines(plan)),
        "## What it could be, and what it is",
        why_line(plan),
        _markdown((CANDIDATES, *candidate_rows(plan))),
        _priced(plan),
        *(("## Who multiplies what", PICTURE, _block(picture)) if picture else ()),
        "## To make and to check it",
        _block(
            "\n".join(
                (
                    command,
                    f"shardwright verify generated/{name}  # against an oracle",
                    "shardwright check generated  # against what would be emitted now",
                )
            ),
            "sh",
        ),
    )
    return "\n\n".join(sections) + "\n"


def _priced(plan: MatmulPlan) -> str:
    """Return what the figures are of."""
    where = (
        "one switch without latencies, as no topology is given"
        if plan.topology is None
        else plan.topology
    )
    text = (
        "The first row is the plan, the others are the next best of other kinds. Flops and bytes "
        f"are those of the busiest device; seconds are a model's, on {where}."
    )
    return textwrap.fill(text, WIDTH)


def _block(text: str, language: str = "") -> str:
    return f"```{language}\n{text}\n```"


def _markdown(rows: tuple[Row, ...]) -> str:
    head, *rest = rows
    lines = [head, tuple("---" for _ in head), *rest]
    return "\n".join("| " + " | ".join(row) + " |" for row in lines)
