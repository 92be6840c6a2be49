"""Redundant communication: values that every device gathers or sums only to keep a part.

rematerialization  a value is gathered on every device, which then keeps a part
computed whole     a value is gathered and used on every device, which keeps a part of the result
sum of which a part is kept   an all-reduce that could be a reduce-scatter
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from shardwright.codegen.audit.alike import Classes, alike
from shardwright.codegen.audit.moves import Elements, Trace, trace
from shardwright.codegen.audit.reshards import reshard_between
from shardwright.codegen.audit.tiling import HloTiling, sliced_tiling, source_tiling
from shardwright.codegen.audit.values import HloValues
from shardwright.codegen.moves.direct import plan_direct
from shardwright.codegen.spec.hlo.collectives import HloCollective
from shardwright.codegen.spec.hlo.text import HloInstruction, HloModule
from shardwright.ir.mesh import Mesh
from shardwright.ir.reshard import Reshard
from shardwright.ir.steps import ring_bytes

Kind = Literal["rematerialization", "computed whole", "sum of which a part is kept"]
_GATHERS = ("all-gather", "all-gather-start")
Key = tuple[str, str]
"""A computation, and the name of an instruction in it."""
_MOST_SEEN = 2000
"""The most instructions to search for the origin of a value."""


@dataclass(frozen=True)
class HloFinding:
    """One case of redundant communication.

    `collectives`: the collectives that move the value, by computation and name; `kept`: the
    instruction that keeps one of `parts` parts; `after`: the tiling of these parts; `moved`: the
    bytes that the busiest device receives each time; `suffices`: the bytes that it would receive if
    devices exchanged only the kept parts, or None; `reshard`: that exchange, if axes of a mesh can
    express it.
    """

    kind: Kind
    collectives: tuple[Key, ...]
    kept: HloInstruction
    parts: int
    moved: int
    suffices: int | None
    after: HloTiling
    reshard: Reshard | None = None


def findings(
    module: HloModule,
    collectives: Iterable[HloCollective],
    devices: int,
    mesh: Mesh | None,
) -> tuple[HloFinding, ...]:
    """Return the redundant communication of a program, one finding for each original value."""
    values = HloValues(module, devices)
    known = {_key(each.instruction): each for each in collectives}
    seeker = _Seeker(values, known, alike(module, devices), mesh)
    found: dict[Key, dict[HloTiling, HloFinding]] = {}
    for each in module.instructions():
        if each.op != "dynamic-slice" or not each.arrays or not each.arrays[0].shape:
            continue
        after = sliced_tiling(values, each)
        whole = values.operand(each)
        if after is not None and whole is not None:
            begun, made = seeker.finding(each, whole, after)
            if made is not None:
                found.setdefault(begun, {}).setdefault(after, made)
    every = (_of_one_value(tuple(kept.values())) for kept in found.values())
    return tuple(each for each in every if each.suffices is None or each.suffices < each.moved)


def _of_one_value(kept: tuple[HloFinding, ...]) -> HloFinding:
    """Combine the findings on one value. Devices that keep several parts of it need all of them."""
    if len(kept) == 1:
        return kept[0]
    needed = [each.suffices for each in kept if each.suffices is not None]
    suffices = min(sum(needed), kept[0].moved) if len(needed) == len(kept) else None
    return replace(kept[0], suffices=suffices, reshard=None)


class _Seeker(NamedTuple):
    values: HloValues
    known: Mapping[Key, HloCollective]
    classes: Mapping[Key, Classes]
    mesh: Mesh | None

    def finding(
        self, kept: HloInstruction, whole: HloInstruction, after: HloTiling
    ) -> tuple[Key, HloFinding | None]:
        """Return the key of the original value, and the finding if devices keep only part of it."""
        values, way = self.values, trace(self.values, whole, _first(self.values, whole))
        gathers = [each for each in way.passed if each.op in _GATHERS]
        if gathers:
            needless = all(_only_kept(values, each) for each in gathers)
            return _key(gathers[-1]), self._whole(way, kept, whole, after) if needless else None
        begun = way.source
        reduced = values.operand(begun) if begun.op == "get-tuple-element" else begun
        if reduced is not None and reduced.op == "all-reduce":
            return _key(begun), self._summed(begun, reduced, kept, after)
        return _key(whole), self._computed(kept, whole, after)

    def _whole(
        self, way: Trace, kept: HloInstruction, whole: HloInstruction, after: HloTiling
    ) -> HloFinding | None:
        before = source_tiling(self.values, whole)
        reshard, suffices = None, None
        if before is not None:
            reshard = reshard_between(before, after, whole.arrays[0], self.mesh)
        if reshard is not None:
            suffices = plan_direct(reshard).traffic.bound_received_max
        keys = tuple(key for key in map(_key, way.passed) if key in self.known)
        moved = sum(self._bytes(key) for key in keys)
        parts = math.prod(after.counts)
        return HloFinding("rematerialization", keys, kept, parts, moved, suffices, after, reshard)

    def _summed(
        self, begun: HloInstruction, reduced: HloInstruction, kept: HloInstruction, after: HloTiling
    ) -> HloFinding | None:
        """Return the finding that a reduce-scatter would suffice for a summed value, or None unless
        every device of a group keeps a part."""
        collective = self.known.get(_key(reduced))
        if (
            collective is None
            or collective.op != "all-reduce"
            or not _only_kept(self.values, begun)
        ):
            return None
        parts = math.prod(after.counts)
        if {len(group) for group in collective.members} != {parts}:
            return None
        scattered = ring_bytes("reduce_scatter", kept.arrays[0].nbytes, parts)
        kind: Kind = "sum of which a part is kept"
        return HloFinding(kind, (_key(reduced),), kept, parts, 2 * scattered, scattered, after)

    def _computed(
        self, kept: HloInstruction, whole: HloInstruction, after: HloTiling
    ) -> HloFinding | None:
        if {*self.classes[_key(whole)]} != {0}:
            return None
        keys = tuple(key for key in map(_key, _behind(self.values, whole)) if key in self.known)
        moved = sum(self._bytes(key) for key in keys)
        parts = math.prod(after.counts)
        return HloFinding("computed whole", keys, kept, parts, moved, None, after) if keys else None

    def _bytes(self, key: Key) -> int:
        """Return the bytes that the busiest device receives in one execution of a collective."""
        each = self.known[key]
        received = each.received(self.values.devices, padded=False)
        return int(received.max()) // max(1, each.often.times)


def _first(values: HloValues, each: HloInstruction) -> Elements:
    rank = len(each.arrays[0].shape)
    return Elements(np.arange(values.devices), np.zeros((values.devices, rank), dtype=np.int64))


def _only_kept(values: HloValues, each: HloInstruction) -> bool:
    waiting, seen = [each], set()
    while waiting:
        here = waiting.pop()
        for user in values.users(here):
            if user.op == "dynamic-slice" and sliced_tiling(values, user) is not None:
                continue
            rank = len(user.arrays[0].shape) if len(user.arrays) == 1 else None
            if rank is None or (values.operand(user) is None):
                return False
            step = trace(values, user, _first(values, user))
            if user not in step.passed:
                return False
            if _key(user) not in seen:
                seen.add(_key(user))
                waiting.append(user)
    return True


def _behind(values: HloValues, whole: HloInstruction) -> Iterator[HloInstruction]:
    """Yield the gathers from which a value is computed, nearest first."""
    waiting, seen = [whole], {_key(whole)}
    while waiting and len(seen) < _MOST_SEEN:
        each = waiting.pop(0)
        if each.op in _GATHERS:
            yield each
        if each.op in (*_GATHERS, "all-reduce"):  # only some devices compute the summed value
            continue
        for number in range(len(each.operands)):
            made = values.operand(each, number)
            if made is not None and _key(made) not in seen:
                seen.add(_key(made))
                waiting.append(made)


def _key(each: HloInstruction) -> Key:
    return each.computation, each.name
