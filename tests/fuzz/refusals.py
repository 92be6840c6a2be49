"""What may be refused, and what is not there yet: both are listed, so that nothing else hides."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from .case import Case, JaxUse, TorchUse
from .features import features


@dataclass(frozen=True)
class Refusal:
    """A message that cases of a kind may end with."""

    applies: Callable[[Case], bool]
    says: str  # a regular expression


def _traced_under_explicit(case: Case) -> bool:
    """One program cannot mix the Explicit axes that are set with those of another mesh."""
    use = case.use
    return (
        isinstance(use, JaxUse)
        and bool(use.set_mesh)
        and use.axis_types == "Explicit"
        and (use.call != "eager" or bool(use.derivative) or use.batch > 0)
    )


REFUSALS = (
    Refusal(lambda case: case.strategy == "basis", "no sequence of basis steps makes this reshard"),
    Refusal(
        lambda case: "order another" in features(case) and "unreduced" in case.target.sharding,
        "terms that stay unreduced stay in their order of devices",
    ),
    Refusal(_traced_under_explicit, "which a traced program cannot mix with the Explicit axes"),
    Refusal(
        lambda case: isinstance(case.use, TorchUse) and bool(case.use.negative),
        "got a lazily negated view",
    ),
)
"""Cases that are right if they end with this message."""

PENDING: dict[str, str] = {}
"""Features that are not there yet, and how cases that have them end. A feature that comes is taken
off: a test holds that each of them is still refused."""


def verdict(case: Case, kind: str, detail: str) -> str:
    """`refused` or `pending` for an error that is listed, else `kind`."""
    for refusal in REFUSALS:
        if refusal.applies(case) and re.search(refusal.says, detail):
            return "refused"
    for feature in features(case) & PENDING.keys():
        if re.search(PENDING[feature], detail):
            return "pending"
    return kind


LOSES_PAYLOADS = ("bfloat16", "float8_e5m2")
"""Dtypes that XLA on CPU moves between devices as float32."""


def keeps_payloads(case: Case, what: str) -> bool:
    """Whether the bits of NaNs are judged: not where XLA moves elements, as docstrings say, when a
    jit pads or unpads, or where JAX itself places a cotangent on Explicit axes."""
    use = case.use
    if case.dtype not in LOSES_PAYLOADS or not isinstance(use, JaxUse):
        return True
    return what != "program" and not (what == "cotangent" and use.axis_types == "Explicit")
