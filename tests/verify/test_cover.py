"""The proof that every element of every target shard is written once, on faults planted in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from shardwright.codegen.checks.compare import MismatchError
from shardwright.codegen.operations.verify.cover import check_cover

DEVICES, LANES = 128, 8
"""Rows over all devices become columns over groups of eight: 16 shards of 64 columns each."""

Box = tuple[int, ...]


def source_box(position: int) -> Box:
    return position * 4, position * 4 + 4, 0, 1024


def target_box(position: int) -> Box:
    return 0, 512, position // LANES * 64, position // LANES * 64 + 64


def senders(receiver: int) -> list[Any]:
    """Every device has rows for it."""
    del receiver
    return list(range(DEVICES))


def receivers(sender: int) -> list[Any]:
    del sender
    return list(range(DEVICES))


class Exchange:
    """What an emitted module says of its exchange, in place of the support's class."""

    hidden, new = (), 0

    def __init__(self, **planted: Callable[[int], Sequence[Any]]) -> None:
        ids = range(DEVICES)
        self.cut = planted.pop("cut", None)
        self.source = SimpleNamespace(ids=ids, box=planted.get("source_box", source_box))
        self.target = SimpleNamespace(ids=ids, box=planted.get("target_box", target_box))
        self._senders = planted.get("senders", senders)
        self._receivers = planted.get("receivers", receivers)

    def is_empty(self, receiver: int) -> bool:
        del receiver
        return False

    def incoming(self, receiver: int) -> list[Any]:
        return [self._piece(sender, receiver) for sender in self._senders(receiver)]

    def outgoing(self, sender: int) -> list[Any]:
        return [self._piece(sender, receiver) for receiver in self._receivers(sender)]

    def _piece(self, sender: int, receiver: int) -> Any:
        one, other = self.source.box(sender), self.target.box(receiver)
        low = map(max, one[::2], other[::2])
        high = map(min, one[1::2], other[1::2])
        return SimpleNamespace(box=[end for pair in zip(low, high, strict=True) for end in pair])


def said(**planted: Callable[[int], Sequence[Any]]) -> str:
    """What is wrong with an exchange in which some functions are others."""
    with pytest.raises(MismatchError) as error:
        check_cover(Exchange(**planted))
    return str(error.value)


def test_a_right_exchange() -> None:
    check_cover(Exchange())


def test_a_hole_on_late_devices_alone() -> None:
    """A form that is right below device 64."""
    found = said(senders=lambda receiver: senders(receiver)[: -1 if receiver >= 64 else None])
    assert found == "device 64: the boxes that it receives have 32512 elements of 32768"


def test_an_overlap() -> None:
    twice = [*range(DEVICES - 1), DEVICES - 2]
    found = said(senders=lambda receiver: twice if receiver == 100 else senders(receiver))
    assert found == "device 100: the boxes that it receives overlap"


def test_a_box_from_another_source() -> None:
    """Two rows less of one shard, and the next one has them: no hole, but not what is sent."""
    wrong = [*range(DEVICES - 1), DEVICES - 1 - 64]
    found = said(senders=lambda receiver: wrong if receiver == 127 else senders(receiver))
    assert found == "device 127: the boxes that it receives overlap"


def test_a_wrong_replica() -> None:
    """Right values, but from a device that does not send them."""

    def doubled(position: int) -> Box:
        return position // 2 * 8, position // 2 * 8 + 8, 0, 1024

    one_of_two = list(range(0, DEVICES, 2))
    other = [*one_of_two[:-1], 127]
    planted: dict[str, Any] = {
        "source_box": doubled,
        "senders": lambda receiver: other if receiver == 70 else one_of_two,
        "receivers": lambda sender: receivers(sender) if sender % 2 == 0 else [],
    }
    assert said(**planted) == (
        "only the senders list a box from device 126 to device 70, or list it twice"
    )


def test_a_shard_that_is_sent_twice() -> None:
    found = said(receivers=lambda sender: [*receivers(sender), 5] if sender == 90 else receivers(0))
    assert found == "only the senders list a box from device 90 to device 5, or list it twice"


def test_a_position_that_is_none() -> None:
    """An array would take it from its end."""
    found = said(senders=lambda receiver: [*range(-1, DEVICES - 1)])
    assert found == "device 0: a sender has position -1, expected 0 to 127"


def test_pieces_of_tiles() -> None:
    """Four holders of each half have a piece of every tile, and one of them has another's."""
    cut = SimpleNamespace(pieces=4, dim=0, unit=2)

    def halves(position: int) -> Box:
        return position // 64 * 256, position // 64 * 256 + 256, 0, 1024

    def pieces(receiver: int) -> list[Any]:
        half = [(start + piece, piece) for start in (0, 64) for piece in range(4)]
        return [*half[:-1], (67, 2)] if receiver == 99 else half

    class Cut(Exchange):
        def incoming(self, receiver: int) -> list[Any]:
            found = []
            for sender, number in self._senders(receiver):
                low = halves(sender)[0] + number * 64
                box = [low, low + 64, *target_box(receiver)[2:]]
                found.append(SimpleNamespace(box=box))
            return found

    planted: dict[str, Any] = {"cut": cut, "source_box": halves, "receivers": None}
    check_cover(Cut(**planted, senders=lambda receiver: pieces(0)))
    with pytest.raises(MismatchError) as error:
        check_cover(Cut(**planted, senders=pieces))
    assert str(error.value) == "device 99: the boxes that it receives overlap"
