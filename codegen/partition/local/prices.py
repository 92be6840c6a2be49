"""How the search rates plans, and whether plans keep gathered values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Ratings:
    """How a search rates plans, in received bytes.

    `held`: the price of each byte of a result if memory is scarce. `regather`: gathered arguments
    are not kept until the backward pass, which gathers them again. `topology` determines how much a
    device computes while it receives a byte. `seeded`: the search also starts from the ideas of
    `seeds.py`. It is off for kernels that overlap matmuls, since no price includes overlap.
    """

    held: float = 0.0
    regather: bool = False
    topology: str | None = None
    seeded: bool = True


THRIFT = (0.1, 1.0, 10.0)
"""Cost of a byte of a result in the plans tried when memory is too small."""
