"""What a plan is rated by, and what is kept in memory."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Ratings:
    """How a search rates plans, in bytes received.

    `held`: what a byte of a result costs, where memory is scarce. `regather`: what is gathered of
    an argument is not kept until the backward pass, which gathers it again. `topology`: what says
    how much is computed in the time of a byte.
    """

    held: float = 0.0
    regather: bool = False
    topology: str | None = None


THRIFT = (0.1, 1.0, 10.0)
"""What a byte of a result costs in the plans that are tried when memory is too small."""
