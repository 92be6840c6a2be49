"""The criteria by which the search compares plans."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Ratings:
    """The criteria by which a search compares plans; costs are in received bytes.

    `held`: the cost of each byte of a result, if memory is scarce. `regather`: whether gathered
    arguments are dropped, so that the backward pass gathers them again. `topology`: the topology
    that determines the cost of computation relative to received bytes, if any. `seeded`: whether
    the search also starts from the seeds of `seeds.py`; it does not for kernels that overlap
    matmuls, because no price accounts for overlap.
    """

    held: float = 0.0
    regather: bool = False
    topology: str | None = None
    seeded: bool = True


THRIFT = (0.1, 1.0, 10.0)
"""The costs of a byte of a result, tried in this order while a plan does not fit into memory."""
