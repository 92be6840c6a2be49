"""The review page of a bundle: the facts needed to judge its modules.

It answers a reviewer's questions: which data moves, how many bytes, and between which devices. Each
fact appears once; `shardwright show` prints derivation, proof and text pictures.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence

from shardwright.codegen.hardware.presets import idle_text, name_of, topology_of
from shardwright.codegen.show.steps import STEP_HEADINGS, choice_lines, step_rows
from shardwright.codegen.show.tables import (
    DEVICE_HEADINGS,
    Row,
    device_rows,
    more_text,
    not_enumerated,
    ratio,
)
from shardwright.codegen.spec.description import IN_PARENT
from shardwright.codegen.text.docstring import senders, side_lines, tile_lines, what_moves
from shardwright.codegen.text.python_text import wrapped
from shardwright.codegen.text.table import along_text, are_some, cut_dims, permutation
from shardwright.ir.plan import ENUMERATED_DEVICES, DirectPlan, Plan, SteppedPlan

WIDTH = 80
"""Characters per line, except in commands and tables."""

RINGS = "rings.svg"
"""The file name of the picture of rings in a bundle."""
Tables = Iterable[tuple[str, tuple[Row, tuple[Row, ...]], str]]


def review_page(
    plan: Plan,
    name: str,
    command: str,
    tables: Tables = (),
    backward: Sequence[str] = (),
    takes: Sequence[str] = (),
    rings: bool = False,
) -> str:
    """Return a bundle's README.md as deterministic text.

    `tables`: the backends' tables, each a title, a heading with rows, and a sentence under it or
    "". `backward`: the files of the reverse reshard, which derivatives need. `takes`: lines on the
    calls, stages, seconds and features of modules, and the comparison with peers. `rings`: whether
    there is a picture of rings.
    """
    sections = (
        f"# {name}",
        f"{what_moves(plan)}.",
        _block(_form(plan)),
        _markdown(("bytes", "moved", "least possible", "ratio"), _traffic_rows(plan)),
        *(("\n".join(map(item, takes)),) if takes else ()),
        *_cost(plan),
        *(_steps(plan) if isinstance(plan, SteppedPlan) else _exchanged(plan)),
        "![The source shards, the target shards, and the tiles they share](reshard.svg)",
        *((f"![The parts that travel round rings, step by step]({RINGS})",) if rings else ()),
        *(text for table in tables for text in _table(*table)),
        "## Emit and check",
        *_backward(backward),
        commands_text(name, command),
    )
    return "\n\n".join(sections) + "\n"


def _table(title: str, rows: tuple[Row, tuple[Row, ...]], note: str) -> Iterator[str]:
    yield from (f"## {title}", _markdown(*rows))
    if note:
        yield _paragraph(note)


def calls_of(plan: Plan) -> dict[str, str]:
    """Return the call of a module, as part of a sentence, by the package of its arrays."""
    before, after = plan.reshard.source.mesh, plan.reshard.target.mesh
    apart = {*before.device_ids} != {*after.device_ids}
    to = ", target_mesh=target_mesh" if apart else ""
    layouts = plan.outline.source, plan.outline.target
    is_even = all(dim.is_even for layout in layouts for dim in layout.dims)
    x, start, end = ("x", "", "") if is_even else ("pad(x)", "unpad(", ")")
    return {
        "jax": f"in JAX `y = {start}reshard({x}, mesh{to}){end}`, {x} sharded as "
        "`source_sharding(mesh)`",
        "torch": "in torch `y = reshard(shard, group)` on every rank",
    }


COMMANDS = (
    "shardwright verify {}  # against an oracle",
    "shardwright check .  # against a new emission",
)


def commands_text(name: str, command: str, described: str = "") -> str:
    """Return the commands that end a page: emit, verify and check. `described`: the contents of
    the manifest, if the command reads it."""
    emit = command.removesuffix(f"  # {IN_PARENT}")
    where = f"# In the parent folder{described}:"
    return _block([where, emit, *(line.format(name) for line in COMMANDS)], "sh")


def _backward(files: Sequence[str]) -> tuple[str, ...]:
    if not files:
        return ()
    named = ", ".join(f"`{file}`" for file in files)
    said = f"The reverse reshard, which moves cotangents back for derivatives, is in {named}."
    return (_paragraph(said),)


def _form(plan: Plan) -> list[str]:
    before, after = plan.outline.source, plan.outline.target
    lines = [
        *side_lines("Source", "d1", str(plan.reshard.source), before),
        *side_lines("Target", "d2", str(plan.reshard.target), after),
    ]
    if isinstance(plan, DirectPlan):
        lines += tile_lines(plan.outline)
    return [part for line in lines for part in wrapped(line, WIDTH)]


def _paragraph(text: str) -> str:
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def item(text: str) -> str:
    """Return the text as an item of a Markdown list, wrapped."""
    return textwrap.indent(_paragraph(text), "  ").replace("  ", "- ", 1)


def _traffic_rows(plan: Plan) -> tuple[Row, ...]:
    traffic = plan.traffic
    return (
        _traffic_row(
            "received by the busiest device", traffic.received_max, traffic.bound_received_max
        ),
        _traffic_row(
            "received by all devices", traffic.received_total, traffic.bound_received_total
        ),
        _traffic_row("sent by the busiest device", traffic.sent_max, traffic.bound_sent_max),
    )


def _traffic_row(what: str, moved: int, bound: int) -> Row:
    return what, f"{moved:,}", f"{bound:,}", ratio(moved, bound)


def _cost(plan: Plan) -> tuple[str, ...]:
    if isinstance(plan, SteppedPlan):
        return (_paragraph(" ".join(choice_lines(plan))),)
    predicted = plan.prediction
    if predicted is None:
        return ()
    said = (
        f"With all tiles in flight at once, the links alone would take {predicted.seconds:.3g} "
        f"seconds{_idle(plan)}. A device holds at most {predicted.peak_bytes:,} bytes of the "
        "tensor at any time."
    )
    return (_paragraph(said),)


def _idle(plan: DirectPlan) -> str:
    assert plan.prediction is not None
    topology = topology_of(plan.prediction.topology)
    idle = idle_text(topology, plan.devices)
    return idle and f" on {name_of(topology)}{idle}"


def _steps(plan: SteppedPlan) -> tuple[str, ...]:
    return "## Steps", _markdown(STEP_HEADINGS, step_rows(plan)) if plan.steps else "None."


def _exchanged(plan: DirectPlan) -> tuple[str, ...]:
    exchange, title = plan.exchange, "## Who sends what to whom"
    said = senders(exchange) if exchange.source.replicas > 1 else []
    if plan.devices > ENUMERATED_DEVICES:
        return title, *_sentences([*said, not_enumerated(plan)])
    pairs = permutation(plan)
    if pairs:
        return (
            title,
            *_sentences(said),
            _block(line.removeprefix("    ") for line in pairs),
        )
    dims = cut_dims(exchange)
    if are_some(dims, exchange):
        said.append(f"{along_text(dims)}.")
    rows, count = device_rows(plan, dims)
    more = (more_text(count, len(rows), "devices"),) if count > len(rows) else ()
    return title, *_sentences(said), _markdown(DEVICE_HEADINGS, rows), *more


def _sentences(said: Sequence[str]) -> tuple[str, ...]:
    return (_paragraph(" ".join(said)),) if said else ()


def _markdown(headings: Row, rows: Iterable[Row]) -> str:
    rule = tuple("---" for _ in headings)
    return "\n".join("| " + " | ".join(row) + " |" for row in (headings, rule, *rows))


def _block(lines: Iterable[str], language: str = "text") -> str:
    return "\n".join((f"```{language}", *lines, "```"))
