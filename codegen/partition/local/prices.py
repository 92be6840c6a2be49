"""The rating of plans, and the policy for keeping values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Ratings:
    """How a search rates plans, in bytes received.

    `held`: the price of a byte of a result, if memory is scarce. `regather`: gathered arguments are
    not kept until the backward pass, which gathers them again. `topology`: determines the
    computation in the time of a byte. `seeded`: the search also starts from the ideas of
    `seeds.py`; not with kernels that overlap matmuls, which no price includes.
    """

    held: float = 0.0
    regather: bool = False
    topology: str | None = None
    seeded: bool = True


THRIFT = (0.1, 1.0, 10.0)
"""Cost of a byte of a result in the plans tried when memory is too small."""
