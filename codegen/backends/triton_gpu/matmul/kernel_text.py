"""Text for the templates of a matmul's kernels: names, numbers, expressions and comments."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MatmulParameter:
    """An optional parameter of a kernel, and its comment."""

    name: str
    comment: str


@dataclass(frozen=True)
class MovedOperand:
    """An operand whose parts arrive: its `name`, its start in a slot, and the `field` of a stretch
    of j with its part number."""

    name: str
    start: int
    field: int


@dataclass(frozen=True)
class PartRows:
    """How rows of parts are copied: in `unit`s of `width` elements, with starts divisible by
    `lanes` units; `rows` by `columns` units at a time, `across` such blocks side by side; shards
    are aligned to `aligned` bytes."""

    unit: str
    width: int
    lanes: int
    rows: int
    columns: int
    across: int
    aligned: int


@dataclass(frozen=True)
class MultiplyText:
    """The differences between matmuls.

    `operands`: the arguments of `multiply`, in words; `offers`: parameters of `offer`; `factors`:
    those of `product`; `done`: the name of its progress along j. `slot`, `sums`: elements of a slot
    for a device's offers, and for terms of its result. `adds`: whether parts are added on arrival.
    `block`: elements that a program copies or adds at a time. `rows`, `columns`, `depth`: blocks of
    i, k and j. `a_unit`, `b_unit`, `c_unit`: elements that divide the ends of rows and columns of
    cells. `a_mask`, `b_mask`: masks of blocks, "" if all are whole. `described`: whether TMA can
    copy blocks; `widens`: whether the interpreter needs float32; `pushes`: whether tiles go to
    other devices. `element`, `result`: Triton's types; `pulled`, `total`: those in which terms of
    operands, and products and results, are added. `neutral`: the result without terms, if there is
    one.
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
        """The operands whose parts arrive, in words."""
        return " and ".join(each.name for each in self.moved)

    @property
    def of_holders(self) -> int:
        """The first code of waits for operands; waits for the previous call have the codes before
        it."""
        return 1 + self.devices

    @property
    def of_parts(self) -> int:
        """The first code of waits for parts; waits for devices have the codes before it."""
        return 1 + 2 * self.devices
