"""Run an emitted XLA module on forced CPU devices. Imported only by workers."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

import jax
import numpy as np

from shardwright.codegen.backends.jax_xla.verify import ragged
from shardwright.codegen.checks import compare, jax_matmul, jax_model, jax_relayout
from shardwright.codegen.checks.case import Case, GroupCase
from shardwright.codegen.checks.jax_devices import Execution, to_bits, wide_types
from shardwright.codegen.checks.jax_group import executed
from shardwright.codegen.checks.matmul_case import MatmulCase
from shardwright.codegen.checks.model_case import ModelCase
from shardwright.codegen.checks.relayout_case import RelayoutCase
from shardwright.codegen.checks.report import BY_DEFINITION

CHECKS = ("values", "padding", "pad", "unpad")


def missed() -> Iterator[str]:
    """Yield the planted fault, one wrong element, if the comparison misses it."""
    right = np.arange(4, dtype=np.uint32)
    wrong = to_bits(jax.jit(lambda x: x.at[3].add(1))(right))
    try:
        compare.same_bits("result", wrong, right, right)
    except compare.MismatchError:
        return
    yield "a wrong element is not found"


def run(module: ModuleType, case: Case) -> tuple[str, ...]:
    """Run the module on every bit plane and return the names of the checks that passed. Run a
    module that has a ragged all-to-all a second time, without the stand-in."""
    with wide_types(case.dtype):
        with ragged.by_definition() as stand_in:
            execution = Execution(module, case)
            passed = (*CHECKS, *execution.passed(), *execution.bounded())
        if not stand_in.called:
            return passed
        jax.clear_caches()  # otherwise JAX would reuse the traced branch
        Execution(module, case).passed()
        return (*passed, BY_DEFINITION)


def inspect(module: ModuleType, case: Case) -> tuple[str, ...]:
    """Return the names of the checks that need no data. This backend has none."""
    del module, case
    return ()


def run_group(module: ModuleType, group: GroupCase) -> tuple[str, ...]:
    """Run a group's module on every bit plane of every member and return the names of the checks
    that passed."""
    return executed(module, group)


def run_relayout(module: ModuleType, case: RelayoutCase) -> tuple[str, ...]:
    """Run a relayout's module and return the names of the checks that passed."""
    return jax_relayout.executed(module, case)


def run_model(module: ModuleType, case: ModelCase) -> tuple[str, ...]:
    """Run a model's module and return the names of the checks that passed."""
    return jax_model.executed(module, case)


def run_matmul(module: ModuleType, case: MatmulCase) -> tuple[str, ...]:
    """Run a matmul's module and return the names of the checks that passed."""
    return jax_matmul.run(module, case)
