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
    if not isinstance(use, JaxUse) or not use.set_mesh or use.axis_types != "Explicit":
        return False
    traced = use.call != "eager" or bool(use.derivative) or use.batch > 0
    return case.same_order and traced and not _target_is_set(case, use)


def _target_is_set(case: Case, use: JaxUse) -> bool:
    """Whether the mesh that is set is the one that the result is on: given, and of whole axes."""
    chosen = case.source if use.set_mesh == "source" else case.target
    given = case.target if use.names_target else case.source
    whole = bool(case.target.axes) and ":(" not in case.target.sharding and not use.other_axes
    return whole and chosen.axes == given.axes == case.target.axes


def _interpreted_elsewhere(case: Case) -> bool:
    """JAX's TPU interpreter multiplies clocks on the first device, under whichever mesh is set; a
    program of one device calls it back on the thread that has the user's."""
    use = case.use
    return (
        case.backend == "pallas_tpu"
        and isinstance(use, JaxUse)
        and bool(use.set_mesh)
        and use.call != "eager"
        and len(use.devices) == 1
        and use.devices != (0,)
    )


REFUSALS = (
    Refusal(lambda case: case.strategy == "basis", "no sequence of basis steps makes this reshard"),
    Refusal(
        lambda case: "order another" in features(case) and "unreduced" in case.target.sharding,
        "axes that stay unreduced must keep their device order",
    ),
    Refusal(_traced_under_explicit, "which a traced program cannot mix with the Explicit axes"),
    Refusal(
        _interpreted_elsewhere,
        r"Received incompatible devices .* Got argument x of multiply with shape int32\[\]",
    ),
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
