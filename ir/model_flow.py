"""Bytes of members and pieces of members of a model, by mesh position."""

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
    """The bytes of a member or piece that each source position sends and each target position
    receives."""

    sent: Integers
    received: Integers


class Share(NamedTuple):
    """The values that determine the bytes of a piece of a member."""

    kind: int
    turn: int
    piece: int = 0
    pieces: int = 1


@dataclass(frozen=True)
class ModelFlows:
    """The bytes of the members of some kinds."""

    kinds: tuple[Kind, ...]
    relays: tuple[KindRelays, ...]  # by kind
    ends: dict[tuple[int, int], tuple[Integers, Integers]] = field(default_factory=dict)

    def of(self, moving: Share) -> Flow:
        """Return the bytes of a piece of a member."""
        pairs = self.pairs(moving)
        return Flow(pairs.sum(axis=1), pairs.sum(axis=0))

    def pairs(self, moving: Share, finest: bool = False) -> Integers:
        """Return the bytes from each source position to each target position. `finest`:
        those of one element of every relay."""
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
        """Return, for each moving relay and each receiver of its class, the index of the device
        pair in a table over both positions; and the elements of each relay."""
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
    """Return the relays to another device."""
    return [relay for relay in found.relays if relay.sender != OWN]
