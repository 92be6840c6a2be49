"""What XLA does for a reshard: the collectives in the HLO of the compiled identity.

`main` runs in a process of its own, on as many host devices as the mesh has. Bytes received by a
device, of a result of B bytes and groups of n:

    all-gather           B (n - 1)/n
    all-to-all           B (n - 1)/n
    all-reduce           2 B (n - 1)/n
    reduce-scatter       B (n - 1)
    collective-permute   B, if another device is its source
    collective-broadcast B, but for the first of a group
"""

from __future__ import annotations

import itertools
import json
import math
import re
import sys
from collections import Counter
from dataclasses import asdict, dataclass

import numpy as np

from shardwright.ir.index import Integers

_BYTES = {"pred": 1, "s4": 1, "u4": 1, "bf16": 2}
_OPS = (
    "all-gather",
    "all-to-all",
    "all-reduce",
    "reduce-scatter",
    "collective-permute",
    "collective-broadcast",
    "ragged-all-to-all",
)
_LINE = re.compile(rf"= (.*?) ({'|'.join(_OPS)})(-start)?\(")
_ARRAY = re.compile(r"([a-z]+\d*[a-z0-9]*)\[([\d,]*)\]")
_LISTED = re.compile(r"replica_groups=\{(\{[\d,{}]*\})\}")
_IOTA = re.compile(r"replica_groups=\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")
_MESH = re.compile(
    r"replica_groups=mesh\[([^\]]*)\](?:, device_ids=\(((?:[^()]|\([^()]*\))*)\))? \{([^}]*)\}"
)
_PAIRS = re.compile(r"source_target_pairs=\{([\d,{}]*)\}")


@dataclass(frozen=True)
class Collectives:
    """Bytes received by the busiest device and in total, the peak a device holds, the steps."""

    received_max: int
    received_total: int
    peak: int
    steps: str


def received(hlo: str, devices: int) -> tuple[list[int], list[str]]:
    """Bytes that each device receives, and the collectives in the order of the program."""
    totals, names = [0] * devices, []
    for line in hlo.splitlines():
        match = _LINE.search(line)
        if match is None:
            continue
        shape, op, started = match.groups()
        names.append(op)
        nbytes = _result_bytes(shape, op, bool(started))
        if op == "collective-permute":
            for source, target in _pairs(line):
                totals[target] += nbytes if source != target else 0
            continue
        for group in _groups(line, devices):
            for number, device in enumerate(group):
                totals[device] += _share(op, nbytes, len(group), number)
    return totals, names


def _share(op: str, nbytes: int, members: int, number: int) -> int:
    if op == "collective-broadcast":
        return nbytes if number else 0
    if op == "reduce-scatter":
        return nbytes * (members - 1)
    once = nbytes * (members - 1) // members
    return 2 * once if op == "all-reduce" else once


def _result_bytes(shape: str, op: str, started: bool) -> int:
    """Bytes of the result; a tuple is summed, but that of an asynchronous start holds the operand
    too, and its result is the last array."""
    sizes = []
    for kind, extents in _ARRAY.findall(shape):
        bits = re.search(r"\d+", kind)
        width = _BYTES.get(kind) or (int(bits[0]) // 8 if bits else 1)
        sizes.append(width * math.prod(int(n) for n in extents.split(",") if n))
    return sizes[1] if started and op != "all-to-all" and len(sizes) > 1 else sum(sizes)


def _pairs(line: str) -> list[tuple[int, int]]:
    match = _PAIRS.search(line)
    numbers = [int(n) for n in re.findall(r"\d+", match[1])] if match else []
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def _groups(line: str, devices: int) -> list[list[int]]:
    """The groups of a collective: listed, as a transposed iota, or as axes of a mesh.

    Raises ValueError for a form that is none of these.
    """
    if "replica_groups={}" in line or "replica_groups" not in line:
        return [list(range(devices))]
    if listed := _LISTED.search(line):
        groups = re.findall(r"\{([\d,]+)\}", listed[0])
        return [list(map(int, group.split(","))) for group in groups]
    if iota := _IOTA.search(line):
        shape, sizes = _numbers(iota[1]), _numbers(iota[2])
        return _rows(_iota(sizes, iota[3]).reshape(shape))
    if mesh := _MESH.search(line):
        return _axis_groups(mesh[1], mesh[2], mesh[3])
    raise ValueError(f"unknown replica_groups: {line.strip()[:200]}")


def _axis_groups(axes: str, order: str | None, over: str) -> list[list[int]]:
    """Devices that differ along some axes, or sub-axes `'x':(m)k`, of a mesh."""
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


def compiled(described: dict[str, object]) -> Collectives:
    """What XLA makes of the reshard of a description, on this process's devices."""
    import jax

    from shardwright.codegen.convert import to_named_sharding
    from shardwright.codegen.describe import describe

    reshard = describe(described).reshard()
    jax.config.update("jax_enable_x64", True)
    # Integers as wide: on a CPU, XLA moves bfloat16 as float32, which no accelerator does.
    dtype = f"uint{8 * reshard.itemsize}"
    source, target = map(to_named_sharding, (reshard.source, reshard.target))
    operand = jax.ShapeDtypeStruct(reshard.shape, dtype, sharding=source)
    program = jax.jit(lambda x: x, out_shardings=target).lower(operand).compile()
    devices = reshard.source.mesh.size
    totals, names_found = received(program.as_text(), devices)
    memory = program.memory_analysis()
    peak = sum(getattr(memory, f"{kind}_size_in_bytes") for kind in ("argument", "output", "temp"))
    steps = Counter(names_found)
    said = ", ".join(f"{count} {name}" if count > 1 else name for name, count in steps.items())
    return Collectives(max(totals), sum(totals), int(peak), said or "none")


def main() -> None:
    """Reads a description from standard input, or several; prints an answer a line."""
    for line in sys.stdin:
        print(json.dumps(asdict(compiled(json.loads(line)))), flush=True)


if __name__ == "__main__":
    main()
