"""Run an emitted XLA module on forced CPU devices. In a worker only."""

from __future__ import annotations

from types import ModuleType

from shardwright.codegen.verify import ragged
from shardwright.codegen.verify.case import Case
from shardwright.codegen.verify.jax_devices import Execution, wide_types
from shardwright.codegen.verify.report import BY_DEFINITION

CHECKS = ("values", "padding", "pad", "unpad")


def run(module: ModuleType, case: Case) -> tuple[str, ...]:
    """Execute the module on every bit plane; the names of the checks passed."""
    with wide_types(case.dtype), ragged.by_definition() as stand_in:
        passed = (*CHECKS, *Execution(module, case).passed())
    return (*passed, BY_DEFINITION) if stand_in.called else passed


def inspect(module: ModuleType, case: Case) -> tuple[str, ...]:
    """What can be told without moving anything: nothing more than of every module."""
    del module, case
    return ()
