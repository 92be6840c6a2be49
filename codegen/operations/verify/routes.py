"""Compare the tiles that a module's own index functions send with the plan's tiles. Used in workers
only.

Every emitted module derives its transfers twice, once for each end: a receiver lists its `senders`,
a sender its `receivers`. Both lists are computed here for every device, and both must equal the
plan's transfers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any

import numpy as np

from shardwright.codegen.checks.case import Case, Transfer
from shardwright.codegen.checks.compare import MismatchError, named
from shardwright.codegen.checks.oracle import definition as oracle
from shardwright.codegen.checks.oracle import sums as oracle_terms


def says_what_moves(module: ModuleType) -> bool:
    """Return whether a module describes its moves as exchanges. A module of collectives or steps
    has nothing to compare."""
    return named(named(module, "_HOST"), "exchange") is not None


def phases_agree(hosts: Iterable[Any]) -> None:
    """Raise MismatchError unless both ends of each exchange list the same pieces, and the pieces
    make up the receiver's shard."""
    for host in hosts:
        fault = host.exchange.fault()
        if fault:
            raise MismatchError(fault)


def routes(module: ModuleType, case: Case) -> None:
    """Raise MismatchError unless both ends list exactly the plan's transfers. If the module itself
    chooses which replica sends, the two ends need only agree."""
    if not module._HOST.exchange.by_plan:
        fault = module._HOST.exchange.fault()
        if fault:
            raise MismatchError(fault)
        return
    expected, forms = set(case.transfers), _Hosted(module, case)
    for end, found in (("receivers", forms.incoming()), ("senders", forms.outgoing())):
        got = sorted(found)
        for transfer in got:
            if transfer not in expected:
                raise MismatchError(f"the {end}' forms move {transfer}, which is not in the plan")
        if len(got) != len(expected):
            left = min(expected - set(got), default=got[0])
            raise MismatchError(f"the {end}' forms do not move {left} exactly once")


def exchanged(module: ModuleType, case: Case) -> None:
    """Raise MismatchError unless both ends list the same pieces, each inside the sender's shard,
    and the pieces fill every receiver's shard exactly once."""
    hosted = _Hosted(module, case)
    received, sent = Counter(hosted.incoming()), Counter(hosted.outgoing())
    for transfer in (received - sent) + (sent - received):
        who = "receivers" if received[transfer] > sent[transfer] else "senders"
        raise MismatchError(f"only the {who} list {transfer}")
    held, wanted = (oracle.holdings(side, case.shape) for side in (case.source, case.target))
    of_term, made = oracle_terms.terms_held(case.source), oracle_terms.terms_held(case.target)
    made_of = oracle_terms.made_of(case.source, case.target, transposed=case.transposed)
    filled = {
        (device, term): np.zeros([len(part) for part in whole], np.int64)
        for device, whole in wanted.items()
        for term in made_of[made[device]]
    }
    for sender, receiver, *ends in received.elements():
        box = list(zip(ends[::2], ends[1::2], strict=True))
        for role, whole in (("sender", held[sender]), ("receiver", wanted[receiver])):
            if any(
                low not in part or high - 1 not in part
                for (low, high), part in zip(box, whole, strict=True)
            ):
                raise MismatchError(f"{(sender, receiver, *ends)}: not inside the {role}'s shard")
        places = zip(box, wanted[receiver], strict=True)
        at = tuple(slice(low - part[0], high - part[0]) for (low, high), part in places)
        if (receiver, of_term[sender]) not in filled:
            raise MismatchError(f"device {receiver}: it receives a term that another device needs")
        filled[receiver, of_term[sender]][at] += 1
    for (device, _), times in filled.items():
        if (times != 1).any():
            raise MismatchError(
                f"device {device}: the tiles sent to it do not fill its shard exactly once"
            )


class _Hosted:
    """The pieces that each end lists, according to a module's `_HOST`."""

    def __init__(self, module: ModuleType, case: Case) -> None:
        self._exchange, self._rank = module._HOST.exchange, len(case.shape)
        self._sources, self._targets = case.source.device_ids, case.target.device_ids

    def incoming(self) -> Iterator[Transfer]:
        for receiver in range(len(self._targets)):
            yield from map(self._transfer, self._exchange.incoming(receiver))

    def outgoing(self) -> Iterator[Transfer]:
        for sender in range(len(self._sources)):
            yield from map(self._transfer, self._exchange.outgoing(sender))

    def _transfer(self, piece: Any) -> Transfer:
        devices = self._sources[piece.sender], self._targets[piece.receiver]
        box = piece.box[2 * len(self._exchange.hidden) :]
        return (*devices, *map(int, box[: 2 * self._rank]))
