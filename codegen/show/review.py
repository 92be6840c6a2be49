"""The review page of a bundle: what a reader needs to judge the modules beside it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from shardwright.codegen.emit.docstring import device_ranges, title
from shardwright.codegen.show.derivation import derivation_lines
from shardwright.codegen.show.pictures import pictures
from shardwright.codegen.show.steps import STEP_HEADINGS, choice_lines, step_rows
from shardwright.codegen.show.tables import HEADINGS, Row, more_text, not_enumerated, tile_rows
from shardwright.ir.plan import ENUMERATED_DEVICES, DirectPlan, Plan, SteppedPlan

# Devices and transfers that are listed; the others are counted.
LISTED_DEVICES = 64
LISTED_TRANSFERS = 64

Tables = Iterable[tuple[str, tuple[Row, tuple[Row, ...]]]]


def review_page(
    plan: Plan,
    name: str,
    command: str,
    tables: Tables = (),
    backward: Sequence[str] = (),
    takes: Sequence[str] = (),
) -> str:
    """Return the README.md of a bundle, in Markdown; the same for the same plan, name and command.

    `tables`: what backends say of their modules, each a title with a heading and rows. `backward`:
    the files of the reverse reshard, which derivatives need. `takes`: lines on the seconds that
    modules take, and on what that is worth.
    """
    sections = (
        f"# {name}",
        title(plan),
        f"Strategy `{plan.strategy}`. Made, and made again, by",
        _block([command], "sh"),
        *(_BACKWARD.format(file) for file in backward),
        *(_steps(plan) if isinstance(plan, SteppedPlan) else ()),
        "## Bytes against the bound",
        _markdown(("bytes", "moved", "least possible", "ratio"), _traffic_rows(plan)),
        *(("## What modules take", "\n".join(f"- {line}" for line in takes)) if takes else ()),
        *(text for title, rows in tables for text in (f"## {title}", _markdown(*rows))),
        "## Picture",
        "![The source shards, the target shards, and the tiles they share](reshard.svg)",
        "## What each device holds",
        *_devices(plan),
        *(_exchanged(plan) if isinstance(plan, DirectPlan) else ()),
        "## How to verify",
        _VERIFY,
        _block([f"shardwright verify {name}", "shardwright check ."], "sh"),
    )
    return "\n\n".join(sections) + "\n"


_BACKWARD = """\
`{}` is the reverse reshard, from the target to the source: the module beside it loads it when a
derivative is asked for, to move cotangents back."""

_VERIFY = """\
In the folder that holds this one: `verify` runs the modules here, without an accelerator, and
compares every target shard with a naive oracle bit by bit; `check` tells whether these files are
what would be emitted now."""


def _traffic_rows(plan: Plan) -> tuple[Row, ...]:
    traffic = plan.traffic
    return (
        _traffic_row(
            "received by the busiest device", traffic.received_max, traffic.bound_received_max
        ),
        _traffic_row("received in all", traffic.received_total, traffic.bound_received_total),
        _traffic_row("sent by the busiest device", traffic.sent_max, traffic.bound_sent_max),
    )


def _traffic_row(what: str, moved: int, bound: int) -> Row:
    ratio = f"{moved / bound:.3f}" if bound else "1.000"
    return what, f"{moved:,}", f"{bound:,}", ratio


def _devices(plan: Plan) -> tuple[str, ...]:
    """Return the range of the tensor on every device, before and after, where they are few."""
    if plan.devices > LISTED_DEVICES:
        return (f"{plan.devices:,} devices: the derivation has their ranges in closed form.",)
    return (_markdown(("device", "before", "after"), device_ranges(plan.outline)),)


def _steps(plan: SteppedPlan) -> tuple[str, ...]:
    """Return every step, and what it is chosen by."""
    rows = _markdown(STEP_HEADINGS, step_rows(plan))
    return "## Steps", rows if plan.steps else "None.", " ".join(choice_lines(plan))


def _exchanged(plan: DirectPlan) -> tuple[str, ...]:
    """Return what an exchange is predicted to take, its tiles, and how they follow from the
    shardings."""
    predicted = plan.prediction
    taken = predicted and (
        f"Links alone would take {predicted.seconds:.3g} seconds on `{predicted.topology}` if all "
        f"tiles went at once; a device holds at most {predicted.peak_bytes:,} bytes of the tensor "
        "at once."
    )
    return (
        *((taken,) if taken else ()),
        "## Tiles",
        *_tiles(plan),
        "## Derivation",
        _block(derivation_lines(plan)[1:]),
        "## Pictures in text",
        _block([pictures(plan)]),
    )


def _tiles(plan: DirectPlan) -> tuple[str, ...]:
    if plan.devices > ENUMERATED_DEVICES:
        return (not_enumerated(plan),)
    rows, count = tile_rows(plan, LISTED_TRANSFERS)
    table = _markdown(HEADINGS, rows)
    return (table, more_text(count, len(rows))) if count > len(rows) else (table,)


def _markdown(headings: Row, rows: Iterable[Row]) -> str:
    rule = tuple("---" for _ in headings)
    return "\n".join("| " + " | ".join(row) + " |" for row in (headings, rule, *rows))


def _block(lines: Iterable[str], language: str = "text") -> str:
    return "\n".join((f"```{language}", *lines, "```"))
