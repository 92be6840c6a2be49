"""The transfers of a matmul, derived from the devices' boxes: the holder of each operand part, the
regions of the product that wait for the part, and the owners of each region.

A position is the row-major number of a device in the mesh. Ranges are half-open pairs, one per
dimension: the batch and i, j of lhs (`a`), j, k of rhs (`b`), i, k of the result (`c`).
"""

import functools
import itertools
from typing import NamedTuple


class Part(NamedTuple):
    """A part of a tensor that a device takes from the positions `holders`, possibly its own: one
    holder if the part is copied; one for each term, in order, if terms are added."""

    holders: tuple
    ranges: tuple

    @property
    def holder(self):
        """Return the position from which the part is copied."""
        return self.holders[0]


class Region(NamedTuple):
    """A part of a product, at one batch index (`at`), whose tiles wait for the same parts and go
    to the same owners. `segments`: ranges of j in summation order, each as (low, high, index of
    the part of a, index of the part of b), -1 for local data. `owners`: pairs (receiving position,
    term number there)."""

    at: tuple
    rows: tuple
    columns: tuple
    segments: tuple
    owners: tuple


class Parts:
    """A whole matmul over some devices. `boxes`: functions from a position to its box of lhs, rhs,
    the result and the product; the last has a range for each of batch, i, j and k. `batch`: the
    number of batch dimensions. `terms`: for each of lhs, rhs and the result, a function from a
    position to (number of its term, low, high), where low to high is the half-open range of terms
    that the device adds. None stands for a single term of an operand, and for one term of the
    result per range of j. A device's term of the result is its product."""

    def __init__(self, devices, boxes, batch, terms=(None, None, None)):
        ends = [[box(position) for position in range(devices)] for box in boxes]
        found = [[tuple(zip(e[::2], e[1::2], strict=True)) for e in each] for each in ends]
        self.devices, self.batch, self.product = devices, batch, found.pop()
        rank = batch + 2  # any dimensions before these number terms
        found = [[box[-rank:] for box in each] for each in found]
        self.held = dict(zip("abc", found, strict=True))
        lead, (i, j, k) = range(batch), range(batch, batch + 3)
        dims = {"a": (*lead, i, j), "b": (*lead, j, k), "c": (*lead, i, k)}
        self.used = {
            side: [tuple(each[dim] for dim in along) for each in self.product]
            for side, along in dims.items()
        }
        said = {side: each for side, each in zip("abc", terms, strict=True) if each is not None}
        self._terms = dict.fromkeys("ab", [(0, 0, 1)] * devices)
        self._terms["c"] = _by_segments([each[j] for each in self.product])
        self._terms |= {side: [*map(each, range(devices))] for side, each in said.items()}
        self.moved = [side for side in "ab" if self._moves(side)]
        self.adds = any(high - low > 1 for side in "ab" for _, low, high in self._terms[side])
        self.pushes = any(self._gets(position) for position in range(devices))

    def _moves(self, side):
        """Return whether some device multiplies a part of an operand that it does not hold."""
        adds = any(high - low > 1 for _, low, high in self._terms[side])
        return adds or self.held[side] != self.used[side]

    @functools.cached_property
    def _who(self):
        """Return the positions that hold each term, by side and term number; for the result, the
        positions whose product is not empty."""
        found: dict = {side: {} for side in "abc"}
        for side, position in itertools.product("abc", range(self.devices)):
            if side != "c" or elements(self.product[position]):
                found[side].setdefault(self._terms[side][position][0], []).append(position)
        return found

    def _having(self, side, position):
        """Return the holders of each term that a device adds, in the order of summation."""
        _, low, high = self._terms[side][position]
        return [self._who[side][term] for term in range(low, high) if term in self._who[side]]

    def terms(self, position):
        """Return the number of terms summed in a device's result."""
        return len(self._having("c", position))

    def _gets(self, position):
        """Return whether a device's result differs from the product that it computes."""
        own = self.held["c"][position]
        return bool(elements(own)) and self.added(position) != [(0, Part((position,), own))]

    def _nearest(self, boxes, wanted, position, among):
        """Yield the parts that make up the ranges `wanted`: the device's own part first, then parts
        of the devices before it, nearest first, which spreads requests over all replicas."""
        seen = set()
        for holder in sorted(among, key=lambda other: (position - other) % self.devices):
            pairs = zip(boxes[holder], wanted, strict=True)
            part = tuple((max(a, c), min(b, d)) for (a, b), (c, d) in pairs)
            if elements(part) and boxes[holder] not in seen:
                seen.add(boxes[holder])
                yield Part((holder,), part)

    def _added(self, side, position):
        """Return the parts of an operand that a device takes, each from one holder, or from one
        holder per term."""
        boxes, wanted = self.held[side], self.used[side][position]
        holders: dict = {}
        for among in self._having(side, position):
            for part in self._nearest(boxes, wanted, position, among):
                holders.setdefault(part.ranges, []).append(part.holder)
        return [Part(tuple(each), part) for part, each in holders.items()]

    @functools.cache  # noqa: B019
    def incoming(self, position):
        """Return the parts of moved operands that a device multiplies, in order of arrival, as
        pairs (side, part)."""
        if not elements(self.product[position]):
            return []
        found = [(side, part) for side in self.moved for part in self._added(side, position)]

        def far(each):
            return max((position - holder) % self.devices for holder in each[1].holders)

        return sorted(found, key=far)

    @functools.cache  # noqa: B019
    def added(self, position):
        """Return the parts of products that a device adds, as pairs (term number, part)."""
        own = self.held["c"][position]
        return [
            (number, part)
            for number, among in enumerate(self._having("c", position))
            for part in self._nearest(self.used["c"], own, position, among)
        ]

    def leaving(self, position):
        """Return the destinations of a device's product, as triples (owner, term number there,
        ranges)."""
        return [
            (owner, number, part.ranges)
            for owner in range(self.devices)
            for number, part in self.added(owner)
            if part.holder == position
        ]

    @functools.cache  # noqa: B019
    def partners(self, position):
        """Return the positions with which a device communicates, its own included."""
        found = {position}
        for one, other in itertools.product(range(self.devices), repeat=2):
            if position in (one, other):
                takes = any(other in part.holders for _, part in self.incoming(one))
                if takes or any(part.holder == other for _, part in self.added(one)):
                    found |= {one, other}
        return sorted(found)

    @functools.cache  # noqa: B019
    def regions(self, position):
        """Return the regions of a device's product in the order of multiplication: as their
        operands arrive and, among regions whose operands arrive together, by the distance of their
        owners, farthest first."""
        whole, incoming, leaving = (
            self.product[position], self.incoming(position), self.leaving(position),
        )  # fmt: skip
        if not elements(whole):
            return []
        a, b = ([part.ranges for side, part in incoming if side == each] for each in "ab")
        i, j, k = whole[self.batch :]
        rows = _cut(i, [part[-2] for part in a] + [to[-2] for *_, to in leaving])
        columns = _cut(k, [part[-1] for part in b] + [to[-1] for *_, to in leaving])
        along = _cut(j, [part[-1] for part in a] + [part[-2] for part in b])
        batches = itertools.product(*(range(*each) for each in whole[: self.batch]))
        found = []
        for at, row, column in itertools.product(batches, rows, columns):
            needs = [
                (*ends, self._number("a", incoming, (*at, row[0], ends[0])),
                 self._number("b", incoming, (*at, ends[0], column[0])))
                for ends in along
            ]  # fmt: skip
            # Replicas of a product must sum in the same order, to get the same bits; a product
            # without replicas may sum in order of arrival.
            if self.product.count(whole) == 1:
                needs.sort(key=lambda need: max(need[2:]))
            place = *at, row[0], column[0]
            owners = [each[:2] for each in leaving if _inside(place, each[2])]
            found.append(Region(at, row, column, tuple(needs), tuple(owners)))

        def turn(region):
            comes = max(max(need[2:]) for need in region.segments)
            away = ((owner - position) % self.devices for owner, _ in region.owners)
            return comes, -max(away, default=0)

        return sorted(found, key=turn)

    def _number(self, side, incoming, place):
        """Return the index in `incoming` of the part that contains a place; -1 for local data."""
        numbers = (
            number
            for number, (which, part) in enumerate(incoming)
            if which == side and _inside(place, part.ranges)
        )
        return next(numbers, -1)


def elements(part):
    """Return the number of elements in a part given by ranges, 0 if a range is empty."""
    found = 1
    for low, high in part:
        found *= max(0, high - low)
    return found


def place_in(place, part):
    """Return the offset of the element at `place` in a contiguous tensor of these ranges."""
    found = 0
    for index, (low, high) in zip(place, part, strict=True):
        found = found * (high - low) + index - low
    return found


def _by_segments(segments):
    """List, by position, the term number of a device's range of j, and the range of all terms,
    which are added in order."""
    every = sorted({each for each in segments if each[0] < each[1]})
    return [(every.index(each) if each in every else 0, 0, len(every)) for each in segments]


def _inside(place, part):
    return all(low <= index < high for index, (low, high) in zip(place, part, strict=True))


def _cut(whole, parts):
    ends = {*whole, *(end for part in parts for end in part if whole[0] < end < whole[1])}
    return list(itertools.pairwise(sorted(ends)))
