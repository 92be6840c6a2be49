"""The devices of a check: TPUs or, in a dry run, CPU devices with kernels in TPU interpret mode."""

from __future__ import annotations

import os

DRY = os.environ.get("TPU_CHECK_DRY") == "1"
DEVICES = int(os.environ.get("TPU_CHECK_DEVICES") or 8)
if DRY:
    # Interpret mode needs one more device than a kernel runs on. JAX reads both variables on
    # import.
    flags = os.environ.get("XLA_FLAGS", "")
    os.environ["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count={DEVICES + 1}"
    os.environ["JAX_PLATFORMS"] = "cpu"

import jax  # noqa: E402

NAMES = tuple(name for name in os.environ.get("TPU_CHECK_NAMES", "").split(",") if name)
MOST = 2**14 if DRY else 2**31
"""The size in bytes of the largest tensor to move."""

MOST_FLOPS = 2**20 if DRY else 2**42
"""The most floating-point operations of a matmul to check."""


def count() -> int:
    """Return the most devices that a mesh can have."""
    return DEVICES if DRY else len(jax.devices())
