"""Changes of dimensions as collectives over axes: slices, all-to-alls and all-gathers.

A dimension that gains minor-most digits keeps a slice of every shard, and a dimension that loses
them gathers its shards. Digits that move between dimensions are an all-to-all; one dimension may
gain the digits of several. Collectives run in sequence, so a collective must not change the digits
of a later one: the digits of different collectives must not overlap, and their borders must divide
one another.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from shardwright.codegen.moves.basis.digits import Digits, merged


class DigitChange(Protocol):
    """The minor-most digits (stride, size) that a dimension gained (`is_new`) or lost."""

    @property
    def axis(self) -> int: ...

    @property
    def digits(self) -> Digits: ...

    @property
    def is_new(self) -> bool: ...


C = TypeVar("C", bound=DigitChange)


@dataclass(frozen=True)
class MatchedChanges(Generic[C]):
    """The collectives that perform all changes.

    An all-to-all is a pair (gaining dimension, change of the losing dimension). Pairs that gain in
    the same dimension are ordered by their digits, major first.
    """

    slices: tuple[C, ...]
    all_to_alls: tuple[tuple[int, C], ...]
    all_gathers: tuple[C, ...]

    @staticmethod
    def of(changes: Collection[C]) -> MatchedChanges[C] | None:
        """Return the collectives that perform changes. Collectives of the same kind are in the
        order of their changes.

        Return None if the digits of two collectives interfere, because no order is then valid.
        """
        lost = [change for change in changes if not change.is_new]
        slices, pairs = list[C](), list[tuple[int, C]]()
        for change in changes:
            if change.is_new:
                left = [other for other in lost if all(other is not old for _, old in pairs)]
                found = _made_of(change.digits, left)
                pairs += [(change.axis, old) for old in found]
                slices += [] if found else [change]
        digits = [change.digits for change in (*slices, *lost)]
        if not all(itertools.starmap(_are_apart, itertools.combinations(digits, 2))):
            return None
        gathered = [old for old in lost if all(old is not other for _, other in pairs)]
        return MatchedChanges(tuple(slices), tuple(pairs), tuple(gathered))


def _made_of(digits: Digits, lost: list[C]) -> tuple[C, ...]:
    """Return the losing changes that together lost exactly `digits`, in the order in which their
    digits concatenate, or an empty tuple if there are none."""
    for count in range(1, len(lost) + 1):
        for chosen in itertools.permutations(lost, count):
            joined = itertools.chain.from_iterable(change.digits for change in chosen)
            if merged(tuple(joined)) == digits:
                return chosen
    return ()


def _are_apart(some: Digits, others: Digits) -> bool:
    """Return whether the digits of two collectives are independent: for any two digits, the end of
    the lower divides the start of the higher."""
    pairs = (sorted(pair) for pair in itertools.product(some, others))
    return all(high[0] % (low[0] * low[1]) == 0 for low, high in pairs)
