"""What a compiled GPU kernel uses, read from its assembly and binary."""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path

# The loads from global memory in the words of each assembly, with what says how wide they are.
_PTX_LOAD = re.compile(r"\bld\.global(?:\.[A-Za-z]\w*(?:::\w+)*)*?(?:\.v(\d))?\.[bfsu](\d+)\b")
_AMD_LOAD = re.compile(r"\b(?:global|buffer|flat)_load_(\w+)")

WIDE = 16
"""Bytes of the widest load that all architectures have."""

Used = tuple[int | None, int | None]
"""Registers and bytes of stack that a thread has; None where nothing tells."""


def loads(assembly: str) -> tuple[int, int]:
    """How many instructions load WIDE bytes or more from global memory, and how many do at all.

    In PTX the load of the peer's address is one of the latter.
    """
    if "amdgcn" in assembly:
        wide = [kind == "dwordx4" for kind in _AMD_LOAD.findall(assembly)]
    else:
        found = _PTX_LOAD.findall(assembly)
        wide = [int(count or 1) * int(bits) >= 8 * WIDE for count, bits in found]
    return sum(wide), len(wide)


def of_assembly(assembly: str) -> Used:
    """What an AMD kernel uses: its assembly ends with metadata."""
    return _number(r"\.vgpr_count:\s+(\d+)", assembly), _number(
        r"\.private_segment_fixed_size:\s+(\d+)", assembly
    )


def of_cubin(entry: str, cubin: bytes, cuobjdump: str) -> Used:
    """What an NVIDIA kernel uses, by the tool of this path that reads its binary."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        command = [cuobjdump, "--dump-resource-usage", str(path)]
        try:
            text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        except (OSError, subprocess.CalledProcessError):
            return None, None
    usage = text.partition(f"Function {entry}:")[2]
    stack, local = _number(r"STACK:(\d+)", usage), _number(r"LOCAL:(\d+)", usage)
    spilled = None if stack is None or local is None else stack + local
    return _number(r"REG:(\d+)", usage), spilled


def _number(pattern: str, text: str) -> int | None:
    found = re.search(pattern, text)
    return None if found is None else int(found[1])
