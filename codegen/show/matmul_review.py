"""The review page of a matmul's bundle."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

from shardwright.codegen.hardware.presets import idle_text, name_of, topology_of
from shardwright.codegen.show.matmul import (
    CANDIDATES,
    Row,
    candidate_row,
    candidate_rows,
    case_lines,
    columns,
    instead_line,
    matmul_words,
    picture_rows,
    sharding_rows,
    why_line,
)
from shardwright.codegen.show.review import commands_text, item
from shardwright.ir.matmul_plan import MatmulPlan

PICTURE = "![What each device has of A, B and C while it multiplies](matmul.svg)"
WIDTH = 80
"""Characters per line, except in commands and tables."""


def matmul_page(
    plan: MatmulPlan,
    name: str,
    command: str,
    backward: tuple[MatmulPlan, ...] = (),
    usage: Mapping[str, Sequence[str]] = {},
) -> str:
    """Return a bundle's README.md as deterministic text. `backward`: the plans of the cotangents
    of lhs and rhs, if emitted. `usage`: sentences for the users of each module, by file name."""
    picture = columns(picture_rows(plan))
    sections = (
        f"# {name}",
        f"{matmul_words(plan.matmul)}: C[…, i, k] = sum over j of A[…, i, j] B[…, j, k].",
        _block(columns(sharding_rows(plan.matmul))),
        "## The case",
        *(textwrap.fill(line, WIDTH, break_on_hyphens=False) for line in case_lines(plan)),
        "## Candidates",
        " ".join(each for each in (why_line(plan), instead_line(plan)) if each),
        _markdown((CANDIDATES, *candidate_rows(plan))),
        _priced(plan),
        *(("## Who multiplies what", PICTURE, _block(picture)) if picture else ()),
        *_gradients(backward),
        *_usage(usage),
        "## Emit and check",
        commands_text(name, command, _described(plan)),
    )
    return "\n\n".join(sections) + "\n"


def _usage(usage: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    return tuple(
        text
        for file, sentences in usage.items()
        for text in (f"## Using `{file}`", "\n".join(map(item, sentences)))
    )


def module_lines(plan: MatmulPlan, loops: tuple[str, ...]) -> tuple[str, ...]:
    """Return a sentence on what a module does, if it is not what the plan says. `loops`: the loops
    that the module executes."""
    chosen, pulls = plan.chosen, "pulled" in loops
    if chosen.pulled and not pulls:
        return (
            "It has no kernel that exchanges parts: it moves first and then multiplies, in "
            f"{chosen.cost.apart:.3g} predicted seconds.",
        )
    if chosen.pulled or not pulls or not plan.pulls or not any(chosen.cost.received):
        return ()
    same = [each for each in plan.others if each.multiplication == chosen.multiplication]
    takes = f", in {same[0].cost.seconds:.3g} predicted seconds" if same else ""
    instead = "in place of rings" if chosen.loop else 'unless you ask for loop="never"'
    return (f"A kernel exchanges parts while it multiplies, {instead}{takes}.",)


def _described(plan: MatmulPlan) -> str:
    topology = ""
    if plan.topology is not None:
        topology = f', topology="{name_of(topology_of(plan.topology))}"'
    return f', whose manifest.json has the matmul{topology} and loop="{plan.asked}"'


def _gradients(backward: tuple[MatmulPlan, ...]) -> tuple[str, ...]:
    if not backward:
        return ()
    text = (
        "The cotangent of lhs is the cotangent of C times B transposed; the cotangent of rhs is A "
        "transposed times the cotangent of C. Each is a separate matmul in a module next to this "
        "one, with its own i, j and k."
    )
    pairs = zip(("lhs", "rhs"), backward, strict=True)
    rows = [(side, *candidate_row(each.chosen)) for side, each in pairs]
    heading = ("cotangent of", *CANDIDATES)
    return "## Its gradients", textwrap.fill(text, WIDTH), _markdown((heading, *rows))


def _priced(plan: MatmulPlan) -> str:
    if plan.topology is None:
        where = "one switch without latencies, because no topology is given"
    else:
        topology = topology_of(plan.topology)
        where = f"{name_of(topology)}{idle_text(topology, plan.matmul.mesh.size)}"
    text = (
        "The first row is the plan; the others are the best candidates of other kinds. Flops and "
        f"bytes are for the busiest device; seconds are predicted by a model of {where}."
    )
    return textwrap.fill(text, WIDTH)


def _block(text: str) -> str:
    return f"```\n{text}\n```"


def _markdown(rows: tuple[Row, ...]) -> str:
    head, *rest = rows
    lines = [head, tuple("---" for _ in head), *rest]
    return "\n".join("| " + " | ".join(row) + " |" for row in lines)
