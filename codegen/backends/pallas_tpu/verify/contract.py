"""What an emitted Pallas module must have so that its kernels can be checked, by its form.

A check that finds nothing to check fails: names come from here, never from what a module happens to
have, and what is traced must account for what every device lacks. In a worker only.
"""

from __future__ import annotations

import dis
import inspect
import math
import sys
from collections.abc import Iterator, Sequence
from types import CodeType, FunctionType, ModuleType
from typing import Any

from shardwright.codegen.backends.pallas_tpu.contract import KERNELS
from shardwright.codegen.verify.case import Case
from shardwright.codegen.verify.compare import MismatchError, named
from shardwright.codegen.verify.oracle import definition as oracle
from shardwright.codegen.verify.oracle import sums as oracle_terms
from shardwright.ir.errors import one_of

DIVIDE = ("div", "rem")
"""The functions in which kernels divide, by the operations of `lax`, and in which dividends are
checked."""

KERNEL_FILES = "pallas_"
"""What the names of those support modules begin with that kernels run in."""


def programs_of(module: ModuleType) -> tuple[Any, ...]:
    """Return what a module does within `shard_map` with kernels, one after another; MismatchError
    if it has none. That of terms carries them by programs of its own."""
    found: tuple[Any, ...] = named(named(named(module, "_HOST"), "program"), "carriers")
    return found


def form_of(program: Any) -> str:
    """Return the form that a program states. MismatchError if it is none."""
    form: str = named(program, "form")
    if form not in KERNELS:
        raise MismatchError(f"form: got: {form!r}, expected: {one_of(KERNELS)}")
    return form


def modules_of(module: ModuleType) -> list[ModuleType]:
    """Return a module and the support modules that its kernels run in."""
    home = module.__name__.rpartition(".")[0].rpartition(".")[0]
    start = f"{home}._support.{KERNEL_FILES}"
    support = [found for name, found in sorted(sys.modules.items()) if name.startswith(start)]
    return [module, *support]


def check_names(module: ModuleType, case: Case) -> None:
    """Raise MismatchError if a name is missing that checks of kernels rely on."""
    for program in programs_of(module):
        kernels = KERNELS[form_of(program)]
        sending = kernels.sending if any(lacking(case).values()) else ()
        for name in (*kernels.kernels, *kernels.tables, *sending):
            named(program, name)
    for each in modules_of(module):
        for name, function in _functions(each):
            for operation in sorted({*DIVIDE} & _attributes(function.__code__)):
                if name != operation:
                    raise MismatchError(
                        f"{name} divides by lax.{operation}, of which dividends are not checked: "
                        f"expected in {operation} only"
                    )


def _functions(module: ModuleType) -> Iterator[tuple[str, FunctionType]]:
    """Yield the functions that a module has, those of its classes too, by name."""
    for owner in (module, *(each for each in vars(module).values() if isinstance(each, type))):
        for name, found in vars(owner).items():
            function = inspect.unwrap(getattr(found, "fget", None) or found)
            own = getattr(function, "__module__", "") == module.__name__
            if own and isinstance(function, FunctionType):
                yield name, function


def lacking_in_two(case: Case) -> dict[int, int]:
    """Return, for every device, ascending, how many elements it gets at least where terms are
    reduced in two exchanges: of every value of its target shard another term, or the value."""
    held = oracle.holdings(case.target, case.shape)
    return {device: math.prod(map(len, held.get(device, ((),)))) for device in case.devices()}


def lacking(case: Case) -> dict[int, int]:
    """Return, for every device, ascending, how many elements that its target shard is made of it
    does not hold: of every term of a value one."""
    held, wanted = (oracle.holdings(side, case.shape) for side in (case.source, case.target))
    own, made = oracle_terms.terms_held(case.source), oracle_terms.terms_held(case.target)
    made_of = oracle_terms.made_of(case.source, case.target, transposed=case.transposed)
    found = dict.fromkeys(case.devices(), 0)
    for device, whole in wanted.items():
        terms = made_of[made[device]]
        found[device] = len(terms) * math.prod(map(len, whole))
        if device in held and own[device] in terms:
            found[device] -= math.prod(map(_shared, held[device], whole))
    return found


def _shared(some: Sequence[int], others: Sequence[int]) -> int:
    assert isinstance(some, range)
    assert isinstance(others, range)
    return len(range(max(some.start, others.start), min(some.stop, others.stop)))


def _attributes(code: CodeType) -> set[str]:
    """Return the attributes that code, and functions within it, looks up."""
    inner = (_attributes(each) for each in code.co_consts if isinstance(each, CodeType))
    loads = ("LOAD_ATTR", "LOAD_METHOD")
    own = {step.argval for step in dis.get_instructions(code) if step.opname in loads}
    return own.union(*inner)
