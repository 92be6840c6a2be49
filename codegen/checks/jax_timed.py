"""Time JAX modules on the available devices. Used in workers only."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import jax

from shardwright.codegen.checks.case import Case
from shardwright.codegen.checks.jax_devices import Execution, as_bits, wide_types
from shardwright.codegen.checks.jax_matmul import MatmulExecution
from shardwright.codegen.checks.matmul_case import MatmulCase
from shardwright.codegen.checks.oracle.products import products
from shardwright.codegen.checks.terms import runs
from shardwright.codegen.checks.timed import (
    LEAST,
    LIMIT,
    MOST,
    CannotTimeError,
    Hardware,
    arrays_of,
    check_memory,
)
from shardwright.codegen.checks.workers.clock import timed as clocked

FORCED = "XLA_FLAGS=--xla_force_host_platform_device_count"


def hardware() -> Hardware:
    """Return the kind and the number of JAX's devices."""
    first, *_ = jax.devices()
    kind = "cpu" if first.platform == "cpu" else first.device_kind
    return Hardware(kind, len(jax.devices()))


def timed(module: ModuleType, case: Case | MatmulCase) -> list[float]:
    """Return the seconds of each timed call of a module, in a jit if possible. Before timing,
    compare the result of a first call with the oracle. Raises MismatchError for a wrong result,
    and CannotTimeError if there are too few devices."""
    here, count = hardware(), len(case.devices())
    if here.count < count:
        hint = f": set {FORCED}={count}" if here.kind == "cpu" else ""
        raise CannotTimeError(f"it needs {count} devices, but JAX has {here.count}{hint}")
    dtypes = (case.dtype, case.out_dtype) if isinstance(case, MatmulCase) else (case.dtype,)
    widest = max(dtypes, key=lambda name: jax.numpy.dtype(name).itemsize)
    check_memory(arrays_of(case), jax.numpy.dtype(widest).itemsize)
    with wide_types(widest):
        call = _matmul(module, case) if isinstance(case, MatmulCase) else _reshard(module, case)
        (seconds,) = clocked([call], least=LEAST, most=MOST, limit=LIMIT)
    return seconds


def _reshard(module: ModuleType, case: Case) -> Callable[[], Any]:
    execution, run = Execution(module, case), next(runs(case, as_bits))
    execution.once(run)
    x = execution.given(run)
    return lambda: jax.block_until_ready(execution.function(x))


def _matmul(module: ModuleType, case: MatmulCase) -> Callable[[], Any]:
    execution = MatmulExecution(module, case)
    product = next(products(case.dtype, case.out_dtype, case.shapes[:2], case.placements[:2], 0))
    execution.once(product, 0.0)
    a, b = execution.given(0, product.lhs, 0.0), execution.given(1, product.rhs, 0.0)
    return lambda: jax.block_until_ready(execution.function(a, b))
