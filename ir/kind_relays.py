"""Plan the moves of a kind: relays between classes of positions that store the same elements.

Source positions that store the same elements at the same offsets form one class of *senders*.
Target positions form one class of *receivers* if they store the same elements and already have the
same elements of the source. A relay connects two classes: receiver i gets its elements from sender
i + `turn`, modulo the number of senders. The length of a plan therefore does not depend on the
number of replicas.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from shardwright.ir.dtypes import itemsize
from shardwright.ir.kinds import Kind
from shardwright.ir.relays import Cells, Relay, StoredBox, cells_of, count_of, cut_box, strided

OWN = -1
"""The value of `sender` in a relay whose elements the receiver already has and copies from
itself."""

LEAST_PIECE = 1 << 16
"""The minimum size in bytes of a piece when several replicas each send a piece of a box."""


@dataclass(frozen=True)
class KindRelays:
    """The classes and relays of a kind.

    `Relay.sender` and `Relay.receiver` are indices into `senders` and `receivers`.
    """

    senders: tuple[tuple[int, ...], ...]  # the positions in each class, and rotated copies of it
    receivers: tuple[tuple[int, ...], ...]  # the positions in each class
    relays: tuple[Relay, ...]
    step: int  # the increment of the turn from one member to the next


def classes_of(
    boxes: list[list[StoredBox]], beside: Iterable[Hashable] = ()
) -> tuple[tuple[int, ...], ...]:
    """Group positions that store the same elements at the same offsets, omitting empty positions.

    `boxes`: the boxes stored at each position. `beside`: an additional value for each position,
    equal for all positions of a class.
    """
    found: dict[object, list[int]] = {}
    more = [*beside] or [None] * len(boxes)
    for position, (held, other) in enumerate(zip(boxes, more, strict=True)):
        if held:
            said = tuple((box.box, box.base, box.views) for box in held)
            found.setdefault((said, other), []).append(position)
    return tuple(map(tuple, found.values()))


def relays_of_kind(kind: Kind, *, padded: bool = False) -> KindRelays:
    """Return the classes and relays of a kind. `padded`: whether the buffers are padded to one
    shape on all devices."""
    first, second = kind.numbers
    senders = classes_of(kind.source.exact[first])
    own = {position: number for number, each in enumerate(senders) for position in each}
    met = [own.get(position, OWN) for position in kind.meeting]
    receivers = classes_of(kind.target.exact[second], met)
    sides = (
        (geometry.padded if padded else geometry.exact)[number]
        for geometry, number in ((kind.source, first), (kind.target, second))
    )
    held, wanted = (
        [replace(box, device=n) for n, each in enumerate(classes) for box in boxes[each[0]]]
        for boxes, classes in zip(sides, (senders, receivers), strict=True)
    )
    has = [met[each[0]] for each in receivers]
    choosing = _Choosing(senders, receivers, has, itemsize(kind.tensor.dtype))
    cells = sorted(cells_of(kind.tensor.shape, held, wanted), key=lambda cell: len(cell.holders))
    relays = [relay for cell in cells for relay in choosing.relays(cell)]
    return KindRelays(choosing.listed, receivers, tuple(relays), max(choosing.sent, default=1) or 1)


@dataclass
class _Choosing:
    """Chooses the class of senders for each relay so that all devices send equal amounts."""

    senders: tuple[tuple[int, ...], ...]
    receivers: tuple[tuple[int, ...], ...]
    has: list[int]  # for each class of receivers, the class of senders on the same devices, or OWN
    itemsize: int
    rotated: dict[tuple[int, int], int] = field(default_factory=dict)
    first: dict[tuple[int, int], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.sent = [0] * len(self.senders)  # the number of shares assigned to each class so far
        self.load = [0.0] * len(self.senders)  # the elements per sender of each class
        self.rotated = {(number, 0): number for number in range(len(self.senders))}

    @property
    def listed(self) -> tuple[tuple[int, ...], ...]:
        """The positions of each class of senders, then of each rotated copy in use."""
        return tuple(
            (*self.senders[number][by:], *self.senders[number][:by]) for number, by in self.rotated
        )

    def relays(self, cell: Cells) -> Iterator[Relay]:
        holders: dict[int, StoredBox] = {}
        for part in cell.holders:
            holders.setdefault(part.device, part)
        for box in cell.boxes:
            count = math.prod(map(count_of, box))
            for receiver, targets in cell.takers.items():
                own = self.has[receiver]
                if own in holders:
                    for relay in strided("", box, holders[own], targets):
                        yield relay._replace(sender=OWN)
                    continue
                chosen = min(holders, key=lambda each: (self.load[each], each))
                lacking = len(self.receivers[receiver])
                self.load[chosen] += count * lacking / len(self.senders[chosen])
                for number, piece in enumerate(cut_box(box, self._pieces(chosen, lacking, count))):
                    sender = self._turned(chosen, receiver, number)
                    for relay in strided("", piece, holders[chosen], targets):
                        yield relay._replace(sender=sender)

    def _pieces(self, sender: int, lacking: int, count: int) -> int:
        """Return the number of pieces into which to cut a box of `count` elements so that all
        senders of a class send equal amounts to `lacking` receivers. Small boxes get fewer
        pieces."""
        replicas = len(self.senders[sender])
        most = max(count * self.itemsize // LEAST_PIECE, 1)
        return min(replicas // math.gcd(replicas, lacking), most)

    def _turned(self, sender: int, receiver: int, piece: int) -> int:
        """Return the index, among `listed`, of the rotated copy of a class of senders whose
        first senders follow the last assigned share."""
        lacking, key = len(self.receivers[receiver]), (sender, receiver)
        if key not in self.first:
            self.first[key] = self.sent[sender]
        by = self.first[key] + piece * lacking
        self.sent[sender] = max(self.sent[sender], by + lacking)
        return self.rotated.setdefault((sender, by % len(self.senders[sender])), len(self.rotated))
