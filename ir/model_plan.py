"""Plans of models: the moves, their order and buckets, and the bytes that each device moves.

`ModelPlan.data` is the plain data that a runtime needs: kinds, members, places and buckets. A place
lists the devices of a buffer, by mesh position. A bucket is the unit of transfer: while one bucket
is in flight, the next is packed. The messages that a device sends and receives for two buckets
therefore take at most `memory_limit` bytes.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any

from shardwright.ir.buckets import Buckets, Filling
from shardwright.ir.drawn import Drawn
from shardwright.ir.errors import InputError
from shardwright.ir.kind_relays import KindRelays, relays_of_kind
from shardwright.ir.kinds import Kinds, kinds_of
from shardwright.ir.mesh import as_integer
from shardwright.ir.model import MEMORY_LIMIT, Model, counted
from shardwright.ir.model_data import kind_data
from shardwright.ir.model_flow import Flow, ModelFlows, Share
from shardwright.ir.rules import Rules, check_stored
from shardwright.ir.stored import Stored


@dataclass(frozen=True, repr=False)
class ModelPlan(Drawn):
    """The moves of a model from the source layouts to the target layouts.

    `memory_limit`: the maximum bytes in flight on any device.
    """

    model: Model
    source: Rules
    target: Rules
    kinds: Kinds  # members in transfer order
    relays: tuple[KindRelays, ...]  # the relays of each kind
    memory_limit: int = MEMORY_LIMIT

    @cached_property
    def flows(self) -> dict[Share, Flow]:
        """The bytes that each position sends and receives for a member, by the member's kind and
        turn."""
        every = dict.fromkeys(Share(member.kind, member.turn) for member in self.kinds.members)
        return {each: self._flows.of(each) for each in every}

    @cached_property
    def _flows(self) -> ModelFlows:
        return ModelFlows(self.kinds.kinds, self.relays)

    def _totals(self, end: int) -> dict[int, int]:
        """Return the bytes that each source device sends (end 0) or each target device receives
        (end 1), by device id."""
        places = self.kinds.places
        found: dict[int, int] = {}
        counted = Counter(
            ((member.source, member.target)[end], Share(member.kind, member.turn))
            for member in self.kinds.members
        )
        for (place, moving), count in counted.items():
            for device, each in zip(
                places[place].devices, self.flows[moving][end].tolist(), strict=True
            ):
                found[device] = found.get(device, 0) + count * each
        return dict(sorted(found.items()))

    @cached_property
    def sent(self) -> dict[int, int]:
        """The bytes that each source device sends, by device id."""
        return self._totals(0)

    @cached_property
    def received(self) -> dict[int, int]:
        """The bytes that each target device receives, by device id."""
        return self._totals(1)

    @property
    def received_max(self) -> int:
        """The bytes that the busiest receiver receives. No plan can have fewer."""
        return max(self.received.values())

    @property
    def sent_max(self) -> int:
        """The bytes that the busiest sender sends."""
        return max(self.sent.values())

    @property
    def total(self) -> int:
        """The total bytes that devices receive."""
        return sum(self.received.values())

    @property
    def devices(self) -> tuple[int, ...]:
        """The ids of all source and target devices, ascending."""
        return tuple(sorted({*self.sent, *self.received}))

    @cached_property
    def buckets(self) -> Buckets:
        """The division of the model into buckets. Raises InputError for a memory limit that is too
        small."""
        load = (self.sent.get(each, 0) + self.received.get(each, 0) for each in self.devices)
        return Filling(self.kinds, self._flows, self.devices, self.memory_limit).run(max(load))

    @property
    def peak(self) -> int:
        """An upper bound on the bytes in flight on any device: the largest bucket, twice if there
        are several buckets."""
        return self.buckets.largest * min(2, len(self.buckets.ends))

    @cached_property
    def data(self) -> dict[str, Any]:
        """The plain data that a runtime needs, and its digest."""
        members, pieces = self.kinds.members, self.buckets.pieces
        said: dict[str, Any] = {
            "kinds": [kind_data(*each) for each in zip(self.kinds.kinds, self.relays, strict=True)],
            "places": [list(place.devices) for place in self.kinds.places],
            "members": [
                [
                    *(member.kind, member.source, member.target, member.turn, count),
                    *([member.tensor], [member.source_buffer], [member.target_buffer]),
                ]
                for member, count in zip(members, pieces, strict=True)
            ],
            "buckets": list(self.buckets.ends),
            "memory_limit": self.memory_limit,
            "peak": self.peak,
        }
        text = json.dumps(said, separators=(",", ":"))
        return {"digest": hashlib.sha256(text.encode()).hexdigest(), **said}

    def to_dict(self) -> dict[str, Any]:
        """Return a summary of the plan as plain data: bytes, kinds, and the number of buckets."""
        return {
            "tensors": len(self.kinds.members),
            "bytes": {
                "model": self.model.bytes,
                "received_max": self.received_max,
                "sent_max": self.sent_max,
                "total": self.total,
                "peak": self.peak,
            },
            "memory_limit": self.memory_limit,
            "buckets": len(self.buckets.ends),
            "received": {str(device): count for device, count in self.received.items()},
            "sent": {str(device): count for device, count in self.sent.items()},
            "kinds": [self._listed(number) for number in range(len(self.kinds.kinds))],
        }

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2) + "\n"

    def _listed(self, number: int) -> dict[str, object]:
        kind, count = self.kinds.kinds[number], self.counts[number]
        return {
            "shape": list(kind.tensor.shape),
            "dtype": kind.tensor.dtype,
            "source": str(kind.said[0]),
            "target": str(kind.said[1]),
            "first": self.firsts[number],
            "members": count,
            "relays": len(self.relays[number].relays),
        }

    @cached_property
    def counts(self) -> Counter[int]:
        """The number of members of each kind."""
        return Counter(member.kind for member in self.kinds.members)

    @cached_property
    def firsts(self) -> dict[int, str]:
        """The name of the first member of each kind."""
        return {member.kind: member.tensor for member in reversed(self.kinds.members)}

    def __repr__(self) -> str:
        return (
            f"<ModelPlan: {counted(len(self.kinds.members), 'tensor')} of "
            f"{counted(len(self.relays), 'kind')} from {counted(len(self.sent), 'device')} to "
            f"{len(self.received)}, at most {self.received_max:,} bytes to a device>"
        )

    def __str__(self) -> str:
        tensors, kinds, buckets = len(self.kinds.members), len(self.relays), len(self.buckets.ends)
        rows = (
            f"  {self.firsts[number]:50} {self.counts[number]:>6,} x {kind.tensor.bytes:>14,} bytes"
            for number, kind in enumerate(self.kinds.kinds)
        )
        return "\n".join(
            [
                f"{counted(tensors, 'tensor')} of {counted(kinds, 'kind')}, "
                f"{self.model.bytes:,} bytes, from {counted(len(self.sent), 'device')} to "
                f"{counted(len(self.received), 'device')}",
                f"source devices                 {_said(self.sent)}",
                f"target devices                 {_said(self.received)}",
                f"received by the busiest device {self.received_max:,} bytes, the least possible",
                f"sent by the busiest device     {self.sent_max:,} bytes",
                f"received by all devices        {self.total:,} bytes",
                f"in flight on a device at most  {self.peak:,} bytes of {self.memory_limit:,}, in "
                f"{counted(buckets, 'bucket')}",
                "the first tensor of each kind, and the number of tensors:",
                *rows,
            ]
        )


def _said(devices: Iterable[int]) -> str:
    """Return sorted ids as text: at most six ranges, such as `0-3, 7`, and the number of remaining
    ranges."""
    ranges = []
    for _, run in groupby(enumerate(devices), key=lambda each: each[1] - each[0]):
        first, *_, last = [each for _, each in run] * 2
        ranges.append(f"{first}-{last}" if first < last else str(first))
    more = f" and {len(ranges) - 6} more ranges" if len(ranges) > 6 else ""
    return ", ".join(ranges[:6]) + more


def plan_model(
    model: Model, source: object, target: object, *, memory_limit: object = MEMORY_LIMIT
) -> ModelPlan:
    """Return the plan that moves a model from its source to its target layouts.

    `source`, `target`: `sw.Rules`, or the stored layout of all tensors. `memory_limit`: the maximum
    bytes in flight on any device. Raises InputError for rules or layouts that do not fit the model,
    and for a limit that is not a positive integer. (A limit that is too small for the model raises
    InputError only when buckets are first needed.)
    """
    sides = Rules.of(source, "source"), Rules.of(target, "target")
    for given, argument in ((source, "source"), (target, "target")):
        if isinstance(given, Stored):
            check_stored(given, model, argument)
    limit = as_integer(memory_limit)
    if limit is None or limit < 1:
        raise InputError(
            "memory_limit must be a number of bytes", argument="memory_limit", got=memory_limit,
            expected="1 or more, for example 1 << 30",
        )  # fmt: skip
    found = kinds_of(model, *sides)
    relays = tuple(map(relays_of_kind, found.kinds))
    return ModelPlan(model, *sides, _in_turn(found, relays), relays, limit)


def _in_turn(kinds: Kinds, relays: tuple[KindRelays, ...]) -> Kinds:
    """Assign a turn to each member, and order the members. Members with the same source and
    target devices are spread over the whole sequence, so that all devices stay busy."""
    rounds = [math.lcm(*map(len, each.senders)) for each in relays]
    before: Counter[tuple[int, int]] = Counter()
    groups = Counter((member.source, member.target) for member in kinds.members)
    seen: Counter[tuple[int, int]] = Counter()
    found = []
    for member in kinds.members:
        key, group = (member.kind, member.source), (member.source, member.target)
        turn = (member.kind + before[key] * relays[member.kind].step) % rounds[member.kind]
        before[key] += 1
        when = (2 * seen[group] + 1) / groups[group]
        seen[group] += 1
        found.append((when, member._replace(turn=turn)))
    found.sort(key=lambda each: each[0])
    return kinds._replace(members=tuple(member for _, member in found))
