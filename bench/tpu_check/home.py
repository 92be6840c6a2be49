"""Where modules run: on TPUs, or dry on CPU devices with kernels in TPU interpret mode."""

from __future__ import annotations

import os

DRY = os.environ.get("TPU_CHECK_DRY") == "1"
DEVICES = int(os.environ.get("TPU_CHECK_DEVICES") or 8)
if DRY:
    # Interpret mode takes a device more than a kernel has. Both are read when jax is imported.
    flags = os.environ.get("XLA_FLAGS", "")
    os.environ["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count={DEVICES + 1}"
    os.environ["JAX_PLATFORMS"] = "cpu"

import jax  # noqa: E402

NAMES = tuple(name for name in os.environ.get("TPU_CHECK_NAMES", "").split(",") if name)
MOST = 2**14 if DRY else 2**31
"""Bytes of the largest tensor that is moved."""

MOST_FLOPS = 2**20 if DRY else 2**42
"""Operations of the largest matmul."""


def count() -> int:
    """Return how many devices a mesh can have."""
    return DEVICES if DRY else len(jax.devices())
