"""Verify the modules of one backend of a bundle: run them or, if the tensor is too large, run a
smaller twin. A backward module is verified too, with the derivative that uses it."""

from __future__ import annotations

import dataclasses
import itertools
import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from shardwright.codegen.checks.case import MAX_DEVICES, Case, GroupCase, Transfer, placement
from shardwright.codegen.checks.report import Report
from shardwright.codegen.operations.emit.choice import planned
from shardwright.codegen.operations.emit.modules import Part, backward_file, backward_of, parts
from shardwright.codegen.operations.emit.reshard import emit_described
from shardwright.codegen.operations.verify.cover import CHECK
from shardwright.codegen.operations.verify.pool import Runner, failure
from shardwright.codegen.operations.verify.smaller_mesh import smaller_meshes
from shardwright.codegen.operations.verify.transfers import as_rows, disagreement
from shardwright.codegen.operations.verify.twin import form, is_too_large, twins
from shardwright.codegen.spec.collective_ids import bundle_id
from shardwright.codegen.spec.description import Description
from shardwright.codegen.spec.manifest import SUPPORT, read_manifest
from shardwright.codegen.spec.matmul import Operation
from shardwright.codegen.text.support import support_files
from shardwright.ir.errors import InputError
from shardwright.ir.plan import DirectPlan
from shardwright.ir.reshard import Reshard

MAX_ENUMERATED, MAX_COMPARED = 2**20, 2**16
"""The most transfers of a plan to enumerate, and the most to compare one by one with a module's.
With more transfers, the module is proved to cover every target shard."""

MOST_MESHES = 48
"""The most smaller meshes to try."""


def report(description: Description, module: Path, runner: Runner, folder: Path) -> Report:
    """Return the verdict on a backend's module and its backward module. A twin's modules may be
    written into `folder`."""
    try:
        cases = _cases(description, module)
    except InputError as error:
        case = Case.of(description.reshard(), description.name, module.stem, module)
        return failure(case, f"would not be emitted now: {str(error).splitlines()[0]}")
    fault = support_fault(description, module.parent.parent)
    if fault:
        return failure(cases[0], fault)
    if not is_too_large(cases[0].shape) and len(cases[0].devices()) <= MAX_DEVICES:
        return _all(cases, runner.run)
    start = time.perf_counter()
    result = _not_as_they_are(description, cases, runner, folder)
    return dataclasses.replace(result, seconds=time.perf_counter() - start)


def _cases(description: Description, module: Path) -> tuple[Case, ...]:
    """Return the case of a module, followed by the case of its backward module, if any. The first
    case then also checks the derivative."""
    backend, name = module.stem, description.name
    made = planned(description)
    case = Case.of(made.reshard, name, backend, module)
    back = backward_of(made, backend, gradient=description.gradient)
    if back is None:
        return (case,)
    path = module.with_name(backward_file(backend))
    beside = Case.of(back.reshard, name, backend, path)
    return dataclasses.replace(case, derivative=True), beside


def _all(cases: Sequence[Case], run: Callable[[Case], Report]) -> Report:
    """Return one report on a module and its backward module. The backward module runs first,
    because the derivative needs it."""
    if len(cases) == 1:
        return run(cases[0])
    own, beside = cases
    back = run(beside)
    if back.verdict != "ok":
        named = f"{beside.module.name}: " if back.verdict == "failed" else ""
        return dataclasses.replace(back, detail=named + back.detail)
    first = run(own)
    checks = (*first.checks, "backward") if first.verdict == "ok" else ()
    return dataclasses.replace(first, seconds=first.seconds + back.seconds, checks=checks)


def _not_as_they_are(
    description: Description, cases: Sequence[Case], runner: Runner, folder: Path
) -> Report:
    try:
        emitted = emitted_now(description, cases[0].backend)
    except InputError as error:
        return failure(cases[0], f"would not be emitted now: {str(error).splitlines()[0]}")
    of = dict(zip(cases, emitted, strict=True))
    full = _all(cases, lambda case: _full_size(of[case], case, runner))
    if full.verdict != "ok":
        return full
    found = twins_of([description], cases[0].backend, [emitted])
    if found is None:
        return _not_run(full, cases[0])
    ((small, texts),) = found
    shrunk = on(description, small)
    result = _all(_twin_cases(cases[0], shrunk, texts, folder), runner.run)
    name = f"twin {'x'.join(map(str, small.shape))}{_smaller(small, cases[0])}"
    if not _same_forms(texts, emitted):
        name += " of another form"
    if result.verdict != "ok":
        return dataclasses.replace(result, detail=f"{name}: {result.detail}")
    checks = tuple(dict.fromkeys((*full.checks, *result.checks)))
    detail = f"{name}; {_checked(full, cases[0])}"
    return dataclasses.replace(result, devices=full.devices, detail=detail, checks=checks)


Twin = tuple[Reshard, tuple[Part, ...]]
"""A smaller reshard and its modules."""


def twins_of(
    descriptions: Sequence[Description], backend: str, emitted: Sequence[Sequence[Part]]
) -> list[Twin] | None:
    """Return the twins of reshards on the same devices, whose modules are `emitted`, or None if no
    twin can run here.

    A twin has the smallest shape whose modules have the same form as the emitted modules or, if
    there is none, the smallest shape. If there are too many devices to run, twins are on the
    smaller mesh for which modules differ least from the emitted modules.
    """
    reshards = [description.reshard() for description in descriptions]
    if _count(reshards[0]) <= MAX_DEVICES:
        return _all_of(descriptions, backend, emitted)
    best, least = None, 0
    for smaller in itertools.islice(smaller_meshes(reshards, MAX_DEVICES), MOST_MESHES):
        fewer = [on(each, small) for each, small in zip(descriptions, smaller, strict=True)]
        try:
            modules = [
                emitted_now(each, backend, like) for each, like in zip(fewer, emitted, strict=True)
            ]
        except InputError:
            continue
        lines = sum(map(_differing, modules, emitted))
        if best is None or lines < least:
            best, least = (fewer, modules), lines
        if not lines:
            break
    return None if best is None else _all_of(best[0], backend, best[1])


def _all_of(
    descriptions: Sequence[Description], backend: str, emitted: Sequence[Sequence[Part]]
) -> list[Twin] | None:
    twins: list[Twin] = []
    for description, modules in zip(descriptions, emitted, strict=True):
        found = _twin_of(description, backend, modules)
        if found is None:
            return None
        twins.append(found)
    return twins


def _differing(some: Sequence[Part], others: Sequence[Part]) -> int:
    one, other = (
        Counter(line for part in parts for line in form(part.text).splitlines())
        for parts in (some, others)
    )
    return ((one - other) + (other - one)).total()


def no_twin(case: Case | GroupCase) -> str:
    if len(case.devices()) > MAX_DEVICES:
        return f"more than {MAX_DEVICES} devices, and there are no smaller meshes of its form"
    return "its smallest twin is too large too"


def on(description: Description, small: Reshard) -> Description:
    source, target = small.source, small.target
    return dataclasses.replace(
        description,
        mesh=str(source.mesh),
        target_mesh=None if target.mesh == source.mesh else str(target.mesh),
        shape=small.shape,
        source=str(source),
        target=str(target),
    )


def _twin_of(description: Description, backend: str, emitted: Sequence[Part]) -> Twin | None:
    """Return the twin of a reshard on the same devices: the reshard itself if it is small;
    otherwise the smallest shape whose modules have the form of the emitted modules; otherwise the
    smallest shape. Return None if even that is too large."""
    smallest, reshard = None, description.reshard()
    if not is_too_large(reshard.shape):
        return reshard, tuple(emitted)
    sides = (
        placement(reshard.source, reshard.source_split),
        placement(reshard.target, reshard.target_split),
    )
    for small in twins(reshard, *sides):
        found = small, emitted_now(on(description, small), backend, emitted)
        if _same_forms(found[1], emitted):
            return found
        smallest = smallest or found
    return smallest


def _count(reshard: Reshard) -> int:
    return len({*reshard.source.mesh.device_ids, *reshard.target.mesh.device_ids})


def _smaller(small: Reshard, case: Case) -> str:
    count = _count(small)
    return f" on {count} devices" if count < len(case.devices()) else ""


def _same_forms(some: Sequence[Part], others: Sequence[Part]) -> bool:
    return [form(part.text) for part in some] == [form(part.text) for part in others]


def _not_run(full: Report, case: Case) -> Report:
    detail = f"not run: {no_twin(case)}; {_checked(full, case)}"
    return dataclasses.replace(full, verdict="skipped", detail=detail)


def _checked(full: Report, case: Case) -> str:
    said = f"at full size: {', '.join(check for check in full.checks if check != CHECK)}"
    terms = bool(case.source.unreduced)
    return f"{said}; {proof(full, terms=terms)}" if CHECK in full.checks else said


def proof(full: Report, what: str = "", *, terms: bool = False) -> str:
    """Say in a sentence what the check for an exact cover at full size proved."""
    once = "is written exactly once, from the source element of its index"
    if terms:
        once = "gets each of its terms exactly once, from source elements of its index"
    return f"every element of every target shard ({what}{full.devices} devices) {once}"


def _full_size(part: Part, case: Case, runner: Runner) -> Report:
    """Check a module at full size without running it: its constants, index functions and transfers,
    and its text, which must equal a new emission."""
    transfers: tuple[Transfer, ...] = ()
    if isinstance(part.plan, DirectPlan) and _transfers(part.plan) <= MAX_ENUMERATED:
        enumerated = part.plan.transfers()
        fault = disagreement(
            enumerated, case.source, case.target, case.shape, transposed=case.transposed
        )
        if fault:
            return failure(case, f"plan: {fault}")
        transfers = as_rows(enumerated) if len(enumerated) <= MAX_COMPARED else ()
    inspected = dataclasses.replace(case, execute=False, derivative=False, transfers=transfers)
    result = runner.run(inspected)
    if result.verdict != "ok":
        return result
    if case.module.read_text(encoding="utf-8") != part.text:
        return failure(case, "differs from a new emission: see `shardwright check`")
    return dataclasses.replace(result, checks=(*result.checks, "text"))


def _transfers(plan: DirectPlan) -> int:
    exchange = plan.exchange
    tiles = math.prod(len(dim.pairs.source) for dim in exchange.dims)
    return tiles * exchange.target.replicas * exchange.rule.pieces


def _twin_cases(
    case: Case, small: Description, emitted: Sequence[Part], folder: Path
) -> tuple[Case, ...]:
    home = folder / case.backend / case.name
    home.mkdir(parents=True, exist_ok=True)
    write_support(folder / case.backend, small.supported, case.module.parent.parent)
    for part in emitted:
        (home / part.file).write_text(part.text, encoding="utf-8")
    return _cases(small, home / case.module.name)


def emitted_now(
    description: Description, backend: str, like: Sequence[Part] = ()
) -> tuple[Part, ...]:
    """Emit a backend's modules again. `like`: modules whose form to keep, if the backend chooses
    among several forms by size."""
    made = emit_described(description)
    return parts(
        made.plan,
        backend,
        description.command(),
        tuple(like),
        gradient=description.gradient,
        single_file=description.single_file,
        features=made.features,
        collective_id=bundle_id(description),
    )


def support_fault(description: Operation, root: Path) -> str:
    """Return the fault in the support modules of a bundle below a root, or ""."""
    return read_manifest(root).support.fault(root) if description.supported else ""


def write_support(
    root: Path, backends: Sequence[str], beside: Path, *, grouped: bool = False
) -> None:
    """Write the support modules of these backends below `root`, including those of matmuls and,
    with `grouped`, those of groups. Copy each file from `beside`, the root of the original modules,
    because the original modules run with that file. Emit a file that is missing there."""
    home = root / SUPPORT
    for name, text in support_files(backends, grouped=grouped, multiplied=True).items():
        home.mkdir(parents=True, exist_ok=True)
        found = beside / SUPPORT / name
        (home / name).write_bytes(found.read_bytes() if found.is_file() else text.encode())
