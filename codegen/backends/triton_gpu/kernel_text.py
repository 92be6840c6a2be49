"""Text for the templates of kernels: expressions, names, numbers and comments.

The statements are in the templates.
"""

from __future__ import annotations

from dataclasses import dataclass

from shardwright.codegen.backends.triton_gpu.reduced import ReducedText


@dataclass(frozen=True)
class PositionText:
    """A parameter of a kernel, and its comment."""

    name: str
    comment: str


@dataclass(frozen=True)
class DigitText:
    """A digit split off the loop index: `name = left % size`."""

    name: str
    left: str
    size: int


@dataclass(frozen=True)
class Named:
    """`name = value`, an index derived by the algebra."""

    name: str
    value: str


@dataclass(frozen=True)
class DimText:
    """A kernel's computations for its tile along a dimension."""

    comment: str
    values: tuple[Named, ...]


@dataclass(frozen=True)
class PieceText:
    """A piece of a cut tile: the number of pieces, its `number`, its start and end along the cut
    dimension, and the `width` of the tile there."""

    pieces: int
    number: str
    width: str
    start: str
    end: str


@dataclass(frozen=True)
class RowsText:
    """A tile as rows, in elements: the arguments of `copy_rows`. `block`: the name of the block's
    number, an integer of `bits` bits."""

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
    """Text for a pulling kernel's template: expressions, names, numbers and comments.

    `digits`: split off the loop index; `dims`: the tile along each dimension with computations;
    `sender`: the position of the tile's holder; `held`: if holders copy their own tile, the test of
    whether this device, at position `me` of the source mesh, is one; `inside`: the condition that
    excludes empty tiles, "" if there are none, with the copy indented by `deeper`; `copy`: the
    function that copies a block of rows.
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
    """Text for a pushing kernel's template, like `PullText`. `receiver`: the position that gets the
    tile; `sends`: the condition that this device sends it; `homes`: the number of receivers' source
    mesh positions in a table, including `me`, or 0 without it; the `number` of a piece is this
    device's."""

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
