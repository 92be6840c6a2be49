"""Which tiles a module's own index functions send where, against the plan's. In a worker only.

Every emitted module derives its transfers twice, as each end does it alone: a receiver goes through
`senders`, a sender through `receivers`. Both enumerations are made here, for every device, and both
must be the plan's transfers.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from types import ModuleType

from shardwright.codegen.backends.contract import TRANSFERS
from shardwright.codegen.verify.case import Case, Transfer
from shardwright.codegen.verify.compare import MismatchError, named, names, plain

Shard = tuple[int, ...]
Box = tuple[int, ...]


def routes(module: ModuleType, case: Case, jitted: bool) -> None:
    """Raise MismatchError unless both ends know exactly the plan's transfers."""
    names(module, TRANSFERS)
    expected = set(case.transfers)
    forms = _Forms(module, case, jitted)
    for end, found in (("receivers", forms.incoming()), ("senders", forms.outgoing())):
        got = sorted(found)
        for transfer in got:
            if transfer not in expected:
                raise MismatchError(f"the {end}' forms move {transfer}, which the plan does not")
        if len(got) != len(expected):
            left = min(expected - set(got), default=got[0])
            raise MismatchError(f"the {end}' forms move {left} not once")


class _Forms:
    """The index functions of a module, called with integers at positions of its meshes."""

    def __init__(self, module: ModuleType, case: Case, jitted: bool) -> None:
        self._module, self._jitted = module, jitted
        self._rank = len(case.shape)
        self._sources, self._targets = case.source.device_ids, case.target.device_ids
        self._position = {device: place for place, device in enumerate(self._sources)}
        self._pieces: int = module.PIECES
        self._split = named(module, "_piece") if self._pieces > 1 else None
        shards = {self._call("target_shard", place) for place in range(len(self._targets))}
        self._replicas = len(self._targets) // len(shards)

    def incoming(self) -> Iterator[Transfer]:
        """Yield what every target position takes, in the order of the positions."""
        for receiver, device in enumerate(self._targets):
            mine = self._call("target_shard", receiver)
            own = self._held(device)
            for shard in _shards(self._call("senders", receiver)):
                box = self._call("tile", *shard, *mine)
                if shard == own:
                    yield from self._transfer(device, device, box)
                else:
                    yield from self._sent(shard, receiver, box)

    def outgoing(self) -> Iterator[Transfer]:
        """Yield what every source position sends, and what it keeps."""
        for sender, device in enumerate(self._sources):
            own = self._call("source_shard", sender)
            for shard in _shards(self._call("receivers", sender)):
                for replica in range(self._replicas):
                    receiver = self._call("target_position", *shard, replica)[0]
                    target = self._targets[receiver]
                    box = self._call("tile", *own, *shard)
                    if target == device:
                        yield from self._transfer(device, device, box)
                    elif self._held(target) != own:
                        sent = self._sent(own, receiver, box)
                        yield from (transfer for transfer in sent if transfer[0] == device)

    def _sent(self, shard: Shard, receiver: int, box: Box) -> Iterator[Transfer]:
        """Yield the pieces of a tile, each from the holder that sends it."""
        for number in range(self._pieces):
            which = (number,) if self._pieces > 1 else ()
            sender = self._call("holder", *shard, receiver, *which)[0]
            part = self._split(box, number) if self._split else box
            yield from self._transfer(
                self._sources[sender], self._targets[receiver], tuple(map(int, part))
            )

    def _transfer(self, sender: int, receiver: int, box: Box) -> Iterator[Transfer]:
        """Yield the transfer of a box, if the box is not empty."""
        if all(low < high for low, high in zip(box[::2], box[1::2], strict=True)):
            yield (sender, receiver, *box[: 2 * self._rank])

    def _held(self, device: int) -> Shard | None:
        """Return the source shard that a device holds, if it is in the source mesh."""
        position = self._position.get(device)
        return None if position is None else self._call("source_shard", position)

    def _call(self, name: str, *arguments: int) -> tuple[int, ...]:
        result = plain(self._module, name, self._jitted)(*arguments)
        return tuple(map(int, result)) if isinstance(result, tuple) else (int(result),)


def _shards(counted: tuple[int, ...]) -> Iterator[Shard]:
    """Return every shard index of (first, count) for each dimension."""
    pairs = zip(counted[::2], counted[1::2], strict=True)
    return itertools.product(*(range(first, first + count) for first, count in pairs))
