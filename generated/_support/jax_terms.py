"""Arrays of partial sums: dimension 0 of a source or target array numbers their terms."""

from typing import NamedTuple


class Terms(NamedTuple):
    """The terms of a reshard's sides. `operator` reduces the terms of the source,
    `target_operator` the terms of the target; `transposed`: whether cotangents move, whose terms
    all equal the tensor."""

    operator: str = "sum"
    target_operator: str = "sum"
    transposed: bool = False
