"""Run an emitted JAX module of a group on forced CPU devices. The workers of all JAX backends
share this."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from types import ModuleType
from typing import Any

import jax
import numpy as np

from shardwright.codegen.checks import compare
from shardwright.codegen.checks.case import GroupCase
from shardwright.codegen.checks.compare import MismatchError, Run
from shardwright.codegen.checks.jax_devices import Execution, to_bits, to_jax, wide_types
from shardwright.codegen.checks.oracle import definition as oracle

CHECKS = ("values", "padding", "inputs kept", "pad", "unpad")


Watch = Callable[[Run], AbstractContextManager[None]]


def unwatched(run: Run) -> AbstractContextManager[None]:
    """Return a context that sets no watchdog."""
    del run
    return nullcontext()


def executed(
    module: ModuleType, group: GroupCase, watch: Watch = unwatched, **options: Any
) -> tuple[str, ...]:
    """Execute the module on every bit plane of every member; return the names of the checks passed.

    `watch`: returns the context in which to execute a run; `options`: the arguments of `reshard`
    other than arrays and meshes.
    """
    compare.expect("NAMES", list(module.NAMES), [case.name for case in group.members])
    wide = {case.dtype for case in group.members} & {"int64", "float64"}
    if not wide:  # a module of narrow dtypes must also run with 64-bit types enabled
        with wide_types("int64"):
            _execute(module, group, watch, options, most=1)
    with wide_types(next(iter(wide), "float32")):
        _execute(module, group, watch, options)
    return CHECKS


def _execute(
    module: ModuleType,
    group: GroupCase,
    watch: Watch,
    options: dict[str, Any],
    most: int | None = None,
) -> None:
    of = {case.name: _Member(module, case) for case in group.members}
    planes = dict(zip(of, compare.runs_of_each(group.members), strict=True))
    for number in range(most or max(map(len, planes.values()))):
        each = {name: found[number % len(found)] for name, found in planes.items()}
        first = next(iter(each.values()))
        with watch(first):
            moved = _moved(module, of, each, options)
        _judge(module, of, each, *moved)
    _pad_and_unpad(module, of, each, moved[1])


class _Member(Execution):
    def _function(self) -> Any:
        """Return None, because a group's module has no function for a single tensor."""

    def given(self, run: Run) -> Any:
        return oracle.padded(self.case.source_array, run.given, run.fill)

    def judge(self, run: Run, result: Any, wanted: Any) -> None:
        with compare.said_of(self.case.name):
            self._compare(run, result, wanted, self.case.target_array)


def _pad_and_unpad(
    module: ModuleType, of: Mapping[str, _Member], runs: Mapping[str, Run], results: dict[str, Any]
) -> None:
    given = {name: to_jax(run.given, of[name].case.dtype) for name, run in runs.items()}
    padded, logical = module.pad(given), module.unpad(results)
    for name, member in of.items():
        with compare.said_of(name):
            member.padded(runs[name], padded[name], logical[name])


def _moved(
    module: ModuleType, of: Mapping[str, _Member], runs: Mapping[str, Run], options: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    first = next(iter(of.values()))
    placed = module.source_sharding(first.source_mesh)
    arrays = {
        name: jax.device_put(to_jax(member.given(runs[name]), member.case.dtype), placed[name])
        for name, member in of.items()
    }
    call = functools.partial(module.reshard, target_mesh=first.target_mesh, **options)
    return arrays, jax.block_until_ready(call(arrays, first.source_mesh))


def _judge(
    module: ModuleType,
    of: Mapping[str, _Member],
    runs: Mapping[str, Run],
    arrays: dict[str, Any],
    results: dict[str, Any],
) -> None:
    wanted = module.target_sharding(next(iter(of.values())).target_mesh)
    for name, member in of.items():
        member.judge(runs[name], results[name], wanted[name])
        if not np.array_equal(to_bits(arrays[name]), member.given(runs[name])):
            raise MismatchError(f"{name}: the input was changed")
