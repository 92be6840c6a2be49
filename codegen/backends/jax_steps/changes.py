"""Changes of dimensions as collectives over axes: slices, all-to-alls and all-gathers.

A dimension that gains minor-most digits keeps a slice of every shard, and a dimension that loses
them gathers its shards. Digits that move between dimensions are an all-to-all; one dimension may
gain the digits of several. Collectives run in sequence, so a collective must not change the digits
of a later one: the digits of different collectives must not overlap, and their borders must divide
one another.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection
from dataclasses import dataclass

from shardwright.codegen.backends.jax_steps.boxes import pairs_of
from shardwright.codegen.moves.basis.boxed import dims_fit
from shardwright.codegen.moves.basis.digits import Digits, merged, tail
from shardwright.ir.layout import DimLayout, Layout


@dataclass(frozen=True)
class StepChange:
    """The minor-most digits that a dimension gained (`is_new`) or lost."""

    axis: int
    digits: Digits
    is_new: bool
    fits: bool  # whether small shards start at multiples of their size within the large shards

    @property
    def count(self) -> int:
        """The number of small shards in a large one."""
        return math.prod(size for _, size in self.digits)


@dataclass(frozen=True)
class MatchedChanges:
    """The collectives that perform all changes.

    An all-to-all is a pair (gaining dimension, change of the losing dimension). Pairs that gain in
    the same dimension are ordered by their digits, major first.
    """

    slices: tuple[StepChange, ...]
    all_to_alls: tuple[tuple[int, StepChange], ...]
    all_gathers: tuple[StepChange, ...]

    @staticmethod
    def of(changes: Collection[StepChange]) -> MatchedChanges | None:
        """Return the collectives that perform changes. Collectives of the same kind are in the
        order of their changes.

        Return None if the digits of two collectives interfere, because no order is then valid.
        """
        lost = [change for change in changes if not change.is_new]
        slices, pairs = list[StepChange](), list[tuple[int, StepChange]]()
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

    @staticmethod
    def between(before: Layout, after: Layout) -> MatchedChanges | None:
        """Return the collectives that turn one layout into another. Return None if no collectives
        on padded shards do, or if terms change."""
        changes = changes_of(before, after)
        terms = before.dims[: before.hidden], after.dims[: after.hidden]
        if changes is None or terms[0] != terms[1] or not all(change.fits for change in changes):
            return None
        return MatchedChanges.of(changes)

    @property
    def digits(self) -> tuple[Digits, ...]:
        """The digits of each collective."""
        lost = (old for _, old in self.all_to_alls)
        return tuple(each.digits for each in (*self.slices, *lost, *self.all_gathers))


def changes_of(before: Layout, after: Layout) -> tuple[StepChange, ...] | None:
    """Return the change of every tensor dimension whose cut changes, in order of dimensions.

    Return None if digits other than the minor-most ones change.
    """
    found = []
    sides = before.dims[before.hidden :], after.dims[after.hidden :]
    for axis, (old, new) in enumerate(zip(*sides, strict=True)):
        change = _change(axis, old, new)
        if change is None:
            return None
        found += [change] if change.digits else []
    return tuple(found)


def _change(axis: int, before: DimLayout, after: DimLayout) -> StepChange | None:
    is_new = after.parts > before.parts
    large, small = (before, after) if is_new else (after, before)
    digits = tail(pairs_of(small.digits), pairs_of(large.digits))
    if digits is None:
        return None
    if not digits:
        return StepChange(axis, (), is_new, fits=True) if small.levels == large.levels else None
    return StepChange(axis, digits, is_new, dims_fit(before, after))


def _made_of(digits: Digits, lost: list[StepChange]) -> tuple[StepChange, ...]:
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
