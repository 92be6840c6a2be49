"""The context of the matmul kernel templates: names, numbers, expressions and comments."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MatmulParameter:
    """A parameter that only the kernels of some matmuls have, and the comment on it."""

    name: str
    comment: str


@dataclass(frozen=True)
class MovedOperand:
    """An operand that moves. `start`: where in a slot it starts, in elements; `field`: the index of
    its part number in an entry of the table of segments of j."""

    name: str
    start: int
    field: int


@dataclass(frozen=True)
class PartRows:
    """The units and blocks in which rows of parts are copied. `unit`: the Triton type of a unit;
    `width`: its number of elements; `lanes`: a number of units that divides all starts of rows;
    `rows`, `columns`: the extents of a block, in rows and units; `across`: the number of blocks in
    the longest row; `aligned`: the alignment that this requires of shards, in bytes."""

    unit: str
    width: int
    lanes: int
    rows: int
    columns: int
    across: int
    aligned: int


@dataclass(frozen=True)
class MultiplyText:
    """The parts of the kernels' text that differ between matmuls.

    `devices`: the number of devices; `operands`: the arguments of `multiply`, in words; `offers`:
    the parameters of `offer`; `factors`: the parameters of `product`; `done`: the name of its
    variable for progress along j. `slot`, `sums`: the number of elements of a slot for a device's
    offered operands, and for the terms of its result. `adds`: whether terms of operands are added
    when they arrive; `copied`: the blocks in which parts are copied; `block`: the number of units
    or elements that a program copies or adds at a time. `rows`, `columns`, `depth`: the extents of
    a block along i, k and j. `a_unit`, `b_unit`, `c_unit`: the number of elements that divides all
    starts and ends along the rows of a, b and c. `a_mask`, `b_mask`: the masks of blocks, "" if all
    are whole. `described`: whether TMA can copy blocks; `widens`: whether the interpreter must
    multiply in float32; `pushes`: whether terms of the result are sent. `element`, `result`: the
    Triton types of operands and result; `pulled`: the type in which terms of operands are added;
    `total`: the type in which products and results are added. `neutral`: the value of a result that
    has no terms, "" if there is none; `parameters`: the additional parameters of `multiply`.
    """

    devices: int
    moved: tuple[MovedOperand, ...]
    operands: str
    offers: tuple[MatmulParameter, ...]
    factors: str
    done: str
    slot: int
    sums: int
    adds: bool
    copied: PartRows
    block: int
    rows: int
    columns: int
    depth: int
    a_unit: int
    b_unit: int
    c_unit: int
    a_mask: str
    b_mask: str
    described: bool
    widens: bool
    pushes: bool
    element: str
    result: str
    pulled: str
    total: str
    neutral: str
    parameters: tuple[MatmulParameter, ...]

    @property
    def moves(self) -> str:
        """The operands that move, in words."""
        return " and ".join(each.name for each in self.moved)

    @property
    def of_holders(self) -> int:
        """The lowest code of a wait for a device's operands. Codes from 1 up to it are for waits
        for a device's previous call."""
        return 1 + self.devices

    @property
    def of_terms(self) -> int:
        """The lowest code of a wait for a device's terms of the result."""
        return 1 + 2 * self.devices

    @property
    def of_parts(self) -> int:
        """The lowest code of a wait for a part. All other waits have lower codes."""
        return 1 + 3 * self.devices
