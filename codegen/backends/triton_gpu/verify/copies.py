"""Check the pulling kernel's copies at full size: that they copy exactly the planned data to the
right place, that tiles declared contiguous are so, and that tiles are interleaved as planned.

For each tile and outer index, the programs of the first and of the last block are traced (`trace`).
Both must compute the same rows, because only the copy itself depends on a program's block.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from typing import Any

from shardwright.codegen.backends.triton_gpu.verify.trace import RowCopy, trace
from shardwright.codegen.backends.triton_gpu.verify.turns import Box, Turns, check_turns, extents
from shardwright.codegen.checks import compare
from shardwright.codegen.checks.compare import MismatchError

FOLLOWED = 2**15
"""The most programs, over all devices, that are traced for first blocks; beyond it, only some
devices are checked."""
SOME = 32
"""The number of devices to check on a large mesh, in addition to the last device."""


def check_copies(phases: Sequence[Any]) -> tuple[str, ...]:
    """Check the copies of each exchange's kernel, and their order, on every device, or on some of
    them if the mesh is large. Return the names of the checks that passed.

    Raises MismatchError, naming the device, if a copy is not inside a piece that the device needs,
    if it is larger than `Tiles` says, if a piece is not fully copied, or if the order of copies
    loads links more than the planned order.
    """
    found = [_check_phase(host) for host in phases]
    some = max(where for where, _ in found)
    return f"copies{some}", *(["order of copies"] if all(known for _, known in found) else [])


def _check_phase(host: Any) -> tuple[str, bool]:
    """Check the copies of one exchange. Return the number of devices checked, in words ("" for
    all), and whether the order was checked too."""
    compare.names(host, ("exchange", "kernel", "places", "reduces", "tiles"))
    compare.names(host.tiles, ("block", "ends", "largest", "number", "together"))
    ids = host.exchange.target.ids
    first = host.tiles.number * math.prod(host.tiles.largest[:-2])
    receivers, turns = _sampled(len(ids), max(FOLLOWED // first, 1)), Turns()
    for receiver in receivers:
        with compare.said_of(f"device {ids[receiver]}"):
            _check_together(host.exchange, receiver, host.tiles.together)
            _check_device(host, receiver, first, turns)
    if len(receivers) < len(ids):
        return f" at {len(receivers)} of {len(ids)} devices", False
    return "", check_turns(host, turns)


def _check_together(exchange: Any, receiver: int, ends: Sequence[str]) -> None:
    for piece in exchange.incoming(receiver):
        shards = {
            "source": exchange.source.box(piece.sender),
            "target": exchange.target.box(receiver),
        }
        for end in ends:
            first, last = (
                _place(shards[end], [at - number for at in piece.box[number::2]])
                for number in range(2)
            )
            if last - first >= math.prod(extents(piece.box)):
                raise MismatchError(f"{piece.box} is not contiguous in its {end} shard")


def _place(within: Box, index: Sequence[int]) -> int:
    place = 0
    for (low, high), at in zip(zip(within[::2], within[1::2], strict=True), index, strict=True):
        place = place * (high - low) + at - low
    return place


def _check_device(host: Any, receiver: int, first: int, turns: Turns) -> None:
    """Check the copies of a device, and record the order of its reads from peers; `first`: the
    number of its programs that copy a tile's first block."""
    device, hidden = host.exchange.target.ids[receiver], len(host.exchange.hidden)
    found: dict[Any, list[Box]] = {piece: [] for piece in host.exchange.incoming(receiver)}
    later = host.tiles.block().number - first  # distance from the first blocks to the last ones
    for program in range(first if found else 0):
        copies, last = (trace(host, device, number) for number in (program, program + later))
        if last != tuple(copy._replace(block=later // first) for copy in copies):
            said = [", ".join(map(str, each)) or "None" for each in (last, copies)]
            raise MismatchError(
                f"wrong copy by the kernel: {said[0]} of the last block, {said[1]} of the first"
            )
        parts = [_copied(host, receiver, copy, found) for copy in copies]
        _check_terms(host, [piece for piece, _ in parts])
        for piece, box in parts:
            found[piece].append(box)
            if host.exchange.source.ids[piece.sender] != device:
                turns.add(program % host.tiles.number, piece.sender, math.prod(extents(box)))
    for piece, boxes in found.items():
        box = piece.box[2 * hidden :]
        if not _tiled(box, boxes):
            raise MismatchError(f"the kernel does not fill {box}")


def _check_terms(host: Any, pieces: Sequence[Any]) -> None:
    if not pieces or not host.reduces:
        return
    order = [piece.box[0] for piece in pieces]
    if order != list(range(host.exchange.hidden[0])):
        raise MismatchError(f"the kernel reduces terms {order}, expected each once, in order")


def _copied(host: Any, receiver: int, copy: RowCopy, pieces: Iterable[Any]) -> tuple[Any, Box]:
    """Return the piece to which a first block's copy belongs, and the box of the tensor that it
    copies.

    Raises MismatchError if there is no such piece, or if the copy is larger than `Tiles` says.
    """
    exchange, wrong = host.exchange, f"wrong copy by the kernel: {copy}"
    if copy.block or copy.sender not in range(len(exchange.source.ids)):
        raise MismatchError(wrong)
    columns, rows = copy.columns, copy.rows
    read_groups, write_groups = (
        [(columns, 1), (rows, row)] for row in (copy.read_row, copy.write_row)
    )
    seen = slice(2 * len(exchange.hidden), None)
    read = _covered(exchange.source.box(copy.sender)[seen], copy.read, read_groups)
    write = _covered(exchange.target.box(receiver)[seen], copy.write, write_groups)
    mine = [piece for piece in pieces if read == write and piece.sender == copy.sender]
    fitting = (each for each in mine if read is not None and _inside(read, each.box[seen]))
    piece = next(fitting, None)
    if piece is None or read is None or not _allowed(host.tiles, copy):
        raise MismatchError(wrong)
    return piece, read


def _allowed(tiles: Any, copy: RowCopy) -> bool:
    """Return whether a copy's rows are at most as large as the kernel is launched for, and whether
    their ends are multiples of the width that it moves: units if it handles ends of rows
    separately, otherwise 16 bytes if `Tiles` says so."""
    block = tiles.block()
    ends = copy.by == "copy_some_lines"
    unit = block.width * (1 if ends else block.lanes)
    steps = [copy.read_row, copy.write_row] if copy.rows > 1 else []
    most, longest = (1, *tiles.largest)[-2:]
    fits = all(number % unit == 0 for number in (copy.read, copy.write, copy.columns, *steps))
    return fits and ends == tiles.ends and copy.rows <= most and copy.columns <= longest


def _covered(within: Box, start: int, groups: Sequence[tuple[int, int]]) -> Box | None:
    """Return the box of the tensor that elements of a shard cover, or None if they do not cover a
    box in order. The elements start at offset `start`; `groups`: their (extent, stride), minor to
    major; `within`: the shard's box."""
    shape = extents(within)
    strides = [math.prod(shape[dim + 1 :]) for dim in range(len(shape))]
    if not 0 <= start < math.prod(shape):
        return None
    low = [start // stride % extent for stride, extent in zip(strides, shape, strict=True)]
    found, dim = [1] * len(shape), len(shape)
    for extent, stride in groups:
        if extent > 1:
            dim = max((k for k in range(dim) if strides[k] == stride), default=-1)
        while extent > 1:
            held = min(extent, shape[dim])
            if dim < 0 or low[dim] + held > shape[dim] or extent % held:
                return None
            found[dim], extent = held, extent // held
            dim -= extent > 1
    starts = [first + at for first, at in zip(within[::2], low, strict=True)]
    return tuple(end for at, held in zip(starts, found, strict=True) for end in (at, at + held))


def _tiled(box: Box, parts: Sequence[Box]) -> bool:
    """Return whether `parts` are the cells of a grid that fills a box, each exactly once.

    Cells may differ in extent: a tile that only one device has is cut into pieces like the
    others.
    """
    sides = [sorted({part[at : at + 2] for part in parts}) for at in range(0, len(box), 2)]
    ends = zip(sides, box[::2], box[1::2], strict=True)
    filled = all(
        [low, *(end for _, end in side)] == [*(start for start, _ in side), high]
        for side, low, high in ends
    )
    return filled and len(set(parts)) == len(parts) == math.prod(map(len, sides))


def _inside(part: Box, box: Box) -> bool:
    ends = zip(part[::2], box[::2], part[1::2], box[1::2], strict=True)
    return all(low >= first and high <= last for low, first, high, last in ends)


def _sampled(count: int, most: int) -> Sequence[int]:
    """Return all positions below `count` or, if there are more than `most`, the first, the last and
    a fixed sample of the others."""
    if count <= most:
        return range(count)
    others = random.Random(count).sample(range(1, count - 1), min(most, SOME) - 1)
    return [0, *sorted(others), count - 1]
