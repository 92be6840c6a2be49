"""What the worker that times modules is told and answers, as plain data."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from shardwright.codegen.verify.oracle import definition as oracle
from shardwright.codegen.verify.oracle.definition import Placement

PART = 8
"""The part of this machine's memory that all shards may take: comparing them takes several
copies."""

LEAST, MOST, LIMIT = 7, 50, 1.0
"""Turns of a call that are timed, at least and at most, and the seconds after which no further one
begins."""


@dataclass(frozen=True)
class Hardware:
    """The devices that modules of a backend run on here: `kind` as their runtime names it, `cpu` of
    a processor's."""

    kind: str
    count: int


class CannotTimeError(Exception):
    """A module cannot be timed here; the text says why, in one line."""


def check_memory(arrays: Iterable[tuple[Placement, Sequence[int]]], itemsize: int) -> None:
    """Raise CannotTimeError where the shards of arrays are too large to be compared here."""
    nbytes = sum(
        len(place.device_ids) * math.prod(oracle.largest(place, shape)) * itemsize
        for place, shape in arrays
    )
    most = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // PART
    if nbytes > most:
        raise CannotTimeError(
            f"its shards have {nbytes:,} bytes, and {most:,} can be compared on this machine"
        )
