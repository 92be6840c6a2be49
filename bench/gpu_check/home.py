"""Where checks run, and with what sizes: compiled on a GPU, or in the interpreter in a dry run."""

from __future__ import annotations

import os

DRY = os.environ.get("GPU_CHECK_DRY") == "1"
# Also set on a GPU, where a module's self-check would otherwise choose the interpreter.
os.environ["TRITON_INTERPRET"] = str(int(DRY))

import torch  # noqa: E402

HOME = "cpu" if DRY else "cuda"
"""The device of all tensors."""

MIB = 2**20
MOST = 2**14 if DRY else 2**31
"""The size in bytes of the largest tensor to move."""

WORKERS = int(os.environ.get("GPU_CHECK_WORKERS") or (2 if DRY else 12))
RANDOM = int(os.environ.get("GPU_CHECK_RANDOM") or (12 if DRY else 150))
NAMES = tuple(name for name in os.environ.get("GPU_CHECK_NAMES", "").split(",") if name)


def synchronize() -> None:
    if not DRY:
        torch.cuda.synchronize()
