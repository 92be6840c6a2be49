"""What the templates of kernels print: contexts of expressions, names, numbers and comments.

Every statement of a kernel stands in its template.
"""

from __future__ import annotations

from dataclasses import dataclass

from shardwright.codegen.backends.triton_gpu.reduced import ReducedText


@dataclass(frozen=True)
class PositionText:
    """A parameter of a kernel, and what it is."""

    name: str
    comment: str


@dataclass(frozen=True)
class DigitText:
    """What is taken off the place in a loop: `name = left % size`."""

    name: str
    left: str
    size: int


@dataclass(frozen=True)
class Named:
    """`name = value`, an index that the algebra found."""

    name: str
    value: str


@dataclass(frozen=True)
class DimText:
    """What a kernel computes of its tile along a dimension."""

    comment: str
    values: tuple[Named, ...]


@dataclass(frozen=True)
class PieceText:
    """The piece of a tile that is cut into this many: its `number`, where it starts and ends along
    the cut dimension, along which the tile has this `width`."""

    pieces: int
    number: str
    width: str
    start: str
    end: str


@dataclass(frozen=True)
class RowsText:
    """A tile as rows, in elements: the arguments of `copy_rows`. `block`: the name of the number of
    the block, an integer of this many `bits`."""

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
    """What the template of a kernel prints: expressions, names, numbers and comments.

    `digits`: what the place in the loop says; `dims`: the tile along each dimension of which
    anything is to be computed; `sender`: whose shard has the tile; `held`: where devices that hold
    it copy their own, whether this one, at position `me` of the source mesh, does; `inside`: what
    holds unless the tile is empty, "" where none is, and the copy is indented by `deeper`;
    `copy`: the function that copies a block of rows.
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
    """What the template of a kernel that pushes prints, as `PullText`. `receiver`: whose shard gets
    the tile; `sends`: what holds if this device is the one that sends it there; `homes`: how
    many positions of receivers in the source mesh a table has, of which `me` is one, 0 without it;
    the `number` of a piece is that of this device's.
    """

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
