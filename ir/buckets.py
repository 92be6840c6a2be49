"""Divide a model into buckets, the units of its transfer.

Buckets are filled in order with tensors, or with pieces of a tensor that is too large for one
bucket.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shardwright.ir.arrays import Integers
from shardwright.ir.errors import InputError
from shardwright.ir.kinds import Kinds, ModelMember
from shardwright.ir.model_flow import Flow, ModelFlows, Share

ALIGN, DIGEST = 8, 8
"""Each tensor in a message follows a digest of DIGEST bytes and is padded to a multiple of ALIGN
bytes."""


MOST_BUCKETS = 1 << 16


class Buckets(NamedTuple):
    """The division of a model into buckets.

    `pieces`: the number of pieces of each member, in order. `ends`: for each bucket, the number of
    pieces in it and in all buckets before it. `largest`: the maximum bytes of a bucket on any
    device.
    """

    pieces: tuple[int, ...]
    ends: tuple[int, ...]
    largest: int


class Filling:
    """Fills buckets with pieces of members in order. A bucket takes at most half of the memory
    limit of a device, because two buckets are in flight at a time."""

    def __init__(
        self, kinds: Kinds, flows: ModelFlows, devices: tuple[int, ...], limit: int
    ) -> None:
        self.members, self.flows, self.limit, self.half = kinds.members, flows, limit, limit // 2
        index = {device: number for number, device in enumerate(devices)}
        self.at = [np.array([index[device] for device in place.devices]) for place in kinds.places]
        self.staged: dict[Share, Flow] = {}
        self.cut: dict[Share, int] = {}
        self.load = np.zeros(len(index), dtype=np.int64)
        self.pending: list[tuple[ModelMember, Flow]] = []
        self.bound = 0  # upper bound on the bucket's bytes on any device, including pending pieces
        self.ends: list[int] = []
        self.largest = 0

    def run(self, busiest: int) -> Buckets:
        """Fill buckets with all members and return them.

        `busiest`: the total bytes that the busiest device sends and receives. Raises InputError for
        a limit that is too small.
        """
        if busiest > MOST_BUCKETS * self.half:
            raise InputError(
                f"the limit must not split the model into more than {MOST_BUCKETS:,} buckets",
                argument="memory_limit",
                got=f"{self.limit:,} bytes, for a device that moves {busiest:,} bytes",
                expected=f"at least {max(2 * -(-busiest // MOST_BUCKETS), self.least):,} bytes",
            )
        pieces, items = [], 0
        for member in self.members:
            count = self._count(Share(member.kind, member.turn), member)
            pieces.append(count)
            for piece in range(count):
                flow = self._staged(Share(member.kind, member.turn, piece, count))
                if not self._fits(member, flow):
                    self._close(items)
                    self._fits(member, flow)
                items += 1
        self._close(items)
        return Buckets(tuple(pieces), tuple(self.ends), self.largest)

    def _fits(self, member: ModelMember, flow: Flow) -> bool:
        """Add a piece to the bucket if it fits. Return whether it fits."""
        most = _most(flow)
        if self.bound + most > self.half:
            self._settle()
            self.bound = int(self.load.max())
        if self.bound + most > self.half:
            self._add(member, flow, 1)
            if self.load.max() > self.half:
                self._add(member, flow, -1)
                return False
            self.bound = int(self.load.max())
            return True
        self.pending.append((member, flow))
        self.bound += most
        return True

    def _settle(self) -> None:
        for member, flow in self.pending:
            self._add(member, flow, 1)
        self.pending.clear()

    def _add(self, member: ModelMember, flow: Flow, sign: int) -> None:
        self.load[self.at[member.source]] += sign * flow.sent
        self.load[self.at[member.target]] += sign * flow.received

    def _close(self, items: int) -> None:
        self._settle()
        self.largest = max(self.largest, int(self.load.max()))
        self.ends.append(items)
        self.load[:] = 0
        self.bound = 0

    def _staged(self, moving: Share) -> Flow:
        """Return the bytes of a piece's messages per device, including digests and padding."""
        if moving not in self.staged:
            self.staged[moving] = _with_digests(self.flows.pairs(moving))
        return self.staged[moving]

    def _count(self, moving: Share, member: ModelMember) -> int:
        """Return the number of pieces into which a member must be cut so that each fits into a
        bucket. Raises InputError if not even one element of every message fits."""
        if moving not in self.cut:
            count = max(-(-_most(self._staged(moving)) // self.half), 1) if self.half else 1
            longest = max((r.elements for r in self.flows.relays[moving.kind].relays), default=1)
            while not self._all_fit(moving, count):
                if count >= longest:
                    raise InputError(
                        "the limit must have room for two buckets, each with an element of every "
                        "message of a tensor",
                        argument="memory_limit",
                        got=f"{self.limit:,} bytes, too few for {member.tensor}",
                        expected=f"at least {self.least:,} bytes",
                    )
                count = min(count + max(count // 8, 1), longest)
            self.cut[moving] = count
        return self.cut[moving]

    def _all_fit(self, moving: Share, count: int) -> bool:
        pieces = (moving._replace(piece=piece, pieces=count) for piece in range(count))
        return all(_most(self._staged(each)) <= self.half for each in pieces)

    @property
    def least(self) -> int:
        """A limit in bytes that is large enough for two buckets, each with one element of every
        message of any tensor."""
        shares = {Share(each.kind, each.turn) for each in self.members}
        return 2 * max(_most(_with_digests(self.flows.pairs(each, finest=True))) for each in shares)


def _with_digests(pairs: Integers) -> Flow:
    """Return the bytes that devices send and receive, including digests and padding, given the
    payload bytes [source positions, target positions]."""
    staged = np.where(pairs > 0, -(-pairs // ALIGN) * ALIGN + DIGEST, 0)
    return Flow(staged.sum(axis=1), staged.sum(axis=0))


def _most(flow: Flow) -> int:
    """Return an upper bound on the bytes that one device sends and receives for a piece: the
    maximum sent by any device plus the maximum received by any device."""
    return int(flow.sent.max(initial=0) + flow.received.max(initial=0))
