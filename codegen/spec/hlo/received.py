"""Read from HLO text the bytes that each device receives in collectives.

For a result of B bytes and groups of n devices, a device receives at least:

    all-gather           B (n - 1)/n
    all-to-all           B (n - 1)/n
    all-reduce           2 B (n - 1)/n
    reduce-scatter       B (n - 1)
    collective-permute   B, if its source is another device
    collective-broadcast B, but the first device of a group receives nothing

Ring algorithms receive exactly these bytes. The bytes of a ragged-all-to-all depend on operands
that are computed at run time, so the text does not state them.
"""

from __future__ import annotations

import itertools
import math
import re

import numpy as np

from shardwright.ir.arrays import Integers
from shardwright.ir.steps import ring_bytes

RAGGED = "ragged-all-to-all"
COLLECTIVES = (
    "all-gather",
    "all-to-all",
    "all-reduce",
    "reduce-scatter",
    "collective-permute",
    "collective-broadcast",
    RAGGED,
)
_LISTED = re.compile(r"replica_groups=\{(\{[\d,{}]*\})\}")
_IOTA = re.compile(r"replica_groups=\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")
_MESH = re.compile(
    r"replica_groups=mesh\[([^\]]*)\](?:, device_ids=\(((?:[^()]|\([^()]*\))*)\))? \{([^}]*)\}"
)
_PAIRS = re.compile(r"source_target_pairs=\{([\d,{}]*)\}")


def received_of(op: str, line: str, nbytes: int, devices: int) -> list[int]:
    """Return the bytes that each of `devices` devices receives in one collective.

    `op`: its opcode, one of COLLECTIVES. `line`: the text with its attributes. `nbytes`: the bytes
    of its result on one device. Raises ValueError for groups in an unknown notation, and for
    RAGGED.
    """
    if op == RAGGED:
        raise ValueError(f"the text of a {RAGGED} does not give its sizes")
    return received_by(op, ends(op, line, devices), nbytes, devices)


def received_by(op: str, members_of: list[list[int]], nbytes: int, devices: int) -> list[int]:
    """Return the bytes that each of `devices` devices receives in one collective. `members_of`: its
    participants, as `ends` returns them. `nbytes`: the bytes of its result on a device."""
    totals = [0] * devices
    for members in members_of:
        if op == "collective-permute":
            source, target = members
            totals[target] += nbytes if source != target else 0
            continue
        for number, device in enumerate(members):
            totals[device] += _share(op, nbytes, len(members), number)
    return totals


def ends(op: str, line: str, devices: int) -> list[list[int]]:
    """Return the participants of a collective, as positions in the program's list of devices: its
    groups, or the pairs [sender, receiver] of a permute. Raise ValueError for an unknown notation.
    """
    return _pairs(line) if op == "collective-permute" else groups(line, devices)


def _share(op: str, nbytes: int, members: int, number: int) -> int:
    if op == "collective-broadcast":
        return nbytes if number else 0
    return ring_bytes(op.replace("-", "_"), nbytes, members)


def _pairs(line: str) -> list[list[int]]:
    match = _PAIRS.search(line)
    numbers = [int(n) for n in re.findall(r"\d+", match[1])] if match else []
    return [numbers[first : first + 2] for first in range(0, len(numbers), 2)]


def groups(line: str, devices: int) -> list[list[int]]:
    """Return the groups of a collective, as positions in the program's list of devices.

    The text lists the groups, or states them as a transposed iota or as axes of a mesh; without
    groups, all devices are one group. Raises ValueError for any other notation.
    """
    if "replica_groups={}" in line or "replica_groups" not in line:
        return [list(range(devices))]
    if listed := _LISTED.search(line):
        found = re.findall(r"\{([\d,]+)\}", listed[0])
        return [list(map(int, group.split(","))) for group in found]
    if iota := _IOTA.search(line):
        shape, sizes = _numbers(iota[1]), _numbers(iota[2])
        return _rows(_iota(sizes, iota[3]).reshape(shape))
    if mesh := _MESH.search(line):
        return _axis_groups(mesh[1], mesh[2], mesh[3])
    raise ValueError(f"unknown replica_groups: {line.strip()[:200]}")


def _axis_groups(axes: str, order: str | None, over: str) -> list[list[int]]:
    """Return the groups of devices that differ only along axes, or sub-axes `'x':(m)k`, of a mesh.

    `axes`: the text of the mesh axes. `order`: the text of its device ids, None for 0, 1, 2, …
    `over`: the text of the axes along which the devices of a group differ.
    """
    sizes = {name: int(size) for name, size in re.findall(r"'([^']+)'=(\d+)", axes)}
    ids = np.arange(math.prod(sizes.values()))
    if order:
        sized = re.fullmatch(r"\[([\d,]+)\](?:T\(([\d,]+)\))?", order)
        ids = _iota(_numbers(sized[1]), sized[2]).ravel() if sized else np.array(_numbers(order))
    split: list[int] = []
    chosen: list[int] = []
    for name, size in sizes.items():
        cuts = {1, size}
        found = re.findall(rf"'{re.escape(name)}'(?::\((\d+)\)(\d+))?", over)
        ranges = [(int(m), int(m) * int(k)) if m else (1, size) for m, k in found]
        cuts.update(end for pair in ranges for end in pair)
        for low, high in itertools.pairwise(sorted(cuts)):
            if any(start <= low and high <= end for start, end in ranges):
                chosen.append(len(split))
            split.append(high // low)
    rest = [axis for axis in range(len(split)) if axis not in chosen]
    members = math.prod(split[axis] for axis in chosen)
    return _rows(ids.reshape(split).transpose([*rest, *chosen]).reshape(-1, members))


def _iota(sizes: list[int], order: str | None) -> Integers:
    numbers = np.arange(math.prod(sizes), dtype=np.int64).reshape(sizes)
    return numbers.transpose(_numbers(order)) if order else numbers


def _numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text)]


def _rows(groups: Integers) -> list[list[int]]:
    rows: list[list[int]] = groups.tolist()
    return rows
