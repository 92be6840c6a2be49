"""Read the resources of a compiled GPU kernel from its assembly and binary."""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path
from typing import Literal

# Patterns of loads from and stores to global memory in each assembly language; their groups capture
# the widths.
_PTX = {
    kind: re.compile(
        rf"(@!?%p\d+ )?{kind}\.global(?:\.[A-Za-z]\w*(?:::\w+)*)*?(?:\.v(\d))?\.[bfsu](\d+)\b"
    )
    for kind in ("ld", "st")
}
_AMD = {
    "ld": re.compile(r"\b(?:global|buffer|flat)_load_(\w+)"),
    "st": re.compile(r"\b(?:global|buffer|flat)_store_(\w+)"),
}
_AMD_BYTES = {"dword": 4, "dwordx2": 8, "dwordx3": 12, "dwordx4": 16, "short": 2, "byte": 1}
_AMD_BYTES |= {"ushort": 2, "sshort": 2, "ubyte": 1, "sbyte": 1}
_AMD_BYTES |= {"b32": 4, "b64": 8, "b96": 12, "b128": 16, "u16": 2, "i16": 2, "b16": 2}
_AMD_BYTES |= {"u8": 1, "i8": 1, "b8": 1}
# Matches an integer division. GPUs have no instruction for it: the PTX instruction expands to many
# machine instructions, and AMD's sequence starts with this reciprocal.
_DIVISION = re.compile(r"\b(?:div|rem)\.[us]\d+\b|\bv_rcp_iflag_f32")
_LABEL = re.compile(r"^(\$?[.\w]+):")
_BRANCH = re.compile(r"\b(?:bra(?:\.uni)?|s_c?branch\w*)\s+(\$?[.\w]+)")

WIDE = 16
"""The width in bytes of the widest load or store on all architectures."""

Used = tuple[int | None, int | None]
"""(registers, stack bytes) per thread, each None if unknown."""

Kind = Literal["ld", "st"]


def widths(assembly: str, kind: Kind) -> tuple[int, ...]:
    """Return the bytes that each instruction loads from global memory (`ld`) or stores to it
    (`st`), in the order of the assembly.

    Loads of a peer's address are included; on AMD only if they are in a loop.
    """
    if "amdgcn" in assembly:
        return tuple(_AMD_BYTES[name.split("_d16")[0]] for name in _AMD[kind].findall(assembly))
    found = _PTX[kind].findall(assembly)
    return tuple(int(count or 1) * int(bits) // 8 for _, count, bits in found)


def wide(bytes_each: tuple[int, ...]) -> tuple[int, int]:
    """Return how many instructions move at least WIDE bytes, and how many there are in all."""
    return sum(size >= WIDE for size in bytes_each), len(bytes_each)


def divisions(assembly: str) -> tuple[int, int]:
    """Count the integer divisions in loops, and in the whole assembly.

    A loop is the code between a label and a branch back to it.
    """
    lines = assembly.splitlines()
    labels = {found[1]: row for row, line in enumerate(lines) if (found := _LABEL.match(line))}
    looped: set[int] = set()
    for row, line in enumerate(lines):
        branch = _BRANCH.search(line)
        if branch and labels.get(branch[1], row) < row:
            looped.update(range(labels[branch[1]], row))
    rows = [row for row, line in enumerate(lines) if _DIVISION.search(line)]
    return sum(row in looped for row in rows), len(rows)


def of_assembly(assembly: str) -> Used:
    """Read the resources of an AMD kernel from the metadata at the end of its assembly."""
    return _number(r"\.vgpr_count:\s+(\d+)", assembly), _number(
        r"\.private_segment_fixed_size:\s+(\d+)", assembly
    )


def of_cubin(entry: str, cubin: bytes, cuobjdump: str) -> Used:
    """Read the resources of the kernel `entry` of an NVIDIA binary with the tool at the path
    `cuobjdump`. If the tool fails, the resources are unknown."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        command = [cuobjdump, "--dump-resource-usage", str(path)]
        try:
            text = subprocess.run(command, check=True, capture_output=True, encoding="utf-8").stdout
        except (OSError, subprocess.CalledProcessError):
            return None, None
    usage = text.partition(f"Function {entry}:")[2]
    stack, local = _number(r"STACK:(\d+)", usage), _number(r"LOCAL:(\d+)", usage)
    spilled = None if stack is None or local is None else stack + local
    return _number(r"REG:(\d+)", usage), spilled


def _number(pattern: str, text: str) -> int | None:
    found = re.search(pattern, text)
    return None if found is None else int(found[1])
