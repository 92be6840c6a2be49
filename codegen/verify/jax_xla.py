"""Run an emitted XLA module on forced CPU devices. In a worker only."""

from __future__ import annotations

from types import ModuleType

from shardwright.codegen.verify.case import Case
from shardwright.codegen.verify.jax_devices import Execution, wide_types

CHECKS = ("values", "padding", "pad", "unpad")


def run(module: ModuleType, case: Case) -> tuple[str, ...]:
    """Execute the module on every bit plane; the names of the checks passed."""
    with wide_types(case.dtype):
        return (*CHECKS, *Execution(module, case).passed())


def inspect(module: ModuleType, case: Case) -> tuple[str, ...]:
    """What can be told without moving anything: nothing more than of every module."""
    del module, case
    return ()
