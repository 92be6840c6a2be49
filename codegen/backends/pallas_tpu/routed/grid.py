"""Where devices are that send directly over a power of two of hops only (v5e): which pairs of them
may, and whether hops that may lead everywhere."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shardwright.codegen.backends.pallas_tpu.routed.schedule import (
    Digits,
    Hop,
    digits_of,
    is_routed,
    offsets_of,
    steps,
)
from shardwright.codegen.backends.pallas_tpu.terms import moved
from shardwright.codegen.hardware.torus import Torus
from shardwright.ir.algebra.index import Integers
from shardwright.ir.errors import InputError
from shardwright.ir.exchange import Exchange, ids_of
from shardwright.ir.plan import DirectPlan
from shardwright.ir.transfers import enumerate_transfers


@dataclass(frozen=True)
class Grid:
    """The devices of an exchange as they are numbered: by mesh position where both meshes have one
    order, else by device id; `ids` are their device ids, their places in the torus."""

    torus: Torus
    ids: Integers

    @staticmethod
    def of(exchange: Exchange, torus: Torus) -> Grid:
        """Return the devices of an exchange on a torus."""
        return Grid(torus, _numbered(exchange))

    @property
    def digits(self) -> Digits:
        """The digits of the numbers."""
        return digits_of(self.ids.size)

    def pairs(self, exchange: Exchange) -> tuple[Integers, Integers]:
        """Return the numbers of senders and receivers, each pair once."""
        sender, receiver, _ = exchange.once(sent_tiles)
        pairs = np.unique(np.stack([sender, receiver]), axis=1)
        return pairs[0], pairs[1]

    def widths(self, exchange: Exchange) -> dict[int, tuple[int, ...]]:
        """Return the offsets that occur, ascending, with the widest extents of their tiles."""
        sender, receiver, widths = exchange.once(sent_tiles)
        offsets, group = np.unique(offsets_of(sender, receiver, self.digits), return_inverse=True)
        widest = np.zeros((offsets.size, widths.shape[1]), dtype=np.int64)
        np.maximum.at(widest, group, widths)
        return dict(zip(offsets.tolist(), map(tuple, widest.tolist()), strict=True))

    def is_direct(self, sender: Integers, receiver: Integers) -> bool:
        """Return whether all these pairs may send."""
        messages = self.torus.messages(self.ids[sender], self.ids[receiver])
        return bool((messages == 1).all())

    def reaches(self) -> bool:
        """Return whether hops may be sent and lead everywhere."""
        if not is_routed(self.digits):
            return False
        device = np.arange(self.ids.size)
        hops = [Hop(*digit, by) for digit in self.digits for by in steps(digit[1])]
        sender = np.tile(device, len(hops))
        receiver = np.concatenate([hop.to(device) for hop in hops] or [device])
        return not hops or self.is_direct(sender, receiver)


def sent_tiles(exchange: Exchange) -> tuple[Integers, Integers, Integers]:
    """Return the numbers of sender and receiver of every tile that is sent, and its extents [n,
    dims]."""
    moved, ids = exchange.once(enumerate_transfers), _numbered(exchange)
    remote = ~moved.is_local
    order = np.argsort(ids)
    sender, receiver = (
        order[np.searchsorted(ids[order], end[remote])] for end in (moved.sender, moved.receiver)
    )
    return sender, receiver, (moved.tensor[:, :, 1] - moved.tensor[:, :, 0])[remote]


def _numbered(exchange: Exchange) -> Integers:
    """Return device ids by the numbers that devices have in a kernel."""
    return ids_of(exchange.source.mesh) if exchange.same_order else exchange.ranks


def refuse_unreached(grid: Grid, plan: DirectPlan) -> None:
    """Raise InputError where tiles are to go farther than directly and hops do not lead there."""
    if not grid.reaches() and not grid.is_direct(*grid.pairs(moved(plan))):
        raise InputError(
            "some tiles go farther than a device sends directly, over a power of two of hops along "
            "one axis, and devices in this order cannot forward them",
            argument="topology",
            got=f"{plan.prediction.topology}, device ids {_some(grid.ids)}",  # type: ignore[union-attr]
            expected="a mesh that fills axes of the torus, or halves of them, so that every digit "
            "of a device id is one along an axis; or no topology, and a module for other chips",
        )


def _some(ids: Integers) -> str:
    listed = [str(number) for number in ids[:8].tolist()]
    return ", ".join(listed) + (", ..." if ids.size > 8 else "")
