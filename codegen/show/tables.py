"""The tile table: every transfer with its ranges and bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shardwright.codegen.emit.docstring import box_text
from shardwright.ir.plan import ENUMERATED_DEVICES, DirectPlan, Plan, direct_of

Row = tuple[str, ...]

HEADINGS: Row = ("from", "to", "tensor", "source-local", "target-local", "bytes")
# Rows that a reader is shown; the others are counted.
LISTED_TRANSFERS = 64


def tile_rows(
    plan: DirectPlan, limit: int | None = LISTED_TRANSFERS, dims: Sequence[int] | None = None
) -> tuple[tuple[Row, ...], int]:
    """Return the first transfers as rows of text, at most `limit`, and how many there are; `dims`:
    the dimensions along which to give ranges, None for all."""
    transfers = plan.transfers()
    count = len(transfers) if limit is None else min(limit, len(transfers))
    given = slice(None) if dims is None else list(dims)
    columns = (
        transfers.sender[:count].tolist(),
        transfers.receiver[:count].tolist(),
        transfers.tensor[:count, given].tolist(),
        transfers.source[:count, given].tolist(),
        transfers.target[:count, given].tolist(),
        transfers.elements[:count].tolist(),
    )
    itemsize = plan.reshard.itemsize
    rows = tuple(
        (
            str(sender),
            str(receiver),
            *map(box_text, (tensor, source, target)),
            "local" if sender == receiver else f"{elements * itemsize:,}",
        )
        for sender, receiver, tensor, source, target, elements in zip(*columns, strict=True)
    )
    return rows, len(transfers)


def tile_table(plan: Plan, limit: int | None = LISTED_TRANSFERS) -> str:
    """Return the transfers of a plan, a line each, at most `limit` of them and a count of the
    others.

    Above 512 devices they are enumerated only for `limit=None`.
    """
    if limit is not None and plan.devices > ENUMERATED_DEVICES:
        return not_enumerated(plan)
    rows, count = tile_rows(direct_of(plan), limit)
    lines = list(_aligned((HEADINGS, *rows)))
    if count > len(rows):
        lines.append(more_text(count, len(rows)))
    return "\n".join(lines)


def not_enumerated(plan: Plan) -> str:
    """Return why there is no table, and how to have one."""
    return (
        f"The transfers of {plan.devices:,} devices are stated in closed form; "
        "`shardwright plan … --transfers` lists them."
    )


def more_text(count: int, shown: int) -> str:
    """Return what a limited table leaves out."""
    return f"… and {count - shown:,} more of {count:,} transfers."


def _aligned(rows: tuple[Row, ...]) -> Iterator[str]:
    """Yield rows in columns; the first two and the last, numbers, at their right ends."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    numbers = {0, 1, len(HEADINGS) - 1}
    for row in rows:
        yield "  ".join(
            text.rjust(width) if column in numbers else text.ljust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
