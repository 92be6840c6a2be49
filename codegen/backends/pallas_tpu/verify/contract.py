"""What an emitted Pallas module must have so that its kernels can be checked, by its form.

A check that finds nothing to check fails: names come from here, never from what a module happens to
have, and what is traced must account for what every device lacks. In a worker only.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from types import CodeType, ModuleType

from shardwright.codegen.backends.pallas_tpu.contract import KERNELS
from shardwright.codegen.verify.case import Case
from shardwright.codegen.verify.compare import MismatchError, named, names
from shardwright.codegen.verify.oracle import definition as oracle
from shardwright.ir.errors import one_of

Held = tuple[Sequence[int], ...]
"""The tensor indices that a device holds, for each dimension."""

DIVIDE = {"div": "_div", "rem": "_rem"}
"""The functions in which a module divides, and in which dividends are checked."""


def form_of(module: ModuleType) -> str:
    """Return the form that a module states. MismatchError if it is none."""
    form: str = named(module, "FORM")
    if form not in KERNELS:
        raise MismatchError(f"FORM: got: {form!r}, expected: {one_of(KERNELS)}")
    return form


def check_names(module: ModuleType, case: Case) -> None:
    """Raise MismatchError where a name is missing that checks of kernels rely on."""
    kernels = KERNELS[form_of(module)]
    sending = kernels.sending if any(lacking(case).values()) else ()
    names(module, (*kernels.kernels, *kernels.constants, *sending))
    for name, function in inspect.getmembers(module, inspect.isfunction):
        if function.__module__ != module.__name__:
            continue
        for operation in sorted(DIVIDE.keys() & _names(function.__code__)):
            if name != DIVIDE[operation]:
                raise MismatchError(
                    f"{name} divides by lax.{operation}, of which dividends are not checked: "
                    f"expected in {DIVIDE[operation]} only"
                )


def lacking(case: Case) -> dict[int, int]:
    """Return, for every device, ascending, how many elements of its target shard it does not
    hold."""
    before = oracle.holdings(case.source_array, case.source_shape)
    after = oracle.holdings(case.target_array, case.target_shape)
    return {device: _lacks(before.get(device), after.get(device)) for device in case.devices()}


def _lacks(held: Held | None, wanted: Held | None) -> int:
    if wanted is None:
        return 0
    total = math.prod(map(len, wanted))
    return total if held is None else total - math.prod(map(_shared, held, wanted))


def _shared(some: Sequence[int], others: Sequence[int]) -> int:
    assert isinstance(some, range)
    assert isinstance(others, range)
    return len(range(max(some.start, others.start), min(some.stop, others.stop)))


def _names(code: CodeType) -> set[str]:
    """Return the names that code, and functions within it, looks up."""
    inner = (_names(each) for each in code.co_consts if isinstance(each, CodeType))
    return set(code.co_names).union(*inner)
