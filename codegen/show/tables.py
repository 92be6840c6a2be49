"""Tables of transfers: one row per transfer with its ranges and bytes, or one row per receiving
device."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from shardwright.codegen.text.docstring import box_text
from shardwright.codegen.text.table import by_box, held
from shardwright.ir.plan import ENUMERATED_DEVICES, DirectPlan, Plan, direct_of

Row = tuple[str, ...]

HEADINGS: Row = ("from", "to", "tensor", "source-local", "target-local", "bytes")
# The maximum number of rows to print; the output counts the others.
LISTED_TRANSFERS = 64

DEVICE_HEADINGS: Row = ("device", "before", "after", "receives", "bytes")
# The maximum numbers of devices, and of received pieces per device, to show; others are counted.
LISTED_DEVICES, LISTED_PIECES = 16, 8


def ratio(moved: int, bound: int) -> str:
    """Return the ratio of bytes moved to the bound; 1 if nothing moves."""
    return f"{moved / bound:.3f}" if bound else "1.000"


def device_rows(plan: DirectPlan, dims: list[int]) -> tuple[tuple[Row, ...], int]:
    """Return a row of text for each of the first devices, by id, and the number of all devices.

    A row has the device's shards before and after, the ranges that it receives by sender, and its
    received bytes. Ranges are along the dimensions `dims`.
    """
    exchange, moved = plan.exchange, plan.transfers()
    before, after = held(exchange.source, dims), held(exchange.target, dims)
    boxes = by_box(moved, dims)
    elements: dict[int, int] = defaultdict(int)
    columns = moved.sender.tolist(), moved.receiver.tolist(), moved.elements.tolist()
    for sender, receiver, count in zip(*columns, strict=True):
        if sender != receiver:
            elements[receiver] += count
    rows = tuple(
        (
            str(device),
            before.get(device, "-"),
            after.get(device, "-"),
            _listed([f"{box} from {senders}" for box, senders in boxes.get(device, ())]),
            f"{elements[device] * plan.reshard.itemsize:,}",
        )
        for device in exchange.ranks.tolist()[:LISTED_DEVICES]
    )
    return rows, int(exchange.ranks.size)


def _listed(pieces: list[str]) -> str:
    rest = len(pieces) - LISTED_PIECES
    more = [f"… and {rest:,} more"] if rest > 0 else []
    return ", ".join([*pieces[:LISTED_PIECES], *more]) or "nothing"


def tile_rows(
    plan: DirectPlan, limit: int | None = LISTED_TRANSFERS
) -> tuple[tuple[Row, ...], int]:
    """Return the first `limit` transfers as rows of text, and the number of all transfers."""
    transfers = plan.transfers()
    count = len(transfers) if limit is None else min(limit, len(transfers))
    columns = (
        transfers.sender[:count].tolist(),
        transfers.receiver[:count].tolist(),
        transfers.tensor[:count].tolist(),
        transfers.source[:count].tolist(),
        transfers.target[:count].tolist(),
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
    """Return at most `limit` transfers of a plan, one per line, and a count of the others.

    Transfers of more than 512 devices are listed only for `limit=None`.
    """
    if limit is not None and plan.devices > ENUMERATED_DEVICES:
        return not_enumerated(plan)
    rows, count = tile_rows(direct_of(plan), limit)
    lines = list(_aligned((HEADINGS, *rows)))
    if count > len(rows):
        lines.append(more_text(count, len(rows), "transfers"))
    return "\n".join(lines)


def not_enumerated(plan: Plan) -> str:
    """State why the transfers are not listed, and the command that lists them."""
    return (
        f"The transfers of {plan.devices:,} devices are stated in closed form; "
        "`shardwright plan … --transfers` lists them."
    )


def more_text(count: int, shown: int, what: str) -> str:
    """Return the line that states how many rows a limited table omits."""
    return f"… and {count - shown:,} more of {count:,} {what}."


def _aligned(rows: tuple[Row, ...]) -> Iterator[str]:
    """Yield rows in columns; the first two columns and the last hold numbers and are
    right-aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    numbers = {0, 1, len(HEADINGS) - 1}
    for row in rows:
        yield "  ".join(
            text.rjust(width) if column in numbers else text.ljust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
