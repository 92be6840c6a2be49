"""What a compiled TPU program does, read from its HLO text.

Sizes are those of arrays in memory: padded to the tiles of their layout, as they travel.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from shardwright.codegen.planner.network.hlo import COLLECTIVES, RAGGED, received_of

_INSTRUCTION = re.compile(r"^\s*(?:ROOT )?%(\S+) = (.+?) ([a-z][\w-]*)\((.*)$", re.MULTILINE)
_ARRAY = re.compile(r"\b([a-z]+\d*\w*)\[([\d,]*)\](?:\{([\d,]*)(?::T((?:\([\d,]+\))+))?[^}]*\})?")
_KERNEL = re.compile(r'custom_call_target="tpu_custom_call"')
_SCOPED = re.compile(r'"used_scoped_memory_configs":\[([^]]*)\]')
_VMEM = re.compile(r'"memory_space":"1","offset":"\d+","size":"(\d+)"')
_BITS = {"pred": 8, "bf16": 16}


@dataclass(frozen=True)
class _Instruction:
    """One line: what it gives as text, what it does, and the text of operands and attributes."""

    result: str
    operation: str
    rest: str


def vmem_bytes(text: str) -> int | None:
    """Return the most VMEM that one of the program's Pallas kernels takes; None where it has
    none."""
    taken = []
    for kernel in _KERNEL.finditer(text):
        scoped = _SCOPED.search(text, kernel.end())
        taken.append(sum(map(int, _VMEM.findall(scoped[1]))) if scoped else 0)
    return max(taken, default=None)


def received_bytes(text: str, devices: int) -> int | None:
    """Return bytes that the program's collectives bring to the busiest of its devices; None where
    one is a ragged all-to-all, whose text does not say.

    Collectives of one channel that are alike are parts of one, and count once; but permutes, which
    say what they are by their pairs. JAX puts all that a program asks for into one channel, so that
    others of that channel count each. What is in the body of a loop counts once.
    """
    by_name = {
        name: _Instruction(result, operation, rest)
        for name, result, operation, rest in _INSTRUCTION.findall(text)
    }
    received = [0] * devices
    counted = set()
    for start, result in _collectives(by_name):
        op = start.operation.removesuffix("-start")
        if op == RAGGED:
            return None
        channel = _found(r"channel_id=(\d+)", start.rest) or start.rest
        kind = op, channel, result, _found(r"(replica_groups=.*?), \w+=", start.rest)
        if op != "collective-permute" and kind in counted:
            continue
        counted.add(kind)
        size = sum(_array_bytes(*found) for found in _ARRAY.findall(result))
        moved = received_of(op, start.rest, size, devices)
        received = [total + more for total, more in zip(received, moved, strict=True)]
    return max(received)


def _collectives(by_name: dict[str, _Instruction]) -> Iterator[tuple[_Instruction, str]]:
    """Yield each collective, and the text of what it gives. One in two parts gives it in the
    second."""
    for instruction in by_name.values():
        kind = instruction.operation
        if kind in COLLECTIVES:
            yield instruction, instruction.result
        elif kind.removesuffix("-done") in COLLECTIVES:
            start = by_name.get(_found(r"^%([^\s,)]+)", instruction.rest) or "")
            if start is not None:
                yield start, instruction.result


def _array_bytes(dtype: str, shape: str, order: str, tiles: str) -> int:
    """Return bytes of an array in memory; `order` is minor to major, `tiles` is `(8,128)(2,1)`."""
    extents = [int(extent) for extent in shape.split(",") if extent]
    if order:
        extents = [extents[int(axis)] for axis in reversed(order.split(","))]
    tile = [int(size) for size in (_found(r"^\(([\d,]+)\)", tiles) or "").split(",") if size]
    for back, size in enumerate(reversed(tile), 1):
        if back <= len(extents):
            extents[-back] = -(-extents[-back] // size) * size
    bits = _BITS.get(dtype) or int(_found(r"(\d+)", dtype) or 0)
    return math.prod(extents) * bits // 8


def _found(pattern: str, text: str) -> str | None:
    match = re.search(pattern, text)
    return None if match is None else match[1]
