"""`shardwright plan`: what moves, and what the bound is."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from shardwright.codegen.cli.flags import Given, takes_description
from shardwright.codegen.cli.tables import console, ratio
from shardwright.codegen.describe import FIELDS
from shardwright.ir.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table

    from shardwright.ir.plan import Plan

# Up to this many devices the tiles are listed for a person to read.
LISTED_DEVICES = 16

Json = Annotated[bool, typer.Option("--json", help="One JSON object, for tools.")]
Transfers = Annotated[
    bool, typer.Option("--transfers", help="List every transfer, however many devices there are.")
]


@takes_description(*(field for field in FIELDS if field != "backends"))
def plan(given: Given, json: Json = False, transfers: Transfers = False) -> None:
    """Show what moves, and the least that any plan moves."""
    planned = planned_of(given)
    if json:
        sys.stdout.write(planned.to_json(transfers=True if transfers else None))
        return
    _print(planned, transfers)


def planned_of(given: Given) -> Plan:
    """The plan of the one reshard that is described."""
    from shardwright.codegen.planner import plan as plan_of

    description = given.one()
    try:
        return plan_of(description.reshard(), description.strategy)
    except InputError as error:
        raise given.located(error, description) from None


def _print(planned: Plan, transfers: bool) -> None:
    from shardwright.codegen.show import tile_table

    reshard = planned.reshard
    shape = "x".join(map(str, reshard.shape)) or "()"
    print(f"{reshard.dtype} {shape}: {reshard.source} on {reshard.source.mesh}")
    print(f"-> {reshard.target} on {reshard.target.mesh}")
    steps = ", ".join(step["op"] for step in planned.to_dict(transfers=False)["steps"])
    print(f"strategy {planned.strategy}, steps: {steps}")
    console().print(_bytes_table(planned))
    if transfers:
        print(tile_table(planned, limit=None))
    elif planned.devices <= LISTED_DEVICES:
        print(tile_table(planned))


def _bytes_table(planned: Plan) -> Table:
    from rich.table import Table

    traffic = planned.traffic
    table = Table("bytes")
    for heading in ("moved", "bound", "moved / bound"):
        table.add_column(heading, justify="right")
    for what, moved, bound in (
        ("received by the busiest device", traffic.received_max, traffic.bound_received_max),
        ("received in total", traffic.received_total, traffic.bound_received_total),
        ("sent by the busiest device", traffic.sent_max, traffic.bound_sent_max),
    ):
        table.add_row(what, f"{moved:,}", f"{bound:,}", ratio(moved, bound))
    return table
