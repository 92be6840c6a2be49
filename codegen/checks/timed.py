"""Plain data exchanged with the worker that times modules."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from shardwright.codegen.checks.case import Case
from shardwright.codegen.checks.matmul_case import MatmulCase
from shardwright.codegen.checks.oracle import definition as oracle
from shardwright.codegen.checks.oracle.definition import Placement
from shardwright.codegen.checks.oracle.sums import array_of, array_shape

PART = 8
"""All shards together may take at most 1 / PART of this machine's memory, because comparing them
takes several copies."""

LEAST, MOST, LIMIT = 7, 50, 1.0
"""The minimum and the maximum number of timed calls, and the seconds after which no further call
begins."""


@dataclass(frozen=True)
class Hardware:
    """The devices on this machine that a backend's modules can use. `kind`: the runtime's name for
    their type, or `cpu`."""

    kind: str
    count: int


class CannotTimeError(Exception):
    """Raised if a module cannot be timed here. The message states the reason in one line."""


def arrays_of(case: Case | MatmulCase) -> Iterator[tuple[Placement, Sequence[int]]]:
    """Yield the placement and the shape of every array of a case."""
    if isinstance(case, MatmulCase):
        for place, shape in zip(case.placements, case.shapes, strict=True):
            yield array_of(place), array_shape(place, shape)
    else:
        yield case.source_array, case.source_shape
        yield case.target_array, case.target_shape


def check_memory(arrays: Iterable[tuple[Placement, Sequence[int]]], itemsize: int) -> None:
    """Raise CannotTimeError if the shards of `arrays` are too large to compare on this machine."""
    nbytes = sum(
        len(place.device_ids) * math.prod(oracle.largest(place, shape)) * itemsize
        for place, shape in arrays
    )
    most = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // PART
    if nbytes > most:
        raise CannotTimeError(
            f"its shards have {nbytes:,} bytes, but this machine can compare at most {most:,}"
        )
