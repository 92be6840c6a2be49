"""What the collectives of a compiled program truly bring to its devices, read from its HLO.

The text is read from its entry on, so that the body of a loop counts as often as it runs. libtpu
writes some collectives otherwise than XLA does:

- A reduce-scatter is a fusion that is called `all-reduce-scatter`: an all-reduce and a slice of it.
- One asynchronous collective may be cut into several fusions, one chain of parts: it counts once.

Bytes are those of elements, without what the layouts of arrays pad.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from shardwright.codegen.planner.network.hlo import COLLECTIVES, ends, received_by

_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\{\s*$")
_INSTRUCTION = re.compile(r"^\s*(?:ROOT )?%?(\S+) = (.+?) ([a-z][\w-]*)\((.*)$")
_ARRAY = re.compile(r"\b([a-z]+\d*[a-z0-9]*)\[([\d,]*)\]")
_CALLED = re.compile(r"(?:to_apply|calls|true_computation|false_computation)=%?([\w.\-]+)")
_BODY = re.compile(r"body=%?([\w.\-]+)")
_TURNS = re.compile(r"known_trip_count[^\d]*(\d+)")
_CHAIN = re.compile(r'(?:chain_id|async_collective_name)="?([\w.\-]+)')
_GROUPS = re.compile(r"replica_groups=.*?, \w+=")
_SCATTERED = "all-reduce-scatter"
_CALLING = ("call", "async-start", "fusion", "conditional")
_BITS = {"pred": 8, "bf16": 16}


@dataclass(frozen=True)
class _HloLine:
    """An instruction: what it gives, what it does, and the text of operands and attributes."""

    result: str
    operation: str
    rest: str


@dataclass(frozen=True)
class ProgramCollective:
    """A collective of a program: what it is, the bytes of its result on a device, who takes part
    (`planner/network/hlo.py`), how often it runs."""

    op: str
    nbytes: int
    ends: list[list[int]]
    times: int


def received_in_all(text: str, devices: int) -> list[int]:
    """Return the bytes that all collectives of a program bring to each of its devices."""
    totals = [0] * devices
    for each in program_collectives(text, devices):
        moved = received_by(each.op, each.ends, each.nbytes, devices)
        totals = [total + each.times * more for total, more in zip(totals, moved, strict=True)]
    return totals


def program_collectives(text: str, devices: int) -> list[ProgramCollective]:
    """Return the collectives of a program, each once."""
    entry, computations = _computations(text)
    found, chains = [], set[tuple[str, ...]]()
    for home, line, times in _visited(entry, computations, 1):
        op = line.operation.removesuffix("-start")
        result = _result_of(line, op)
        chain = _CHAIN.search(line.rest)
        if chain is not None and op != "collective-permute":
            groups = _GROUPS.search(line.rest)
            key = (
                op,
                chain[1],
                "".join(map(str, _ARRAY.findall(result))),
                groups[0] if groups else "",
            )
            if key in chains:
                continue
            chains.add(key)
        members, nbytes = ends(op, line.rest, devices), _bytes_of(result)
        if op == "all-reduce" and _SCATTERED in home:
            op, nbytes = "reduce-scatter", nbytes // len(members[0])
        found.append(ProgramCollective(op, nbytes, members, times))
    return found


def _computations(text: str) -> tuple[str, dict[str, list[_HloLine]]]:
    """Return the name of the entry, and the instructions of every computation."""
    entry, found = "", dict[str, list[_HloLine]]()
    lines: list[_HloLine] = []
    for line in text.splitlines():
        if head := _COMPUTATION.match(line):
            lines = found[head[2]] = []
            entry = head[2] if head[1] else entry
        elif match := _INSTRUCTION.match(line):
            lines.append(_HloLine(match[2], match[3], match[4]))
    return entry, found


def _visited(
    name: str, computations: dict[str, list[_HloLine]], times: int
) -> Iterator[tuple[str, _HloLine, int]]:
    """Yield every collective that a computation runs: where it stands, it, and how often."""
    for line in computations.get(name, ()):
        kind = line.operation
        if kind.removesuffix("-start") in COLLECTIVES:
            yield name, line, times
        elif kind == "while":
            turns, body = _TURNS.search(line.rest), _BODY.search(line.rest)
            count = int(turns[1]) if turns else 1
            yield from _visited(body[1] if body else "", computations, times * count)
        elif kind in _CALLING:
            for called in _CALLED.findall(line.rest):
                yield from _visited(called, computations, times)


def _result_of(line: _HloLine, op: str) -> str:
    """Return the text of what a collective gives; the start of one gives its operands before."""
    if line.operation == op or op == "all-reduce":
        return line.result
    inside = line.result.strip()[1:]
    if inside.startswith("("):
        return inside.split("), ")[1]
    kind, extents = _ARRAY.findall(line.result)[1]
    return f"{kind}[{extents}]"


def _bytes_of(shape: str) -> int:
    total = 0
    for kind, extents in _ARRAY.findall(shape):
        digits = re.search(r"\d+", kind)
        bits = _BITS.get(kind) or (int(digits[0]) if digits else 0)
        total += bits * math.prod(int(extent) for extent in extents.split(",") if extent)
    return total // 8
