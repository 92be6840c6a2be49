"""Check, before compiling, that a reshard fits a device's memory."""

from __future__ import annotations

import math
from types import ModuleType

from shardwright.codegen.hardware.chips import GIB, chip_of
from shardwright.ir.dtypes import DTYPES
from shardwright.ir.errors import InputError


def check(module: ModuleType, topology: str, staging: int) -> None:
    """Raise InputError if the source shard, the target shard and `staging` bytes together exceed a
    device's HBM.

    Padding is not included, so a reshard that passes may still be too large for the compiler.
    """
    shards = {"source shard": module.LOCAL_SOURCE_SHAPE, "target shard": module.LOCAL_TARGET_SHAPE}
    parts = {what: math.prod(shape) * DTYPES[module.DTYPE] for what, shape in shards.items()}
    if staging:
        parts["staging"] = staging
    needed, chip = sum(parts.values()), chip_of(topology)
    if needed > chip.hbm_bytes:
        listed = ", ".join(f"{what} {_gib(size)}" for what, size in parts.items())
        raise InputError(
            "the program needs more HBM than a device has",
            got=f"{_gib(needed)} ({listed})",
            expected=f"at most the {_gib(chip.hbm_bytes)} of {chip.generation}",
        )


def _gib(size: int) -> str:
    return f"{size / GIB:.2f} GiB"
