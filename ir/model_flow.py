"""Count the bytes that each device sends and receives for a member of a model, or for a piece of a
member."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from shardwright.ir.arrays import Integers
from shardwright.ir.dtypes import itemsize
from shardwright.ir.kind_relays import OWN, KindRelays
from shardwright.ir.kinds import Kind
from shardwright.ir.relays import Relay


class Flow(NamedTuple):
    """The bytes that each source position sends, and that each target position receives, for a
    member or a piece."""

    sent: Integers
    received: Integers


class Share(NamedTuple):
    """A piece of a member, described by the values on which its bytes depend."""

    kind: int  # the index of the kind
    turn: int
    piece: int = 0  # the index of the piece
    pieces: int = 1  # the number of pieces of the member


@dataclass(frozen=True)
class ModelFlows:
    """Computes the bytes that devices send and receive for members of the given kinds."""

    kinds: tuple[Kind, ...]
    relays: tuple[KindRelays, ...]  # the relays of each kind
    # Results of `_ends`, by kind and turn.
    ends: dict[tuple[int, int], tuple[Integers, Integers]] = field(default_factory=dict)

    def of(self, moving: Share) -> Flow:
        """Return the bytes that each position sends and receives for a piece."""
        pairs = self.pairs(moving)
        return Flow(pairs.sum(axis=1), pairs.sum(axis=0))

    def pairs(self, moving: Share, finest: bool = False) -> Integers:
        """Return the bytes of a piece from each source position to each target position: [source
        positions, target positions]. `finest`: count one element of every non-empty relay,
        ignoring the piece."""
        kind, found = self.kinds[moving.kind], self.relays[moving.kind]
        shape = kind.source.stored.mesh.size, kind.target.stored.mesh.size
        ends, counts = self._ends(moving.kind, moving.turn)
        low = counts * moving.piece // moving.pieces
        shares = counts * (moving.piece + 1) // moving.pieces - low
        shares = np.minimum(counts, 1) if finest else shares
        spread = np.repeat(shares, [len(found.receivers[r.receiver]) for r in _moved(found)])
        bits = np.bincount(ends, weights=spread, minlength=math.prod(shape))
        return bits.astype(np.int64).reshape(shape) * itemsize(kind.tensor.dtype)

    def _ends(self, number: int, turn: int) -> tuple[Integers, Integers]:
        """Return two arrays about the relays between devices. The first has an entry for each
        receiver of each relay: `source position * target positions + target position`. The second
        has the number of elements of each relay."""
        key = number, turn
        if key not in self.ends:
            self.ends[key] = self._made(number, turn)
        return self.ends[key]

    def _made(self, number: int, turn: int) -> tuple[Integers, Integers]:
        kind, found = self.kinds[number], self.relays[number]
        targets = kind.target.stored.mesh.size
        pairs: dict[tuple[int, int], Integers] = {}
        listed = []
        for relay in _moved(found):
            ends = relay.sender, relay.receiver
            if ends not in pairs:
                senders, receivers = found.senders[ends[0]], found.receivers[ends[1]]
                at = [senders[(n + turn) % len(senders)] for n in range(len(receivers))]
                pairs[ends] = np.array(at) * targets + np.array(receivers)
            listed.append(pairs[ends])
        counts = np.array([relay.elements for relay in _moved(found)], dtype=np.int64)
        places = np.concatenate(listed) if listed else np.zeros(0, dtype=np.int64)
        return places, counts


def _moved(found: KindRelays) -> list[Relay]:
    return [relay for relay in found.relays if relay.sender != OWN]
