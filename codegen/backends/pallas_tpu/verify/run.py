"""Run an emitted Pallas TPU module in TPU interpret mode, on forced CPU devices. Imported only by
workers.

`JAX_PLATFORMS=cpu` and `--xla_force_host_platform_device_count` (more than the devices of the
largest mesh) must be set before this is imported.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from types import ModuleType
from typing import Any

import jax
import numpy as np

from shardwright.codegen.backends.pallas_tpu.verify import poison
from shardwright.codegen.backends.pallas_tpu.verify.aligned import check_aligned
from shardwright.codegen.backends.pallas_tpu.verify.contract import (
    check_names,
    form_of,
    lacking,
    lacking_in_two,
    programs_of,
)
from shardwright.codegen.backends.pallas_tpu.verify.deliveries import (
    check_deliveries,
    check_received,
)
from shardwright.codegen.backends.pallas_tpu.verify.halves import HalvesTraces, check_halves
from shardwright.codegen.backends.pallas_tpu.verify.interpreter import observed
from shardwright.codegen.backends.pallas_tpu.verify.matmul import run_matmul
from shardwright.codegen.backends.pallas_tpu.verify.order import Traces
from shardwright.codegen.backends.pallas_tpu.verify.planted import missed
from shardwright.codegen.backends.pallas_tpu.verify.protocol import check_protocol
from shardwright.codegen.backends.pallas_tpu.verify.rings import added_round_rings, check_rings
from shardwright.codegen.backends.pallas_tpu.verify.trace import trace, traced_half
from shardwright.codegen.checks import compare, jax_group
from shardwright.codegen.checks.case import Case, GroupCase
from shardwright.codegen.checks.compare import MismatchError, Run, named
from shardwright.codegen.checks.jax_devices import Execution, as_bits, to_jax, wide_types
from shardwright.codegen.checks.jax_relayout import executed
from shardwright.codegen.checks.relayout_case import RelayoutCase
from shardwright.codegen.checks.terms import added_in_order, random_terms, reduces

__all__ = ["inspect", "missed", "run", "run_group", "run_matmul", "run_relayout"]

FEW_RANKS = 16
"""The most devices for which the events of two successive calls are checked."""

TRACED = 512
"""The most devices for which a kernel's events are checked: more would take minutes."""

PROTOCOL = ("hints", "windows", "protocol")
CHECKS = ("values", "poison", "padding", "races", "semaphores", "pad", "unpad")


def run(module: ModuleType, case: Case) -> tuple[str, ...]:
    """Run the module on every bit plane and return the names of the checks that passed. Raises
    MismatchError for a wrong result or a fault in the kernel."""
    # The interpreter numbers devices by the order of axes that JAX's caches saw first: a module
    # with the same axes in another order would run on the wrong devices (jax 0.10.2).
    jax.clear_caches()
    with wide_types(case.dtype):
        interpreted = _Interpreted(module, case)
        derivative = interpreted.passed()
        sums = interpreted.sums()
    # Check events last, so that a fault that the interpreter also finds is reported in its words.
    return (*CHECKS, *sums, *derivative, *inspect(module, case))


def inspect(module: ModuleType, case: Case) -> tuple[str, ...]:
    """Check the kernels' events at full size without moving data, and return the names of the
    checks that passed (none if there are too many devices). Raises MismatchError for a fault."""
    check_names(module, case)
    if len(case.devices()) > TRACED:
        return ()
    programs, sends = programs_of(module), any(lacking(case).values())
    kernels = [trace(module, each, len(case.devices()), sends) for each in programs]
    for program, events in zip(programs, kernels, strict=True):
        check_protocol(events)
        check_deliveries(program, events)
        form = form_of(program)
        if form.forwards and form.in_place:
            check_aligned(program, events)
        if form.forwards and len(events) <= FEW_RANKS:
            check_halves(((0, events), (1, events)))  # two successive calls
        if form.buffers == "rings":
            check_rings(program, events)
    if len(programs) == 1:
        check_received(kernels, _by_rank(module, lacking(case)))
        return (*PROTOCOL, *_halves(module, programs[0], kernels[0]))
    ids = [program.collective_id for program in programs]
    if len({*ids}) < len(ids):
        raise MismatchError(f"kernels of one program share a collective id: {ids}")
    for moves in (program.moves for program in programs if program.moves):
        fault = moves.fault()
        if fault:
            raise MismatchError(fault)
    check_received(kernels, _by_rank(module, lacking_in_two(case)))
    return ("transfers", *PROTOCOL)


def _by_rank(module: ModuleType, by_device: dict[int, int]) -> dict[int, int]:
    """Reorder numbers by rank: by mesh position or, if the meshes list devices in different orders,
    by ascending device id."""
    one_order = tuple(module.SOURCE_IDS) == tuple(module.TARGET_IDS)
    return {device: by_device[device] for device in (module.SOURCE_IDS if one_order else by_device)}


def _halves(module: ModuleType, program: Any, wholes: Traces) -> tuple[str, ...]:
    if "reshard_start" not in module.__all__:
        return ()
    starts, ends = (traced_half(module, program, kernel) for kernel in named(program, "kernels"))
    check_halves(HalvesTraces(starts, ends, wholes).calls())
    return ("halves",)


def run_group(module: ModuleType, group: GroupCase) -> tuple[str, ...]:
    """Run a group's module on every bit plane of every member and return the names of the checks
    that passed. Raises MismatchError."""
    jax.clear_caches()
    checks = jax_group.executed(module, group, _watched, interpret=poison.interpret_params())
    return (*checks, "poison", "races", "semaphores")


def run_relayout(module: ModuleType, case: RelayoutCase) -> tuple[str, ...]:
    """Run a relayout's module and return the names of the checks that passed. Raises
    MismatchError."""
    jax.clear_caches()
    checks = executed(module, case, _in_a_mode, interpret=poison.interpret_params())
    return (*checks, "poison", "races", "semaphores")


@contextmanager
def _in_a_mode(number: int) -> Iterator[None]:
    """Watch a module that runs in this context, in mode `number` modulo the number of modes. Raises
    MismatchError for races and other faults in its kernels."""
    poison.choose(poison.MODES[number % len(poison.MODES)])
    with observed():
        yield


@contextmanager
def _watched(run: Run) -> Iterator[None]:
    """Watch a module that runs in this context, in the mode `run.poison`. Raises MismatchError for
    races and other faults in its kernels."""
    poison.choose(poison.MODES[run.poison])
    with observed():
        yield


class _Interpreted(Execution):
    """Run a module in TPU interpret mode, with races detected and memory poisoned."""

    def options(self) -> dict[str, Any]:
        return {"interpret": poison.interpret_params()}

    def sums(self) -> tuple[str, ...]:
        """Check sums of floats bit by bit, if the module computes any, since the order of their
        terms is known. Return the check's name."""
        case = self.case
        is_rounded = "float" in case.dtype and case.source.operator == "sum"
        if not reduces(case) or not is_rounded:
            return ()
        terms = as_bits(random_terms(case), case.dtype)
        values = np.asarray(to_jax(terms, case.dtype), np.float32)
        first, *_ = programs_of(self.module)
        if form_of(first).buffers == "rings":
            sums = added_round_rings(case, first, values)
        else:
            sums = added_in_order(case, values)
        made = as_bits(sums, case.dtype)
        with compare.said_of("sums in the order of their terms"):
            self.once(Run(made, 0, 0, 0, terms))
        return ("sums in order",)

    def observed(self, run: Run) -> AbstractContextManager[None]:
        return _watched(run)
