"""The review page of a bundle: what a reader needs to judge the modules beside it."""

from __future__ import annotations

from shardwright.codegen.facts import facts, title
from shardwright.codegen.show.pictures import pictures
from shardwright.codegen.show.tables import HEADINGS, Row, more_text, not_enumerated, tile_rows
from shardwright.ir.plan import ENUMERATED_DEVICES, Plan

# Devices whose ranges are listed, and transfers.
LISTED_DEVICES = 64
LISTED_TRANSFERS = 64


def review_page(plan: Plan, name: str, command: str) -> str:
    """The README.md of a bundle, in Markdown; the same for the same plan, name and command."""
    sections = (
        f"# {name}",
        title(plan),
        *_made(command),
        "## Bytes against the bound",
        _markdown(("", "moved", "least possible"), _traffic_rows(plan)),
        "## Layouts, tiles, senders",
        _block(facts(plan)),
        "## Tiles",
        *_tiles(plan),
        "## Pictures",
        "![Source shards, target shards, and the tiles they share](reshard.svg)",
        _block((pictures(plan),)),
    )
    return "\n\n".join(sections) + "\n"


def _made(command: str) -> tuple[str, ...]:
    return ("Made by, and made again by:", f"```\n{command}\n```")


def _traffic_rows(plan: Plan) -> tuple[Row, ...]:
    traffic = plan.traffic
    return (
        (
            "received by the busiest device",
            f"{traffic.received_max:,}",
            f"{traffic.bound_received_max:,}",
        ),
        (
            "received in total",
            f"{traffic.received_total:,}",
            f"{traffic.bound_received_total:,}",
        ),
        ("sent by the busiest device", f"{traffic.sent_max:,}", f"{traffic.bound_sent_max:,}"),
    )


def _tiles(plan: Plan) -> tuple[str, ...]:
    if plan.devices > ENUMERATED_DEVICES:
        return (not_enumerated(plan),)
    rows, count = tile_rows(plan, LISTED_TRANSFERS)
    table = _markdown(HEADINGS, rows)
    return (table, more_text(count, len(rows))) if count > len(rows) else (table,)


def _markdown(headings: Row, rows: tuple[Row, ...]) -> str:
    rule = tuple("---" for _ in headings)
    return "\n".join("| " + " | ".join(row) + " |" for row in (headings, rule, *rows))


def _block(lines: tuple[str, ...]) -> str:
    return "\n".join(("```text", *lines, "```"))
