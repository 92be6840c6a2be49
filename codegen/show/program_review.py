"""The page of a program for a review, and its text for a terminal: every communication with its
line, bytes, seconds, reason, and what would remove it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shardwright.codegen.hardware.presets import name_of, topology_of
from shardwright.codegen.partition.local.communications import Communication
from shardwright.codegen.partition.local.sizes import size_text
from shardwright.codegen.partition.partitioned import Partitioned
from shardwright.codegen.partition.remedied import gathered_arguments

HEADINGS = ("", "collective", "axes", "value", "bytes", "line", "why", "what would remove it")


def program_page(
    program: Partitioned, name: str, topology: str | None = None, kernels: Sequence[str] = ()
) -> str:
    """Return the page of a program under a name, in Markdown; with a topology, seconds on it;
    `kernels`: what is said of each matmul beside which something moves."""
    lines = [*_lines(program, name, topology)]
    lines += ["", "Matmuls beside which something moves:", ""] if kernels else []
    return "\n".join([*lines, *(f"- {each}" for each in kernels)]) + "\n"


def _lines(program: Partitioned, name: str, topology: str | None) -> Iterator[str]:
    found = program.communications
    seconds = _seconds(program, topology)
    yield f"# {name}"
    yield ""
    yield f"`{program.program.name}` on the mesh `{program.mesh}`, as each device runs it."
    size, count = size_text(program.bytes_received), len(found)
    counted = f"{count} communication{'' if count == 1 else 's'}"
    yield f"The busiest device receives {size} in {counted}{_in_all(seconds, topology)}."
    yield f"It computes for the time of {_computed(program)}."
    yield "`jax_spmd.py` is the program, `plan.json` has these rows."
    if found:
        headings = [*HEADINGS, "saves of it alone", *(["seconds"] if seconds else [])]
        yield ""
        yield f"| {' | '.join(headings)} |".replace("|  |", "| |")
        yield f"|{'|'.join('---' for _ in headings)}|"
        for number, each in enumerate(found):
            cells = [*_cells(each), *([f"{seconds[number]:.3g}"] if seconds else [])]
            yield f"| {' | '.join(cells)} |"
    for warning in program.warnings:
        yield ""
        yield f"- {warning}"


def _cells(each: Communication) -> tuple[str, ...]:
    return (
        f"C{each.number}",
        each.op.replace("_", "-"),
        ", ".join(each.axes),
        f"`{each.value}: {each.shape}`",
        size_text(each.bytes),
        each.line,
        each.reason,
        each.remedy,
        size_text(each.saving),
    )


def remedies_text(program: Partitioned) -> str:
    """Return what each remedy of an argument that is gathered does in all, by partitioning
    again."""
    lines = ["with an argument left whole where it is gathered, in all is received:"]
    for numbers in gathered_arguments(program.local):
        first = program.communications[numbers[0] - 1]
        made = program.with_remedy(numbers[0]).bytes_received
        more = made - program.bytes_received
        change = f"{size_text(abs(more))} {'more' if more > 0 else 'less'}" if more else "the same"
        said = ", ".join(f"C{number}" for number in numbers)
        lines.append(f"    {said} ({first.value}): {size_text(made)}, {change}")
    if len(lines) == 1:
        return "no argument is gathered\n"
    return "\n".join(lines) + "\n"


def _seconds(program: Partitioned, topology: str | None) -> tuple[float, ...]:
    return () if topology is None else program.seconds(topology)


def _computed(program: Partitioned) -> str:
    """Return what is computed as bytes, and how they were weighed."""
    return f"{size_text(round(program.computed))} ({program.local.axes.rates})"


def _in_all(seconds: tuple[float, ...], topology: str | None) -> str:
    """Return what they take together, one after another."""
    if topology is None:
        return ""
    return f", {sum(seconds):.3g} seconds on {name_of(topology_of(topology))}"


def program_text(
    program: Partitioned, topology: str | None = None, kernels: Sequence[str] = ()
) -> str:
    """Return the communications of a program for a terminal; with a topology, seconds on it;
    `kernels`: what is said of each matmul beside which something moves."""
    found = program.communications
    seconds = _seconds(program, topology)
    total = size_text(program.bytes_received) + _in_all(seconds, topology)
    lines = [
        f"{program.program.name} on {program.mesh}: the busiest device receives {total}",
        f"it computes for the time of {_computed(program)}",
    ]
    for number, each in enumerate(found):
        lines.append(str(each))
        where = f"{each.line}: " if each.line else ""
        lasts = f", in {seconds[number]:.3g} seconds" if seconds else ""
        lines.append(f"    {where}{each.value} becomes {each.shape}{lasts}")
        saves = f" (saves {size_text(each.saving)} of it alone)" if each.saving else ""
        lines.append(f"    to remove it, {each.remedy}{saves}")
    lines += ["matmuls beside which something moves:"] if kernels else []
    return "\n".join((*lines, *(f"    {each}" for each in kernels), *program.warnings)) + "\n"
