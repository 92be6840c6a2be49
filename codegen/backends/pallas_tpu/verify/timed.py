"""Time compiled Pallas modules on TPUs. Imported only by workers."""

from __future__ import annotations

from types import ModuleType

import jax

from shardwright.codegen.checks import jax_timed as by_jax
from shardwright.codegen.checks.case import Case
from shardwright.codegen.checks.jax_timed import hardware
from shardwright.codegen.checks.matmul_case import MatmulCase
from shardwright.codegen.checks.timed import CannotTimeError

__all__ = ["hardware", "timed"]


def timed(module: ModuleType, case: Case | MatmulCase) -> list[float]:
    """Return the seconds of each call of a module, as `by_jax.timed` does. Raises CannotTimeError
    also if JAX has no TPU."""
    if jax.default_backend() != "tpu":
        raise CannotTimeError(f"its kernels run on TPUs, but JAX runs on {jax.default_backend()}")
    return by_jax.timed(module, case)
