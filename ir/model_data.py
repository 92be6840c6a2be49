"""Build the part of a model plan's plain data that describes one kind."""

from __future__ import annotations

from typing import Any

from shardwright.ir.kind_relays import KindRelays, relays_of_kind
from shardwright.ir.kinds import Geometry, Kind
from shardwright.ir.parts import axes_by_dim


def kind_data(kind: Kind, found: KindRelays) -> dict[str, Any]:
    exact = _tables(kind, found, padded=False)
    sides = kind.source, kind.target
    alike = all(
        each.buffer_shapes(padded=True) == each.buffer_shapes(padded=False) for each in sides
    )
    larger = None if alike else _tables(kind, relays_of_kind(kind, padded=True), padded=True)
    return {
        "dtype": kind.tensor.dtype,
        "tensors": [list(kind.tensor.shape)],
        "senders": list(map(list, found.senders)),
        "receivers": list(map(list, found.receivers)),
        **exact,
        "axes": [dict(side.axes) for side in (kind.source, kind.target)],
        "specs": [[_spec(side)] for side in (kind.source, kind.target)],
        "padded": larger,
    }


def _tables(kind: Kind, found: KindRelays, *, padded: bool) -> dict[str, Any]:
    """Return the shapes of a kind's buffers, and its relays. Relays with the same buffers and loops
    share a *form*, so loops are stored only once per form."""
    forms: dict[tuple[Any, ...], int] = {}
    relays = []
    for relay in found.relays:
        loops = tuple((loop.times, *loop.steps) for loop in relay.loops)
        form = relay.source.buffer, tuple(each.buffer for each in relay.targets), loops
        number = forms.setdefault(form, len(forms))
        starts = (each.start for each in (relay.source, *relay.targets))
        relays.append([relay.sender, relay.receiver, number, *starts])
    return {
        "source": [[str(kind.said[0]), _shapes(kind.source, padded)]],
        "target": [[str(kind.said[1]), _shapes(kind.target, padded)]],
        "forms": [
            [source, list(targets), list(map(list, loops))] for source, targets, loops in forms
        ],
        "relays": relays,
    }


def _spec(geometry: Geometry) -> list[list[str]]:
    rank = len(geometry.buffer_shapes(padded=False)[0])
    return [list(names) for names in axes_by_dim(geometry.layout, rank)]


def _shapes(geometry: Geometry, padded: bool) -> list[Any]:
    shapes = [list(shape) for shape in geometry.buffer_shapes(padded)]
    alike = all(shape == shapes[0] for shape in shapes)
    return shapes[:1] if alike else shapes
