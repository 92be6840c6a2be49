"""What a kernel form states about itself, so that other files ask for a fact, not for its name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Buffers = Literal["shards", "relays", "packed", "places", "staged", "rings"]
"""The buffers of a form's kernels, whose shapes traces need:

    shards   the source shard and the target shard
    relays   the two shards, and slots for data on its way
    packed   lists of outgoing and of incoming slots
    places   the places of a schedule
    staged   the two shards in blocks, a staging area, windows and chunks
    rings    the chunks of rings, and slots for partial sums
"""


@dataclass(frozen=True)
class Kernels:
    """The attributes of the program object of a kernel form. `kernels`: the kernels that always
    run; `tables`: the program's tables; `sending`: the kernels that run only if anything is
    sent, before the others."""

    kernels: tuple[str, ...]
    tables: tuple[str, ...]
    sending: tuple[str, ...] = ()


@dataclass(frozen=True)
class FormFacts:
    """The facts of a kernel form. `name`: the name that its programs state as `form`; `rank`: its
    place among the forms by the lines of code that a reviewer of a module reads, support included:
    the first has the fewest; `does`: its description, for a module's docstring; `buffers`: see
    `Buffers`; `support`: the support modules that only its kernels need; `in_place`: whether
    kernels read source shards and write target shards, without packing and staging; `forwards`:
    whether devices forward data of other devices; `spreads`: whether whole source shards
    travel."""

    name: str
    rank: int
    does: str
    kernels: Kernels
    buffers: Buffers
    support: tuple[str, ...]
    in_place: bool = False
    forwards: bool = False
    spreads: bool = False


FORWARDING = Kernels(("kernel",), ("schedule", "slot"))
"""The attributes of programs whose devices forward data."""
