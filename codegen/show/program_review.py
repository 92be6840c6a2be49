"""A program's review page and its text for a terminal: every communication with its line, bytes,
seconds, reason and remedies."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from shardwright.codegen.hardware.presets import name_of, topology_of
from shardwright.codegen.partition.local.communications import (
    Communication,
    WrittenRow,
    WrittenRows,
)
from shardwright.codegen.partition.local.sizes import size_text
from shardwright.codegen.partition.partitioned import Partitioned
from shardwright.ir.mesh import Mesh

NOTHING = "nothing"
"""The first word of a remedy's text if a communication has no remedy."""
HEADINGS = ("", "collective", "axes", "value", "bytes", "line", "why", "what would lower it")


def program_page(
    program: Partitioned,
    name: str,
    written: WrittenRows,
    topology: str | None = None,
    kernels: Sequence[str] = (),
) -> str:
    """Return a program's page in Markdown. `written`: the table of communications, which uses the
    value names of the program's module. `topology` adds predicted seconds. `kernels`: a remark
    about each matmul next to a communication."""
    lines = [*_lines(program, name, written, topology)]
    lines += ["", "Matmuls next to a communication:", ""] if kernels else []
    return "\n".join([*lines, *(f"- {each}" for each in kernels)]) + "\n"


def _lines(
    program: Partitioned, name: str, written: WrittenRows, topology: str | None
) -> Iterator[str]:
    found = program.communications
    seconds = _seconds(program, topology)
    yield f"# {name}"
    yield ""
    yield f"`{program.program.name}` on the mesh `{program.mesh}`, as each device runs it."
    size, count = size_text(program.bytes_received), sum(each.count for each in found)
    counted = f"{count} communication{'' if count == 1 else 's'}"
    counted += f" ({len(found)} rows)" if len(found) not in (1, count) else ""
    yield f"The busiest device receives {size} in {counted}{_in_all(seconds, topology)}."
    yield f"Its computation costs as much as receiving {_computed(program)}."
    yield from (f"{said[0].upper()}{said[1:]}." for said in _bound(program))
    yield from _repeated(found)
    yield "`jax_spmd.py` is the program, `plan.json` has these rows."
    if program.padding:
        yield (
            "Arguments and results have equal shards: `pad` adds zeros at the ends of arguments "
            f"and `unpad` removes those of results, {program.padding:,} elements in all."
        )
    if any(each.saving for each in found):
        yield "A remedy lowers the bytes of its own row; it may add more to other rows."
    if any("constrain " in each.remedy for each in found):
        yield from _notation(program.mesh)
    yield from _usage(program, name)
    if found:
        headings = [*HEADINGS, "less in this row", *(["seconds"] if seconds else [])]
        yield ""
        yield f"| {' | '.join(headings)} |".replace("|  |", "| |")
        yield f"|{'|'.join('---' for _ in headings)}|"
        for number, each in enumerate(found):
            cells = [
                *_cells(each, written.get(each.number)),
                *([f"{seconds[number]:.3g}"] if seconds else []),
            ]
            yield f"| {' | '.join(cells)} |"
    for warning in program.warnings:
        yield ""
        yield f"- {warning}"


def _repeated(found: Sequence[Communication]) -> Iterator[str]:
    """Yield the work that devices repeat, each with the communication after which they do."""
    for each in found:
        if each.repeated:
            said = each.repeated.replace(" then repeat ", " repeat ")
            yield f"{said[0].upper()}{said[1:]}, after C{each.number}."


def _notation(mesh: Mesh) -> Iterator[str]:
    """Yield how a value is constrained, and what a sharding says, with axes of a mesh."""
    first = next(iter(mesh.sizes))
    yield (
        f"To constrain `x`, write `x = sw.constrain(x, '[{{\"{first}\"}}, {{}}]')` after `import "
        f'shardwright as sw`: "{first}" splits dimension 0 and no axis splits dimension 1, like '
        f'`P("{first}", None)`.'
    )


def _usage(program: Partitioned, name: str) -> Iterator[str]:
    """Yield a call of the program, as a block of Python."""
    sizes = program.mesh.sizes
    mesh = f"jax.make_mesh({tuple(sizes.values())}, {tuple(sizes)})".replace("'", '"')
    given = ", ".join(program.parameters)
    call = f"jax_spmd.unpad(run(*jax_spmd.pad({given})))" if program.padding else f"run({given})"
    yield from ("", "```python", "import jax", f"from {name} import jax_spmd", "")
    yield from (f"run = jax_spmd.program({mesh})", f"results = {call}", "```")


def _cells(each: Communication, written: WrittenRow | None) -> tuple[str, ...]:
    value = f"{each.value}: {each.shape}"
    if written is not None:
        pairs = itertools.zip_longest(written.names, written.types)
        values = ", ".join(f"{name}: {type_}" if type_ else name for name, type_ in pairs)
        value = f"{written.function}: {values}"
    return (
        f"C{each.number}",
        each.called,
        ", ".join(each.axes),
        f"`{value}`",
        size_text(each.bytes),
        each.line,
        each.reason if written is None else written.reason,
        each.remedy,
        size_text(each.saving) if each.saving else "",
    )


def remedies_text(program: Partitioned) -> str:
    """Return the effect of each communication's best remedy, found by partitioning again;
    communications with the same remedy share a line."""
    found: dict[str, list[str]] = {}
    for each in program.communications:
        found.setdefault(_remedied(program, each), []).append(f"C{each.number}")
    if not found:
        return "no device receives anything\n"
    lines = (f"    {', '.join(numbers)}: {said}" for said, numbers in found.items())
    return "\n".join(("total bytes with the best remedy:", *lines)) + "\n"


def _remedied(program: Partitioned, each: Communication) -> str:
    found = program.remedies(each.number)
    if not found and each.remedy.startswith(NOTHING):
        return each.remedy
    if not found:
        return "not known: in a function of layers only arguments are tried"
    said, made = found[0]
    more = made.bytes_received - program.bytes_received
    if more >= 0:
        if each.remedy.startswith(NOTHING):
            return each.remedy
        change = f"{size_text(more)} more" if more else "as much"
        return f"{NOTHING}: {change} with {said}"
    return f"{size_text(made.bytes_received)}, {size_text(-more)} less with {said}"


def _seconds(program: Partitioned, topology: str | None) -> tuple[float, ...]:
    return () if topology is None else program.seconds(topology)


def _computed(program: Partitioned) -> str:
    """Return the computation time as the bytes received in that time, with the assumed rates."""
    return f"{size_text(round(program.computed))} ({program.local.axes.rates})"


def _bound(program: Partitioned) -> Iterator[str]:
    bound = program.lower_bound
    if bound:
        times = math.ceil(100 * program.cost / bound) / 100
        yield f"both together are within {times:.2f} times a lower bound of {size_text(bound)}"


def _in_all(seconds: tuple[float, ...], topology: str | None) -> str:
    if topology is None:
        return ""
    return f", {sum(seconds):.3g} seconds on {name_of(topology_of(topology))}"


def program_text(
    program: Partitioned, topology: str | None = None, kernels: Sequence[str] = ()
) -> str:
    """Return a program's communication for a terminal. `topology` adds predicted seconds.
    `kernels`: a remark about each matmul next to a communication."""
    found = program.communications
    seconds = _seconds(program, topology)
    total = size_text(program.bytes_received) + _in_all(seconds, topology)
    lines = [
        f"{program.program.name} on {program.mesh}: the busiest device receives {total}",
        f"its computation costs as much as receiving {_computed(program)}",
        *_bound(program),
    ]
    for number, each in enumerate(found):
        lines.append(str(each))
        where = f"{each.line}: " if each.line else ""
        becomes = "becomes" if each.values == 1 else "become"
        lasts = f", in {seconds[number]:.3g} seconds" if seconds else ""
        lines.append(f"    {where}{each.value} {becomes} {each.shape}{lasts}")
        saves = f" ({size_text(each.saving)} less in this row)" if each.saving else ""
        lines.append(f"    to lower it, {each.remedy}{saves}")
    lines += ["matmuls next to a communication:"] if kernels else []
    return "\n".join((*lines, *(f"    {each}" for each in kernels), *program.warnings)) + "\n"
