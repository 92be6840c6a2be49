"""Models: tensors of a few kinds, on any devices, and the buckets in which they move.

All members of a kind have the same moves; they differ in names and devices. `data`, the contents of
a JSON file, lists all members and divides them, or pieces of large ones, into buckets. In each
bucket a device sends at most one message to each other device.
"""

import functools
import itertools
import math
import re
from typing import NamedTuple

ALIGN = 8  # alignment of the parts of a message, in bytes
DIGEST = 8  # size of the digest of a part, in bytes


class Kind(NamedTuple):
    """The source and target buffers of some tensors, and the moves between them.

    `tensors`: the shapes of the tensors. `source`, `target`: for each buffer its layout, and its
    shape at each position of a mesh, or one shape for all. `senders`, `receivers`: classes,
    which are lists of positions that store the same elements. `forms`: each consists of the
    source buffer, the target buffers, and nested loops, outer to inner, each with its count and
    its step in each buffer, source first. `relays`: each consists of the class of senders (-1
    for a local copy), the class of receivers, the form, and the first element in each buffer.
    `axes`: for both sides the sizes of the mesh's axes. `specs`: for both sides and each buffer,
    the axes along which each dimension is concatenated. `padded`: the fields that differ for
    buffers padded to one size, if any."""

    dtype: str
    tensors: list
    source: list
    target: list
    senders: list
    receivers: list
    forms: list
    relays: list
    axes: list
    specs: list
    padded: dict | None

    @property
    def itemsize(self):
        return 1 if self.dtype == "bool" else int(re.findall(r"\d+", self.dtype)[0]) // 8

    def count(self, relay):
        """Return the number of elements of a relay."""
        return math.prod(times for times, *_ in self.forms[relay[2]][2])


class Member(NamedTuple):
    """Tensors of a kind on some devices. `source_place`, `target_place`: the indices in
    `Moves.places` of the device lists of both meshes. `turn`: receiver i of a class takes
    elements from sender i + turn, modulo the number of senders. `pieces`: the number of pieces
    into which the member is cut. `tensors`, `source`, `target`: the names of the tensors and of
    the buffers."""

    kind: int
    source_place: int
    target_place: int
    turn: int
    pieces: int
    tensors: list
    source: list
    target: list


class Item(NamedTuple):
    """A piece of a member: the same share of the elements of every relay."""

    member: int
    piece: int = 0
    pieces: int = 1

    def share(self, count):
        """Return the item's range among `count` elements."""
        return count * self.piece // self.pieces, count * (self.piece + 1) // self.pieces


def cut(item, count):
    """Cut an item into `count` pieces."""
    first, pieces = count * item.piece, count * item.pieces
    return [Item(item.member, first + number, pieces) for number in range(count)]


class Moved(NamedTuple):
    """The elements `low` to `high` of a relay, which a device sends to a peer, receives from it, or
    keeps; a device that keeps them is its own peer. `starts`: the first element in each buffer."""

    peer: int
    form: int
    starts: list
    low: int
    high: int


class Part(NamedTuple):
    """A member's part of a message: its byte range in the buffer of all messages, the offset of its
    digest there (None without digests), and the elements that it moves."""

    member: int
    start: int
    stop: int
    digest: int | None
    moved: list


class Message(NamedTuple):
    """A message to or from a peer in a bucket: its byte range in the buffer of all messages, and
    its parts."""

    peer: int
    start: int
    stop: int
    parts: list


class Moves:
    """All kinds, members and buckets of a model. `data`: as in the module's docstring; `padded`:
    whether buffers have one size on every device."""

    def __init__(self, data, padded=False):
        kinds = data["kinds"]
        self.kinds = [Kind(**{**each, **((padded and each["padded"]) or {})}) for each in kinds]
        self.places, self.plan = [tuple(ids) for ids in data["places"]], data["digest"]
        self.limit = data["memory_limit"]
        self.members = [Member(*each) for each in data["members"]]
        self.source_ids, self.target_ids = (
            sorted({each for number in numbers for each in self.places[number]})
            for numbers in (
                {m.source_place for m in self.members},
                {m.target_place for m in self.members},
            )
        )
        self.ranks = sorted({*self.source_ids, *self.target_ids})
        self._position = [{each: n for n, each in enumerate(ids)} for ids in self.places]
        self._ends, items = (
            data["buckets"],
            (
                Item(number, piece, member.pieces)
                for number, member in enumerate(self.members)
                for piece in range(member.pieces)
            ),
        )
        starts = [0, *self._ends]
        self.buckets = [
            list(itertools.islice(items, stop - start))
            for start, stop in itertools.pairwise(starts)
        ]
        self._classes = functools.cache(self._places_in_classes)

    def position(self, number, device, end):
        """Return a device's position in a member's source mesh (end 0) or target mesh (end 1); None
        for a device outside that mesh."""
        member = self.members[number]
        return self._position[member.target_place if end else member.source_place].get(device)

    def buffers(self, device, end):
        """Yield the member index, name, dtype and shape of each source buffer (end 0) or target
        buffer (end 1) of a device."""
        for number, member in enumerate(self.members):
            position = self.position(number, device, end)
            if position is not None:
                kind = self.kinds[member.kind]
                sides = (member.source, kind.source), (member.target, kind.target)
                for name, (_, shapes) in zip(*sides[end], strict=True):
                    shape = shapes[position if len(shapes) > 1 else 0]
                    yield number, name, kind.dtype, tuple(shape)

    def _places_in_classes(self, kind, end):
        """Return, by position, a dict from each of its classes at an end to its index in the
        class."""
        found: dict = {}
        for number, positions in enumerate(
            self.kinds[kind].receivers if end else self.kinds[kind].senders
        ):
            for place, position in enumerate(positions):
                found.setdefault(position, {})[number] = place
        return found

    def of_device(self, device, item, end):
        """Yield the elements that a device sends (end 0) or receives (end 1) of an item, in an
        order common to both ends."""
        member = self.members[item.member]
        kind, position = self.kinds[member.kind], self.position(item.member, device, end)
        places = self._classes(member.kind, end).get(position, {})
        for sender, receiver, form, *starts in kind.relays:
            place = places.get((sender, receiver)[end])
            if place is not None:
                low, high = item.share(kind.count((sender, receiver, form)))
                peers = self._peers(member, sender, receiver, place, end) if low < high else ()
                for peer in peers:
                    yield Moved(device if peer is None else peer, form, starts, low, high)

    def _peers(self, member, sender, receiver, place, end):
        """Return the devices to which the device at index `place` of a class sends (end 0), or
        from which it receives (end 1); None stands for the device itself."""
        if sender < 0:
            return [None]
        kind = self.kinds[member.kind]
        senders, receivers = kind.senders[sender], kind.receivers[receiver]
        if end:
            at = senders[(place + member.turn) % len(senders)]
            return [self.places[member.source_place][at]]
        first = (place - member.turn) % len(senders)
        ids = self.places[member.target_place]
        return [ids[at] for at in receivers[first :: len(senders)]]

    def messages(self, device, bucket, end, digest, start=0):
        """Return the messages that a device sends (end 0) or receives (end 1) in a bucket. They are
        adjacent in a buffer from byte `start`, a multiple of ALIGN."""
        by_peer: dict = {}
        for item in bucket:
            for moved in self.of_device(device, item, end):
                if moved.peer != device:
                    by_peer.setdefault(moved.peer, {}).setdefault(item, []).append(moved)
        found = []
        for peer, items in sorted(by_peer.items()):
            parts, first = [], start
            for item, moved in items.items():
                place = start if digest else None
                start += DIGEST * digest
                size = sum(each.high - each.low for each in moved)
                size *= self.kinds[self.members[item.member].kind].itemsize
                parts.append(Part(item.member, start, start + size, place, moved))
                start += -(-size // ALIGN) * ALIGN
            found.append(Message(peer, first, start, parts))
        return found


def within(starts, loops, low, high):
    """Yield boxes (starts, loops) that together contain elements `low` to `high` of nested
    loops, in order."""
    size = math.prod(times for times, *_ in loops[1:])
    if not loops or (low, high) == (0, loops[0][0] * size):
        if low < high:
            yield starts, loops
        return
    (_, *steps), *inner = loops

    def turn(number, low, high):
        moved = [start + number * step for start, step in zip(starts, steps, strict=True)]
        return within(moved, tuple(inner), low, high)

    first, last = -(-low // size), high // size
    if first > last:  # inside one iteration
        yield from turn(last, low - last * size, high - last * size)
        return
    if low % size:
        yield from turn(first - 1, low - (first - 1) * size, size)
    if first < last:
        moved = [start + first * step for start, step in zip(starts, steps, strict=True)]
        yield moved, ((last - first, *steps), *inner)
    if high % size:
        yield from turn(last, 0, high - last * size)


def packed(loops):
    """Return the step of each loop in a line that stores the elements of all loops densely."""
    times = [loop[0] for loop in loops]
    return [math.prod(times[place + 1 :]) for place in range(len(times))]


def flat(tree, before=""):
    """Yield the name and value of each leaf of nested dicts. A name is the keys joined by dots."""
    for key, value in tree.items():
        if hasattr(value, "items"):
            yield from flat(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", value


def listed(names):
    """Return at most ten names as text, with the number of the other names."""
    names = list(names)
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return ", ".join(itertools.islice(map(str, names), 10)) + more
