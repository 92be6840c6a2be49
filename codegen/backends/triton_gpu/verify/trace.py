"""What an emitted pull kernel copies on a device, without data: its text is run on plain integers.

Stand-ins for `triton.language` and for the copy of rows note what the kernel calls that with. It
costs no memory, so it works at full size.
"""

from __future__ import annotations

from functools import partial
from types import FunctionType, SimpleNamespace
from typing import Any, NamedTuple

from shardwright.codegen.verify.compare import MismatchError

COPIES = ("copy_rows", "copy_some_lines")
"""The support functions that copy a block of rows."""


class RowCopy(NamedTuple):
    """Rows of a block of a tile, in elements: out of which source shard, where the first row
    begins in it and in the target shard, how many rows, how long and how far apart; which of
    COPIES copies them."""

    sender: int
    read: int
    write: int
    rows: int
    columns: int
    read_row: int
    write_row: int
    block: int
    by: str


def trace(host: Any, device: int, program: int) -> RowCopy | None:
    """Return what one program of the kernel copies on a device, None if that is nothing.

    Raises MismatchError for a kernel that cannot be run so, and for one that copies twice.
    """
    copies: list[RowCopy] = []

    def copy(by: str, sender: int, out: None, **given: int) -> None:
        said = [int(given[name]) for name in RowCopy._fields[1:-1]]
        read, write, rows, columns, read_row, write_row, block = said
        made = RowCopy(sender, read, write, rows, columns, read_row, write_row, block, by)
        if min(made.rows, made.columns) > 0:
            copies.append(made)

    language = SimpleNamespace(
        int64=int,
        cast=lambda value, kind: value,
        program_id=lambda axis: program,
        where=lambda test, one, other: one if test else other,
    )
    names = {"tl": language, "shard_at": lambda peers, position, out, block: position}
    names |= {by: partial(copy, by) for by in COPIES}
    kernel = host.kernel.fn
    try:
        run = FunctionType(kernel.__code__, {**kernel.__globals__, **names})
        run(None, None, *host.places(device), host.tiles.block(True))
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        NameError,
        TypeError,
        ValueError,
    ) as error:
        raise MismatchError(f"the kernel cannot be followed: {error}") from error
    if len(copies) > 1:
        raise MismatchError(f"a program copies twice, {copies[0]}, {copies[1]}")
    return copies[0] if copies else None
