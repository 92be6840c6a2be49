"""A relayout: the same logical tensors in two stored layouts, and the bytes that it must move.

A device must receive each element that it stores afterwards and did not have before, once, however
many of its buffers have it: no exchange moves less. Each holder of an element sends an even share
of what is read of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from shardwright.ir.errors import InputError, check_type
from shardwright.ir.holdings import Mask, TensorClasses
from shardwright.ir.stored import Stored


@dataclass(frozen=True)
class Relayout:
    """Logical tensors from one stored layout to another, on the same devices or on others.

    Raises InputError unless both sides have the same tensors, shapes and dtype.
    """

    source: Stored
    target: Stored

    def __post_init__(self) -> None:
        for name in ("source", "target"):
            check_type(getattr(self, name), Stored, "sw.Stored(mesh, tensors, layout, dtype)", name)
        check_alike(self.source, self.target)


def check_alike(first: Stored, second: Stored) -> None:
    """Raise InputError unless both layouts store the same tensors of the same dtype."""
    for what in ("tensors", "dtype"):
        own, other = getattr(first, what), getattr(second, what)
        if own != other:
            raise InputError(
                f"both layouts must have the same {what}",
                argument="target",
                got=_said(other, own),
                expected=_said(own, other),
            )


def _said(own: object, other: object) -> str:
    """Return what one side has and the other has not."""
    if not isinstance(own, dict) or not isinstance(other, dict):
        return str(own)
    alone = (f"{name} {shape}" for name, shape in own.items() if other.get(name) != shape)
    return ", ".join(alone) or "no more tensors"


@dataclass(frozen=True)
class RelayoutPlan:
    """The bytes that devices must receive, and send, by device id; `tensors`: received, by name."""

    relayout: Relayout
    received: Mapping[int, int]
    sent: Mapping[int, int]
    tensors: Mapping[str, int]

    @property
    def received_max(self) -> int:
        """Bytes that the device receives that receives most: the least possible."""
        return max(self.received.values(), default=0)

    @property
    def sent_max(self) -> int:
        """Bytes that the device sends that sends most, where holders share alike."""
        return max(self.sent.values(), default=0)

    @property
    def total(self) -> int:
        """Bytes that all devices receive."""
        return sum(self.received.values())

    def to_dict(self) -> dict[str, object]:
        """Return the bytes as plain data."""
        return {
            "bytes": {
                "received_max": self.received_max,
                "sent_max": self.sent_max,
                "total": self.total,
            },
            "received": {str(device): count for device, count in self.received.items()},
            "sent": {str(device): count for device, count in self.sent.items()},
            "tensors": dict(self.tensors),
        }

    def to_json(self) -> str:
        """Return `to_dict` as text."""
        return json.dumps(self.to_dict(), indent=2) + "\n"

    def __str__(self) -> str:
        tensors = (f"  {name:20} {count:>18,}" for name, count in self.tensors.items())
        return "\n".join(
            [
                f"received by the busiest device {self.received_max:,} bytes, the least possible",
                f"sent by the busiest device     {self.sent_max:,} bytes",
                f"received by all devices        {self.total:,} bytes, of these",
                *tensors,
            ]
        )


def plan_relayout(relayout: Relayout) -> RelayoutPlan:
    """Return the bytes that a relayout must move."""
    source, target = relayout.source, relayout.target
    received = dict.fromkeys(target.mesh.device_ids, 0)
    sent = dict.fromkeys(source.mesh.device_ids, 0)
    tensors = {}
    for name in source.tensors:
        wanted = _wanted(relayout, name)
        for device, count in wanted.received.items():
            received[device] += count * source.itemsize
        for device, count in wanted.sent().items():
            sent[device] += count * source.itemsize
        tensors[name] = sum(wanted.received.values()) * source.itemsize
    return RelayoutPlan(relayout, received, sent, tensors)


@dataclass(frozen=True)
class _Wanted:
    """Of one tensor: its classes, what source devices have, and what target devices lack."""

    classes: TensorClasses
    held: dict[int, Mask]
    lacking: dict[int, Mask]
    received: dict[int, int]  # elements

    def sent(self) -> dict[int, int]:
        """Return the elements that each device sends: of those that the same devices have, an even
        share each, which of them sends one more in turns."""
        devices = list(self.held)
        holds = np.stack([mask.reshape(-1) for mask in self.held.values()])
        found = dict.fromkeys(devices, 0)
        kinds, kind = np.unique(holds, axis=1, return_inverse=True)
        shape = next(iter(self.held.values())).shape
        for turn, mask in enumerate(self.lacking.values()):
            for number in np.unique(kind.reshape(-1)[mask.reshape(-1)]):
                cells = mask & (kind.reshape(shape) == number)
                holders = [devices[place] for place in np.flatnonzero(kinds[:, number])]
                share, extra = divmod(self.classes.elements(cells), len(holders))
                for place, device in enumerate(holders):
                    found[device] += share + ((place + turn) % len(holders) < extra)
        return found


def _wanted(relayout: Relayout, name: str) -> _Wanted:
    source, target = relayout.source, relayout.target
    sides = source.holdings[name], target.holdings[name]
    every = dict.fromkeys(box for side in sides for boxes in side for box in boxes)
    classes = TensorClasses.of(source.tensors[name], every)
    held = {
        device: classes.mask(boxes)
        for device, boxes in zip(source.mesh.device_ids, sides[0], strict=True)
    }
    lacking = {}
    for device, boxes in zip(target.mesh.device_ids, sides[1], strict=True):
        mask = classes.mask(boxes)
        lacking[device] = mask & ~held[device] if device in held else mask
    received = {device: classes.elements(mask) for device, mask in lacking.items()}
    return _Wanted(classes, held, lacking, received)
