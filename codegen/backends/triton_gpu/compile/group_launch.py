"""How the compiled kernel of a group is launched: what a host needs beside the binary."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from shardwright.codegen.backends.triton_gpu.compile.launch import arguments, kernel_facts
from shardwright.codegen.compile.saving import lines_of

TYPES = {"blocks": "*i64", "tiles": "*i64", "sources": "*i64", "targets": "*i64"}
"""Triton's type of each argument that is passed when the kernel runs, in order."""

_MEANING = {
    "blocks": "device address of [programs, 2]: the tile of each program, and which of its blocks, "
    "row of blocks after row",
    "tiles": "device address of [tiles, 8]: the rows that `launches` list",
    "sources": "device address of the addresses of the source shards: tensor after tensor, each by "
    "source position",
    "targets": "device address of the addresses of the target shards, tensor after tensor",
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


def constants(module: ModuleType) -> dict[str, int]:
    """Return the other arguments, which are compiled in, with the values that the module passes."""
    return {"UNIT": module.UNIT, "ROWS": module.ROWS, "COLUMNS": module.COLUMNS}


def launch_json(module: ModuleType, target: str, metadata: Any, resources: dict[str, Any]) -> str:
    """Return the launches of every device, as JSON; the arguments are those of
    `launch.launch_json`."""
    about = {
        **kernel_facts(target, metadata, resources),
        "constants": constants(module),
        "arguments": arguments(TYPES, _MEANING),
        "tensors": list(module.MEMBERS),
        "tile": list(_FIELDS),
        "grid": "blocks of ROWS rows and COLUMNS bytes of all tiles, 1, 1",
        "launches": _launches(module),
    }
    return lines_of(about)


def _launches(module: ModuleType) -> list[dict[str, Any]]:
    """Return the launch of each device that holds something of a target shard, by device id."""
    found = []
    for device_id in sorted(module.TARGET_IDS):
        receiver = module.TARGET_IDS.index(device_id)
        me = module.SOURCE_IDS.index(device_id) if device_id in module.SOURCE_IDS else -1
        tiles = [tuple(map(int, t)) for t in module._pulled(receiver, me, len(module.SOURCE_IDS))]
        blocks = sum(-(-t[5] // module.ROWS) * -(-t[4] // module.COLUMNS) for t in tiles)
        if blocks:
            found.append({"device": device_id, "grid": [blocks, 1, 1], "tiles": tiles})
    return found
