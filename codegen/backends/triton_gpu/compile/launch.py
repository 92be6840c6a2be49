"""How a compiled kernel is launched: what a host needs beside the binary."""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any

from shardwright.codegen.compile.saving import lines_of
from shardwright.ir.dtypes import DTYPES

ALIGNMENT = 16
"""Bytes that divide the addresses of `peers`, of `out` and of every source shard.

The kernel moves as many at once. The module launches another specialisation for shards that lie
otherwise, which is not compiled here.
"""

_MEANING = {
    "peers": f"device address, a multiple of {ALIGNMENT}: the address of each source shard, "
    f"also a multiple of {ALIGNMENT}, as int64, by source position",
    "out": f"device address, a multiple of {ALIGNMENT}: the target shard",
    "receiver": "position of the device in the target mesh",
    "me": "position of the device in the source mesh, -1 if it is not in it",
}
# Triton's own, for which this kernel has no use.
_SCRATCH = ("global_scratch", "profile_scratch")


def types(module: ModuleType) -> dict[str, str]:
    """Return Triton's type of each argument that is passed when the kernel runs, in order."""
    bits = 8 * DTYPES[module.DTYPE] * module._HOST.tiles.width
    element = "u8" if bits == 8 else f"i{bits}"
    given = {"peers": "*i64", "out": f"*{element}", "receiver": "i32", "me": "i32"}
    return {name: kind for name, kind in given.items() if name in module.pull_kernel.arg_names}


def constants(module: ModuleType) -> dict[str, int]:
    """Return the other arguments, which are compiled in, with the values that the module passes."""
    names = [name for name in module.pull_kernel.arg_names if name not in types(module)]
    return dict(zip(names, module._HOST.tiles.constants(True), strict=True))


def launch_json(module: ModuleType, target: str, metadata: Any, resources: dict[str, Any]) -> str:
    """Return the launches of every device, as JSON.

    `metadata`: Triton's; `resources`: what else to state of the kernel.
    """
    about = {
        **kernel_facts(target, metadata, resources),
        "constants": constants(module),
        "arguments": arguments(types(module), _MEANING),
        "grid": "tiles of a target shard * blocks of the largest, 1, 1",
        "launches": _launches(module),
    }
    return lines_of(about)


def kernel_facts(target: str, metadata: Any, resources: dict[str, Any]) -> dict[str, Any]:
    """Return what to state of any kernel: its target, its entry, the threads of a program."""
    return {
        "target": target,
        "entry": metadata.name,
        "warps": metadata.num_warps,
        "threads": metadata.num_warps * metadata.warp_size,
        **resources,
    }


def arguments(kinds: dict[str, str], meaning: dict[str, str]) -> list[dict[str, str]]:
    """Return the arguments of a launch, in order, Triton's own last."""
    own = [{"name": name, "type": kind, "value": meaning[name]} for name, kind in kinds.items()]
    return own + [{"name": name, "type": "*i8", "value": "null"} for name in _SCRATCH]


def _launches(module: ModuleType) -> list[dict[str, Any]]:
    """Return the launch of each device whose target shard is not empty, by device id."""
    given = [name for name in ("receiver", "me") if name in types(module)]
    return [
        {
            "device": device_id,
            **dict(zip(given, module._HOST.places(device_id), strict=True)),
            "grid": [module._HOST.tiles.programs(True), 1, 1],
        }
        for device_id in sorted(module.TARGET_IDS)
        if math.prod(module.target_shape(device_id))
    ]
