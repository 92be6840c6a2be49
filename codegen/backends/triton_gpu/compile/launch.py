"""Describe the launches of a compiled kernel: the data that a host needs in addition to the
binary."""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any

from shardwright.codegen.checks.compiled.saving import lines_of
from shardwright.ir.dtypes import DTYPES

ALIGNMENT = 16
"""The alignment, in bytes, that compiled kernels assume of `peers`, `out` and every source shard;
also the bytes that they move at once. For other alignments the module launches another
specialization, which is not compiled here."""

_MEANING = {
    "peers": f"device address, a multiple of {ALIGNMENT}: the address of each source shard, "
    f"also a multiple of {ALIGNMENT}, as int64, by source position",
    "out": f"device address, a multiple of {ALIGNMENT}: the target shard",
    "receiver": "position of the device in the target mesh",
    "me": "position of the device in the source mesh, -1 if it is not in it",
}
_NUMBERS = {
    "bool": "u8",
    "float16": "fp16",
    "bfloat16": "bf16",
    "float32": "fp32",
    "float64": "fp64",
    "float8_e4m3fn": "fp8e4nv",
    "float8_e5m2": "fp8e5",
    **{f"int{bits}": f"i{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"u{bits}" for bits in (8, 16, 32)},
}
# Arguments that Triton appends and these kernels do not use.
_SCRATCH = ("global_scratch", "profile_scratch")


def types(module: ModuleType, phase: int = 0) -> dict[str, str]:
    """Return the Triton type of each run-time argument, in order; `phase`: the number of the
    kernel's exchange."""
    host = module._HOST.phases[phase]
    bits = 8 * DTYPES[module.DTYPE] * host.tiles.width
    element = "u8" if bits == 8 else f"i{bits}"
    if host.reduces:  # the kernel computes with elements instead of moving units of bits
        element = _NUMBERS[module.DTYPE]
    given = {"peers": "*i64", "out": f"*{element}", "receiver": "i32", "me": "i32"}
    return {name: kind for name, kind in given.items() if name in host.kernel.arg_names}


def constants(module: ModuleType, phase: int = 0, times: int = 1) -> dict[str, Any]:
    """Return the compile-time argument BLOCK as the module passes it; `times`: how much larger
    blocks are when there are few programs."""
    return {"BLOCK": module._HOST.phases[phase].tiles.block(None, times)}


def launch_json(
    module: ModuleType, target: str, metadata: Any, resources: dict[str, Any], phase: int = 0
) -> str:
    """Describe the kernel and every device's launch, as JSON.

    `metadata`: Triton's metadata of the compiled kernel; `resources`: additional facts about it,
    such as its registers.
    """
    about = {
        **kernel_facts(target, metadata, resources),
        "constants": {name: each._asdict() for name, each in constants(module, phase).items()},
        "arguments": arguments(types(module, phase), _MEANING),
        "grid": "tiles of a target shard * blocks of the largest, 1, 1",
        "launches": _launches(module, phase),
    }
    return lines_of(about)


def kernel_facts(target: str, metadata: Any, resources: dict[str, Any]) -> dict[str, Any]:
    """Return the facts that every description has: the kernel's target and entry point, the number
    of warps and threads of a program, and `resources`."""
    return {
        "target": target,
        "entry": metadata.name,
        "warps": metadata.num_warps,
        "threads": metadata.num_warps * metadata.warp_size,
        **resources,
    }


def arguments(kinds: dict[str, str], meaning: dict[str, str]) -> list[dict[str, str]]:
    """Describe each argument of a launch, in order, followed by the arguments that Triton
    appends."""
    own = [{"name": name, "type": kind, "value": meaning[name]} for name, kind in kinds.items()]
    return own + [{"name": name, "type": "*i8", "value": "null"} for name in _SCRATCH]


def _launches(module: ModuleType, phase: int) -> list[dict[str, Any]]:
    """Describe the launch of each device that has a non-empty target shard, in order of device
    id."""
    host, kinds = module._HOST.phases[phase], types(module, phase)
    given = [name for name in ("receiver", "me") if name in kinds]
    return [
        {
            "device": device_id,
            **dict(zip(given, host.places(device_id), strict=True)),
            "grid": [host.tiles.block().number, 1, 1],
        }
        for device_id in sorted(module.TARGET_IDS)
        if math.prod(host.target_shape(device_id))
    ]
