"""The context of the kernel templates: expressions, names, numbers and comments.

The statements are in the templates.
"""

from __future__ import annotations

from dataclasses import dataclass

from shardwright.codegen.backends.triton_gpu.reduced import ReducedText


@dataclass(frozen=True)
class PositionText:
    """A parameter of a kernel, and the comment on it."""

    name: str
    comment: str


@dataclass(frozen=True)
class DigitText:
    """A digit of the loop's index, `name = left % size`."""

    name: str
    left: str
    size: int


@dataclass(frozen=True)
class Named:
    """An assignment `name = value` of an index expression."""

    name: str
    value: str


@dataclass(frozen=True)
class DimText:
    """The assignments that compute a tile along one dimension, and the comments before them."""

    comments: tuple[str, ...]
    values: tuple[Named, ...]


@dataclass(frozen=True)
class PieceText:
    """A piece of a cut tile. `pieces`: the number of pieces of a tile; `number`: the number of this
    piece; `width`: the tile's extent along the cut dimension; `start`, `end`: the piece's range of
    that extent. All but `pieces` are expressions."""

    pieces: int
    number: str
    width: str
    start: str
    end: str


@dataclass(frozen=True)
class RowsText:
    """A tile as rows: the arguments of `copy_rows`, in elements. `read`, `write`: where the tile
    starts in both shards; `rows`, `columns`: the number of its rows and their length; `read_row`,
    `write_row`: the distance between rows in both shards; `block`: the variable with the block's
    number; `bits`: the width of offsets."""

    read: str
    write: str
    rows: str
    columns: str
    read_row: str
    write_row: str
    block: str
    bits: int


@dataclass(frozen=True)
class PullText:
    """The context of a pulling kernel's template.

    `positions`: the names of the parameters that are positions; `wide`: whether offsets exceed 32
    bits; `digits`: the digits of the loop's index; `dims`: the assignments that compute the tile,
    by dimension; `sender`: the source position from which the tile is read; `held`: the test
    whether this device, at position `me` of the source mesh, has the tile itself, "" if no test is
    needed; `piece`: the piece to copy, if tiles are cut; `inside`: the condition that the tile is
    not empty, "" if it never is; `deeper`: the indentation that the condition adds; `rows`: the
    tile as rows; `copy`: the function that copies a block of rows; `reduced`: the reduction of
    terms, if any.
    """

    positions: str
    parameters: tuple[PositionText, ...]
    wide: bool
    digits: tuple[DigitText, ...]
    dims: tuple[DimText, ...]
    sender: str
    held: str
    me: str
    piece: PieceText | None
    inside: str
    deeper: int
    rows: RowsText
    copy: str
    reduced: ReducedText | None


@dataclass(frozen=True)
class PushText:
    """The context of a pushing kernel's template. Fields are as in `PullText`, except for these:
    `receiver`: the target position to which the tile is written; `sends`: the condition that this
    device sends it; `homes`: the number of entries in the table of receivers' source positions, 0
    if the kernel has no such table; `piece.number`: the number of the piece that this device
    sends."""

    parameters: tuple[PositionText, ...]
    wide: bool
    digits: tuple[DigitText, ...]
    dims: tuple[DimText, ...]
    receiver: str
    homes: int
    held: str
    sends: str
    me: str
    piece: PieceText | None
    inside: str
    deeper: int
    rows: RowsText
    copy: str
