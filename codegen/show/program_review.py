"""The page of a program for a review: every communication with its line, bytes, reason, remedy."""

from __future__ import annotations

from collections.abc import Iterator

from shardwright.codegen.partition.local.communications import size_text
from shardwright.codegen.partition.partitioned import Partitioned


def program_page(program: Partitioned, name: str) -> str:
    """Return the page of a program under a name, in Markdown."""
    return "\n".join(_lines(program, name)) + "\n"


def _lines(program: Partitioned, name: str) -> Iterator[str]:
    found = program.communications
    yield f"# {name}"
    yield ""
    yield f"`{program.program.name}` on the mesh `{program.mesh}`, as each device runs it."
    yield f"The busiest device receives {size_text(program.bytes_received)} in {len(found)} "
    yield "communications. `jax_spmd.py` is the program, `plan.json` has these rows."
    if not found:
        return
    yield ""
    yield "| | collective | axes | value | bytes | line | why | what would remove it |"
    yield "|---|---|---|---|---|---|---|---|"
    for each in found:
        cells = (
            f"C{each.number}",
            each.op.replace("_", "-"),
            ", ".join(each.axes),
            f"`{each.value}: {each.shape}`",
            size_text(each.bytes),
            each.line,
            each.reason,
            each.remedy,
        )
        yield f"| {' | '.join(cells)} |"
    for warning in program.warnings:
        yield ""
        yield f"- {warning}"


def program_text(program: Partitioned) -> str:
    """Return the communications of a program for a terminal."""
    found = program.communications
    total = size_text(program.bytes_received)
    lines = [f"{program.program.name} on {program.mesh}: the busiest device receives {total}"]
    for each in found:
        lines.append(str(each))
        where = f"{each.line}: " if each.line else ""
        lines.append(f"    {where}{each.value} becomes {each.shape}; to remove it, {each.remedy}")
    return "\n".join((*lines, *program.warnings)) + "\n"
