"""Describe the launches of a group's compiled kernel: the data that a host needs in addition to the
binary."""

from __future__ import annotations

import math
import sys
from types import ModuleType
from typing import Any

from shardwright.codegen.backends.triton_gpu.compile.launch import arguments, kernel_facts
from shardwright.codegen.checks.compiled.saving import lines_of

TYPES = {
    "blocks": "*i64",
    "entries": "*i64",
    "sources": "*i64",
    "targets": "*i64",
    "number": "i32",
}
"""The Triton type of each run-time argument, in order."""

_MEANING = {
    "blocks": "device address of [number, 3]: the entry of each block, and its row and column "
    "of blocks",
    "entries": "device address of [entries, 8]: the rows that `launches` list",
    "sources": "device address of the addresses of the source shards: tensor after tensor, each by "
    "source position",
    "targets": "device address of the addresses of the target shards, tensor after tensor",
    "number": "how many blocks there are: the first number of `grid`",
}
_FIELDS = (
    "source",
    "target",
    "read from byte",
    "written to byte",
    "bytes of a row",
    "rows",
    "bytes between rows read",
    "bytes between rows written",
)


def constants(module: ModuleType) -> dict[str, Any]:
    """Return the compile-time arguments by name, as the module passes them for memory aligned to 16
    bytes."""
    host = module._HOST
    listed = [host.processes.listed(device, "cpu") for device in host.exchange.target.ids]
    support = sys.modules[type(listed[0]).__module__]
    found: dict[str, Any] = support.constants(math.gcd(*(each.divisor for each in listed)))
    return found


def launch_json(module: ModuleType, target: str, metadata: Any, resources: dict[str, Any]) -> str:
    """Describe the kernel and every device's launch, as JSON. `metadata`, `resources`: as in
    `launch.launch_json`."""
    about = {
        **kernel_facts(target, metadata, resources),
        "constants": {name: str(value) for name, value in constants(module).items()},
        "arguments": arguments(TYPES, _MEANING),
        "tensors": list(module.NAMES),
        "entry": list(_FIELDS),
        "grid": "blocks of all entries, of as many rows and units as UNITS has, 1, 1",
        "launches": _launches(module),
    }
    return lines_of(about)


def _launches(module: ModuleType) -> list[dict[str, Any]]:
    """Describe the launch of each device that has a non-empty target shard, in order of device
    id."""
    found, host = [], module._HOST
    for device_id in sorted(host.exchange.target.ids):
        listed = host.processes.listed(device_id, "cpu")
        if listed.entries:
            entries = [tuple(map(int, entry)) for entry in listed.entries]
            found.append({"device": device_id, "grid": [listed.number, 1, 1], "entries": entries})
    return found
