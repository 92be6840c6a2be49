"""The names that an emitted Pallas module must define so that its kernels can be checked, by form.

A check with nothing to check must fail, not pass. So the names of kernels come from here, never
from the module, and their events must deliver all data that devices lack. Imported only by
workers."""

from __future__ import annotations

import dis
import inspect
import math
import sys
from collections.abc import Iterator, Sequence
from types import CodeType, FunctionType, ModuleType
from typing import Any

from shardwright.codegen.backends.pallas_tpu.all_forms import FACTS
from shardwright.codegen.backends.pallas_tpu.facts import FormFacts
from shardwright.codegen.checks.case import Case
from shardwright.codegen.checks.compare import MismatchError, named
from shardwright.codegen.checks.oracle import definition as oracle
from shardwright.codegen.checks.oracle import sums as oracle_terms
from shardwright.ir.errors import one_of

DIVIDE = ("div", "rem")
"""The operations of `lax` that divide. Kernels may use each only in the support function of the
same name, whose dividend traces check."""

KERNEL_FILES = "pallas_"
"""The prefix of the names of support modules whose functions kernels call."""


def programs_of(module: ModuleType) -> tuple[Any, ...]:
    """Return the programs of a module that have kernels, in order. If a module's program reduces
    terms, its inner programs have the kernels. Raises MismatchError if an attribute on the way to a
    program is missing."""
    found: tuple[Any, ...] = named(named(named(module, "_HOST"), "program"), "carriers")
    return found


def form_of(program: Any) -> FormFacts:
    """Return the facts of a program's form. Raises MismatchError if it is unknown."""
    form: str = named(program, "form")
    if form not in FACTS:
        raise MismatchError(f"form: got: {form!r}, expected: {one_of(FACTS)}")
    return FACTS[form]


def modules_of(module: ModuleType) -> list[ModuleType]:
    """Return a module and the loaded support modules whose functions its kernels call."""
    home = module.__name__.rpartition(".")[0].rpartition(".")[0]
    start = f"{home}._support.{KERNEL_FILES}"
    support = [found for name, found in sorted(sys.modules.items()) if name.startswith(start)]
    return [module, *support]


def check_names(module: ModuleType, case: Case) -> None:
    """Raise MismatchError if a name that kernel checks need is missing, or if a function divides
    without a check of its dividends."""
    for program in programs_of(module):
        kernels = form_of(program).kernels
        sending = kernels.sending if any(lacking(case).values()) else ()
        for name in (*kernels.kernels, *kernels.tables, *sending):
            named(program, name)
    for each in modules_of(module):
        for name, function in _functions(each):
            for operation in sorted({*DIVIDE} & _attributes(function.__code__)):
                if name != operation:
                    raise MismatchError(
                        f"{name} calls lax.{operation}, but dividends are checked only in "
                        f"the support function {operation}"
                    )


def _functions(module: ModuleType) -> Iterator[tuple[str, FunctionType]]:
    for owner in (module, *(each for each in vars(module).values() if isinstance(each, type))):
        for name, found in vars(owner).items():
            function = inspect.unwrap(getattr(found, "fget", None) or found)
            own = getattr(function, "__module__", "") == module.__name__
            if own and isinstance(function, FunctionType):
                yield name, function


def lacking_in_two(case: Case) -> dict[int, int]:
    """Return the fewest elements that each device receives, by device in ascending order, if terms
    are reduced in two exchanges: one element, a term or a sum, for every value of its target
    shard."""
    held = oracle.holdings(case.target, case.shape)
    return {device: math.prod(map(len, held.get(device, ((),)))) for device in case.devices()}


def lacking(case: Case) -> dict[int, int]:
    """Return the number of elements that each device's target shard needs and its source shard
    lacks, by device in ascending order; every term of a value counts."""
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
    inner = (_attributes(each) for each in code.co_consts if isinstance(each, CodeType))
    loads = ("LOAD_ATTR", "LOAD_METHOD")
    own = {step.argval for step in dis.get_instructions(code) if step.opname in loads}
    return own.union(*inner)
