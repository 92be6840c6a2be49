"""Run an emitted Pallas TPU module in TPU interpret mode, on forced CPU devices. In a worker only.

`JAX_PLATFORMS=cpu` and `--xla_force_host_platform_device_count` (one more than the devices of the
largest mesh) must be set before this is imported.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import jax

from shardwright.codegen.backends.pallas_tpu.verify import poison
from shardwright.codegen.backends.pallas_tpu.verify.contract import check_names, lacking
from shardwright.codegen.backends.pallas_tpu.verify.deliveries import (
    check_deliveries,
    check_received,
)
from shardwright.codegen.backends.pallas_tpu.verify.interpreter import observed
from shardwright.codegen.backends.pallas_tpu.verify.planted import missed
from shardwright.codegen.backends.pallas_tpu.verify.protocol import check_protocol
from shardwright.codegen.backends.pallas_tpu.verify.trace import trace
from shardwright.codegen.verify.case import Case
from shardwright.codegen.verify.compare import Run
from shardwright.codegen.verify.jax_devices import Execution, wide_types

__all__ = ["inspect", "missed", "run"]

PROTOCOL = ("hints", "windows", "protocol")
CHECKS = ("values", "poison", "padding", "races", "semaphores", "pad", "unpad")


def run(module: ModuleType, case: Case) -> tuple[str, ...]:
    """Execute the module on every bit plane; the names of the checks passed."""
    # The interpreter numbers devices along the axes as JAX's caches first met them: a module on the
    # same axes in another order would be run on other devices (jax 0.10.2).
    jax.clear_caches()
    with wide_types(case.dtype):
        derivative = _Interpreted(module, case).passed()
    # Last, so that what the interpreter sees is said in its words.
    return (*CHECKS, *derivative, *inspect(module, case))


def inspect(module: ModuleType, case: Case) -> tuple[str, ...]:
    """Return the kernel's events at full size: hints, windows and protocol; nothing is moved."""
    check_names(module, case)
    events = trace(module, len(case.devices()), any(lacking(case).values()))
    check_protocol(events)
    check_received(events, case)
    check_deliveries(module, events)
    return PROTOCOL


class _Interpreted(Execution):
    """A module in TPU interpret mode, with races detected and memory poisoned."""

    def options(self) -> dict[str, Any]:
        return {"interpret": poison.interpret_params()}

    @contextmanager
    def observed(self, run: Run) -> Iterator[None]:
        poison.choose(poison.MODES[run.poison])
        with observed():
            yield
