"""Relayouts: the same logical tensors in two stored layouts, and the moves between them.

A device must receive, exactly once, each element that it stores afterwards but not before, even if
several of its buffers store the element. A plan moves nothing else.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

from shardwright.ir.drawn import Drawn
from shardwright.ir.errors import InputError, check_type
from shardwright.ir.factors import FactorAxis
from shardwright.ir.layout import Layout
from shardwright.ir.mesh import Mesh
from shardwright.ir.parts import TensorPart
from shardwright.ir.relays import Relay, relays_of, shapes_of
from shardwright.ir.reshard import SPLITS, Reshard
from shardwright.ir.sharding import DimSharding, Sharding
from shardwright.ir.stored import Stored

Ranges: TypeAlias = tuple[tuple[int, int], ...]
"""The half-open range of each dimension: its low and its high end."""


@dataclass(frozen=True, repr=False)
class Relayout(Drawn):
    """A move of logical tensors from one stored layout to another, on the same or different
    devices.

    Raises InputError unless both sides have the same tensors, shapes and dtype.
    """

    source: Stored
    target: Stored

    def __post_init__(self) -> None:
        for name in ("source", "target"):
            check_type(getattr(self, name), Stored, "sw.Stored(mesh, tensors, layout, dtype)", name)
        check_alike(self.source, self.target)

    def __repr__(self) -> str:
        return f"<Relayout: from {self.source!r} to {self.target!r}>"


def check_alike(first: Stored, second: Stored, argument: str = "target") -> None:
    """Raise InputError unless both layouts store the same tensors with the same dtype. `argument`:
    the name of `second`."""
    for what in ("tensors", "dtype"):
        own, other = getattr(first, what), getattr(second, what)
        if own != other:
            raise InputError(
                f"both layouts must have the same {what}",
                argument=argument,
                got=_said(other, own),
                expected=_said(own, other),
            )


def _said(own: object, other: object) -> str:
    """Describe, for an error, the tensors of one side that the other side lacks or has with a
    different shape. Return a dtype's name unchanged."""
    if not isinstance(own, dict) or not isinstance(other, dict):
        return str(own)
    alone = (f"{name} {shape}" for name, shape in own.items() if other.get(name) != shape)
    return ", ".join(alone) or "no other tensors"


@dataclass(frozen=True, repr=False)
class RelayoutPlan(Drawn):
    """The moves of a relayout, and the bytes that each device sends and receives. For a packed
    dtype, the elements of relays are bytes."""

    relayout: Relayout
    relays: tuple[Relay, ...]

    @cached_property
    def received(self) -> dict[int, int]:
        """The bytes that each target device receives, by device id."""
        return self._bytes(self.relayout.target.mesh, lambda relay: relay.receiver)

    @cached_property
    def sent(self) -> dict[int, int]:
        """The bytes that each source device sends, by device id."""
        return self._bytes(self.relayout.source.mesh, lambda relay: relay.sender)

    @cached_property
    def tensors(self) -> dict[str, int]:
        """The total bytes that devices receive of each tensor, by name."""
        found = dict.fromkeys(self.relayout.source.tensors, 0)
        for relay in self.moved:
            found[relay.tensor] += relay.elements * self.relayout.source.in_bytes.itemsize
        return found

    @property
    def moved(self) -> tuple[Relay, ...]:
        """The relays between different devices."""
        return tuple(relay for relay in self.relays if relay.sender != relay.receiver)

    def _bytes(self, mesh: Mesh, end: Callable[[Relay], int]) -> dict[int, int]:
        found = dict.fromkeys(mesh.device_ids, 0)
        for relay in self.moved:
            found[end(relay)] += relay.elements * self.relayout.source.in_bytes.itemsize
        return found

    @property
    def received_max(self) -> int:
        """The bytes that the busiest receiver receives. No plan can have fewer."""
        return max(self.received.values(), default=0)

    @property
    def sent_max(self) -> int:
        """The bytes that the busiest sender sends."""
        return max(self.sent.values(), default=0)

    @property
    def total(self) -> int:
        """The total bytes that devices receive."""
        return sum(self.received.values())

    def to_dict(self) -> dict[str, Any]:
        """Return the bytes and the relays as plain data."""
        return {
            "bytes": {
                "received_max": self.received_max,
                "sent_max": self.sent_max,
                "total": self.total,
            },
            "received": {str(device): count for device, count in self.received.items()},
            "sent": {str(device): count for device, count in self.sent.items()},
            "tensors": dict(self.tensors),
            "relays": [_listed(relay) for relay in self.relays],
        }

    def to_json(self) -> str:
        """Return `to_dict` as JSON text, one line per relay."""
        said = self.to_dict()
        relays = ",\n    ".join(map(json.dumps, said.pop("relays")))
        text = json.dumps(said, indent=2).removesuffix("\n}")
        return f'{text},\n  "relays": [\n    {relays}\n  ]\n}}\n'

    def __repr__(self) -> str:
        return (
            f"<RelayoutPlan: {', '.join(self.tensors)} in {len(self.moved)} strided boxes to other "
            f"devices, {self.total:,} bytes, at most {self.received_max:,} to a device>"
        )

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


def _listed(relay: Relay) -> dict[str, object]:
    """Return a relay as plain data. Its source and each target are pairs of the buffer's index
    and the offset of the first element."""
    return {
        "tensor": relay.tensor,
        "sender": relay.sender,
        "receiver": relay.receiver,
        "source": list(relay.source),
        "targets": list(map(list, relay.targets)),
        "loops": [[loop.times, *loop.steps] for loop in relay.loops],
    }


def plan_relayout(relayout: Relayout) -> RelayoutPlan:
    """Return the plan of a relayout, which moves the fewest bytes possible."""
    return RelayoutPlan(relayout, relays_of(relayout.source.in_bytes, relayout.target.in_bytes))


def as_reshard(relayout: Relayout) -> Reshard | None:
    """Return a reshard that makes the same moves, or None if no reshard does.

    A reshard does if the relayout has a single tensor, both sides store it in one buffer after the
    same reshape, and both split the reshaped tensor like a sharding along whole axes. The tensor of
    the reshard is the reshaped tensor.
    """
    sides = relayout.source, relayout.target
    if any(len(side.tensors) != 1 or len(side.buffers) != 1 for side in sides):
        return None
    before, after = map(_as_sharding, sides)
    if before is None or after is None:
        return None
    views = [part.axes for side in sides for each in side.bound.values() for part in each.parts]
    if views[0] != views[1]:
        return None
    try:
        return Reshard(
            _viewed(views[0]), relayout.source.dtype, before[0], after[0], before[1], after[1]
        )
    except InputError:  # a dtype or a rank that reshards do not support
        return None


def _as_sharding(stored: Stored) -> tuple[Sharding, str] | None:
    """Return the sharding and the split with which a layout stores its only tensor, or None if no
    sharding along whole axes splits it in the same way."""
    ((name, layout),) = stored.buffers.items()
    if not isinstance(layout, TensorPart):
        return None
    if any(ref.size for dim in layout.dims for ref in dim.axes):
        return None
    buffer = stored.bound[name]
    shape = _viewed(buffer.parts[0].axes)
    dims = [DimSharding(dim.axes) for dim in layout.dims]
    dims += [DimSharding()] * (len(shape) - len(dims))
    sharding = Sharding(stored.mesh, tuple(dims))
    positions = range(stored.mesh.size)
    held = [_filled(buffer.parts[0].box(position)) for position in positions]
    for split in SPLITS:
        sharded = Layout.of(sharding, shape, split)
        same = held == [_filled(sharded.box(position)) for position in positions]
        if same and shapes_of(stored, buffer, padded=True)[0] == sharded.local_shape:
            return sharding, split
    return None


def _viewed(axes: tuple[tuple[FactorAxis, ...], ...]) -> tuple[int, ...]:
    """Return the shape of a tensor after its factors are reordered."""
    return tuple(math.prod(axis.size for axis in group) for group in axes)


def _filled(box: Ranges) -> Ranges | None:
    return box if all(low < high for low, high in box) else None
