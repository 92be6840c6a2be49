"""The slices that a guided search tries: over missing digits that are free, or over free digits in
any dimension, which make shards smaller before they move."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

from shardwright.codegen.moves.basis.alignment import Alignment
from shardwright.codegen.moves.basis.digits import (
    Digits,
    divisors,
    factorings,
    merged,
    minus,
)
from shardwright.codegen.moves.basis.graph import Basis, State, StateMove, product_of
from shardwright.codegen.moves.move import Move

# The maximum number of ways to distribute free digits over dimensions.
MOST_SPREAD = 256
# The maximum number of ways to reach the total number of parts of the target.
MOST_FACTORED = 24


@dataclass(frozen=True)
class Place:
    """A sharding compared with the target in each dimension, and its free digits."""

    dims: tuple[Alignment, ...]
    free: Digits


def next_slice(state: State, place: Place) -> StateMove | None:
    """Return the slice over all missing digits that are free and can be added now; None if there
    are no such digits."""
    if not place.free:
        return None
    dims, free, digits = list(state.dims), place.free, list[tuple[int, int]]()
    for dim, found in enumerate(place.dims):
        if found.excess:
            continue
        for digit in found.missing:
            part = _free_part(digit, free)
            if part is None:
                break
            free = minus(free, (part,))
            dims[dim] = merged((*dims[dim], part))
            digits.append(part)
            if part != digit:
                break
    after = State(state.layer, tuple(dims), state.unreduced)
    return Move("slice", tuple(digits), after) if digits else None


def slices(basis: Basis, state: State, free: Digits) -> Iterator[StateMove]:
    """Yield slices of a state over free digits in any dimensions."""
    yield from _to_parts(basis, state, free)
    rank = len(state.dims)
    cuts = basis.pieces(state.layer, free), free
    fits = (cut for cut in cuts if (rank + 1) ** len(cut) <= MOST_SPREAD)
    pieces = next(fits, ())
    for places in itertools.product(range(-1, rank), repeat=len(pieces)):
        dims, taken = list(state.dims), []
        for piece, dim in zip(pieces, places, strict=True):
            if dim >= 0:
                dims[dim] = merged((*dims[dim], piece))
                taken.append(piece)
        if taken:
            yield Move("slice", tuple(taken), state._replace(dims=tuple(dims)))


def _to_parts(basis: Basis, state: State, free: Digits) -> Iterator[StateMove]:
    """Yield slices over the major-most free digits: the slice after which the parts of each
    dimension are a multiple of the target's, and slices after which the total number of parts
    equals the target's."""
    held, wanted = product_of(state), product_of(basis.goal)
    pairs = zip(held, wanted, strict=True)
    ways = [tuple(count // math.gcd(count, have) for have, count in pairs)]
    more, rest = divmod(math.prod(wanted), math.prod(held))
    if not rest and more > 1:
        ways += factorings(more, len(held))[:MOST_FACTORED]
    for factors in dict.fromkeys(ways):
        move = _sliced(state, free, factors)
        if move is not None:
            yield move


def _sliced(state: State, free: Digits, factors: tuple[int, ...]) -> StateMove | None:
    """Return the slice over the major-most free digits that multiplies the parts of each dimension
    by its factor, or None if no digits fit."""
    dims, taken = list(state.dims), list[tuple[int, int]]()
    for dim, more in enumerate(factors):
        for stride, size in sorted(free, reverse=True):
            part = math.gcd(size, more)
            if part > 1:
                digit = stride * size // part, part
                free, more = minus(free, (digit,)), more // part
                dims[dim] = merged((*dims[dim], digit))
                taken.append(digit)
        if more > 1:
            return None
    return Move("slice", tuple(taken), state._replace(dims=tuple(dims))) if taken else None


def _free_part(digit: tuple[int, int], free: Digits) -> tuple[int, int] | None:
    """Return the largest major part of a digit that is free, or None if no part is free."""
    stride, size = digit
    for part in reversed(divisors(size)):
        low = stride * size // part
        for at, room in free:
            if part > 1 and not low % at and not (at * room) % (low * part):
                return low, part
    return None
