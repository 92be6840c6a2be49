"""`shardwright plan --compare` for a program: its bytes next to XLA's and Shardy's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardwright.codegen.cli.tables import console, ratio

if TYPE_CHECKING:
    from shardwright.codegen.partition.partitioned import Partitioned
    from shardwright.codegen.spec.program import ProgramDescription


def print_totals(program: Partitioned, description: ProgramDescription) -> None:
    """Print a table of the bytes by partitioner, and the reason for each unknown."""
    from rich.table import Table

    from shardwright.codegen.compile.totals import totals

    rows = totals(program, description)
    table = Table("way")
    for heading in ("bytes", "beside ours"):
        table.add_column(heading, justify="right")
    ours = program.bytes_received
    for row in rows:
        bytes_text = "?" if row.received is None else f"{row.received:,}"
        beside = ratio(row.received, ours) if row.received is not None and ours else ""
        table.add_row(row.name, bytes_text, beside)
    console().print(table)
    print("bytes received by the busiest device; on TPUs float32 that XLA narrows counts as such")
    for row in rows:
        if row.why:
            print(f"{row.name}: {row.why}")
