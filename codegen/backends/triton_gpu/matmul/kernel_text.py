"""What the templates of a matmul's kernels print: names, numbers, expressions and comments."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MatmulParameter:
    """A parameter that a kernel has in some matmuls, and what it is."""

    name: str
    comment: str


@dataclass(frozen=True)
class MovedOperand:
    """An operand of which parts come: its `name`, where it starts in a slot, and the `field` of a
    stretch of j that is the number of its part."""

    name: str
    start: int
    field: int


@dataclass(frozen=True)
class PartRows:
    """How rows of parts are copied: in `unit`s of `width` elements, of which `lanes` divide where
    rows begin; `rows` by `columns` units at a time, with `across` such blocks side by side; shards
    begin at multiples of this many bytes, `aligned`."""

    unit: str
    width: int
    lanes: int
    rows: int
    columns: int
    across: int
    aligned: int


@dataclass(frozen=True)
class MultiplyText:
    """What differs from matmul to matmul.

    `operands`: what `multiply` is given, in words; `offers`: parameters of `offer`; `factors`:
    those of `product`; `done`: the name of how much of j it has done. `slot`, `sums`: elements of a
    slot for what a device offers, and for terms of its result. `adds`: whether parts are added as
    they come. `block`: what a program copies or adds at a time. `rows`, `columns`, `depth`: blocks
    of i, k and j. `a_unit`, `b_unit`, `c_unit`: elements that divide where rows and columns of
    cells begin and end. `a_mask`, `b_mask`: what is inside of blocks, empty where all are whole.
    `described`: whether TMA can copy blocks; `widens`: whether the interpreter needs float32;
    `pushes`: whether tiles go to other devices. `element`, `result`: Triton's types; `pulled`,
    `total`: those that terms of operands, and products and results, are added in. `neutral`: a
    result that is the sum of no terms, if any is.
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
        """The operands of which parts come, in words."""
        return " and ".join(each.name for each in self.moved)

    @property
    def of_holders(self) -> int:
        """What codes of waits for operands are counted from, after those for the call before."""
        return 1 + self.devices

    @property
    def of_parts(self) -> int:
        """What codes of waits for parts are counted from: those before are of devices."""
        return 1 + 2 * self.devices
