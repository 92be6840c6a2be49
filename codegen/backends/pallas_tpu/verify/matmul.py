"""Run a matmul with a Pallas kernel in TPU interpret mode, and check the kernel's events.

Imported only by workers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import jax

from shardwright.codegen.backends.pallas_tpu.verify import poison
from shardwright.codegen.backends.pallas_tpu.verify.interpreter import observed
from shardwright.codegen.backends.pallas_tpu.verify.products import check_products
from shardwright.codegen.checks.compare import named
from shardwright.codegen.checks.jax_matmul import (
    CHECKS,
    MatmulExecution,
    constants,
    multiplied,
)
from shardwright.codegen.checks.matmul_case import MatmulCase

KERNEL_CHECKS = ("races", "semaphores", "poison", "protocol")


def run_matmul(module: ModuleType, case: MatmulCase) -> tuple[str, ...]:
    """Run a matmul's module, check its kernel's events on every device, and return the names of the
    checks that passed. Raises MismatchError for a wrong result or a fault in the kernel."""
    jax.clear_caches()  # see `run` in run.py
    constants(module, case)
    checks: tuple[str, ...] = CHECKS[:2]
    if case.execute:
        checks = (*multiplied(_InterpretedMatmul, module, case), *KERNEL_CHECKS[:3])
    ring = named(named(module, "_HOST"), "ring")
    if ring is None:
        return checks
    check_products(module, ring)
    return (*checks, KERNEL_CHECKS[3])


class _InterpretedMatmul(MatmulExecution):
    """Run a matmul's module in TPU interpret mode, with races detected and memory poisoned."""

    def options(self) -> dict[str, Any]:
        return {"interpret": poison.interpret_params()}

    @contextmanager
    def observed(self, seed: int) -> Iterator[None]:
        poison.choose(poison.MODES[seed % len(poison.MODES)])
        with observed():
            yield
