"""The shapes of the buffers of kernels, as traces of their events need them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shardwright.codegen.backends.pallas_tpu.facts import Buffers
from shardwright.codegen.backends.pallas_tpu.verify.contract import form_of

Shapes = dict[str, tuple[int, ...]]


def shapes_of(program: Any, sends: bool) -> Shapes:
    """Return the shapes of the kernels' buffers, by parameter name. The shapes of buffers in HBM
    include the padding that kernels may use."""
    return SHAPES[form_of(program).buffers](program, sends)


def _shards(program: Any, _: bool) -> Shapes:
    x, y = (
        tuple((side.local or (1,))[axis] for axis in program.view)
        for side in (program.host.source, program.host.target)
    )
    return {"x": x, "y": y}


def _relays(program: Any, sends: bool) -> Shapes:
    return {**_shards(program, sends), "slots": program.slots}


def _packed(program: Any, _: bool) -> Shapes:
    counts = {"x": program.outgoing, "y": program.incoming}
    return {name: (count, *program.slot_shape) for name, count in counts.items()}


def _places(program: Any, _: bool) -> Shapes:
    return dict.fromkeys(("x", "slots"), (program.schedule.slots, *program.slot.shape))


def _staged(program: Any, sends: bool) -> Shapes:
    x, tiling = _shards(program, sends)["x"], program.tiling
    units = zip(x, tiling.unit, strict=True)
    return {
        "x": tuple(-(-extent // unit) * unit for extent, unit in units),
        "y": tiling.chunk,
        "stage": tiling.stage if sends else x,
        "windows": _several(2, tiling.window),
        "chunks": _several(program.slots, tiling.chunk),
    }


def _rings(program: Any, _: bool) -> Shapes:
    chunk = program.rows, 128
    held = program.chunks * program.parts, sum(program.held)
    buffers = dict.fromkeys(("slots", "sums", "terms"), (2, 2, *chunk))
    return {"x": (2, held[0], *chunk), "y": (2, held[1], *chunk), **buffers}


def _several(count: int, extents: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of a buffer of `count` windows or chunks. Windows cut from a vector are
    stacked along its single dimension."""
    return (count * extents[0],) if len(extents) == 1 else (count, *extents)


SHAPES: dict[Buffers, Callable[[Any, bool], Shapes]] = {
    "shards": _shards,
    "relays": _relays,
    "packed": _packed,
    "places": _places,
    "staged": _staged,
    "rings": _rings,
}
"""The shapes of a program's buffers, by what its form states of them; called with the program and
whether any device lacks part of its target shard."""
