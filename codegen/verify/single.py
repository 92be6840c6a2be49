"""The modules of one backend of a bundle: run as they are, or, if the tensor is too large, those
of a smaller twin. Where there is a backward, it is verified too, and the derivative that takes it.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from shardwright.codegen.emit.choice import planned
from shardwright.codegen.emit.emit import emit_described
from shardwright.codegen.emit.modules import Part, backward_file, backward_of, parts
from shardwright.codegen.emit.support import support_files
from shardwright.codegen.spec.collective_ids import bundle_id
from shardwright.codegen.spec.description import Description
from shardwright.codegen.spec.manifest import SUPPORT, read_manifest
from shardwright.codegen.spec.matmul import Operation
from shardwright.codegen.verify.case import MAX_DEVICES, Case, Transfer
from shardwright.codegen.verify.pool import Runner, failure
from shardwright.codegen.verify.report import Report
from shardwright.codegen.verify.transfers import as_rows, disagreement
from shardwright.codegen.verify.twin import form, is_too_large, twins
from shardwright.ir.errors import InputError
from shardwright.ir.plan import DirectPlan
from shardwright.ir.reshard import Reshard

MAX_ENUMERATED = 512
"""Plans of more devices are not enumerated to compare the module's transfers with them."""


def report(description: Description, module: Path, runner: Runner, folder: Path) -> Report:
    """Return the verdict on a backend's module and its backward beside it; `folder` is where the
    modules of a twin may be written."""
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
    """Return the case of a module, which is to have its derivative if there is a backward, and
    of that."""
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
    """Return one report on a module and its backward: that first, since the derivative needs it."""
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
    """Return the modules at full size without moving anything, then their twins in full."""
    try:
        emitted = emitted_now(description, cases[0].backend)
    except InputError as error:
        return failure(cases[0], f"would not be emitted now: {str(error).splitlines()[0]}")
    of = dict(zip(cases, emitted, strict=True))
    full = _all(cases, lambda case: _full_size(of[case], case, runner))
    if full.verdict != "ok":
        return full
    if len(cases[0].devices()) > MAX_DEVICES:
        return _not_run(full, f"more than {MAX_DEVICES} devices")
    found = twin_of(description, cases[0], emitted)
    if found is None:
        return _not_run(full, "its smallest twin is too large too")
    small, texts = found
    shrunk = dataclasses.replace(description, shape=small.shape)
    result = _all(_twin_cases(cases[0], shrunk, texts, folder), runner.run)
    name = f"twin {'x'.join(map(str, small.shape))}"
    if not _same_forms(texts, emitted):
        name += " of another form"
    if result.verdict != "ok":
        return dataclasses.replace(result, detail=f"{name}: {result.detail}")
    checks = tuple(dict.fromkeys((*full.checks, *result.checks)))
    return dataclasses.replace(result, detail=f"{name}; {_checked(full)}", checks=checks)


def twin_of(
    description: Description, case: Case, emitted: Sequence[Part]
) -> tuple[Reshard, tuple[Part, ...]] | None:
    """Return the smallest twin whose modules have the forms of those emitted, else the smallest."""
    smallest = None
    for small in twins(description.reshard(), case.source, case.target):
        shrunk = dataclasses.replace(description, shape=small.shape)
        found = small, emitted_now(shrunk, case.backend, emitted)
        if _same_forms(found[1], emitted):
            return found
        smallest = smallest or found
    return smallest


def _same_forms(some: Sequence[Part], others: Sequence[Part]) -> bool:
    return [form(part.text) for part in some] == [form(part.text) for part in others]


def _not_run(full: Report, why: str) -> Report:
    detail = f"not run: {why}; {_checked(full)}"
    return dataclasses.replace(full, verdict="skipped", detail=detail)


def _checked(full: Report) -> str:
    return f"at full size: {', '.join(full.checks)}"


def _full_size(part: Part, case: Case, runner: Runner) -> Report:
    """Return constants, index functions and transfers of a module; its text against what is
    emitted."""
    transfers: tuple[Transfer, ...] = ()
    if isinstance(part.plan, DirectPlan) and len(case.devices()) <= MAX_ENUMERATED:
        enumerated = part.plan.transfers()
        fault = disagreement(
            enumerated, case.source, case.target, case.shape, transposed=case.transposed
        )
        if fault:
            return failure(case, f"plan: {fault}")
        transfers = as_rows(enumerated)
    inspected = dataclasses.replace(case, execute=False, derivative=False, transfers=transfers)
    result = runner.run(inspected)
    if result.verdict != "ok":
        return result
    if case.module.read_text(encoding="utf-8") != part.text:
        return failure(case, "not what would be emitted now: `shardwright check` says how")
    return dataclasses.replace(result, checks=(*result.checks, "text"))


def _twin_cases(
    case: Case, small: Description, emitted: Sequence[Part], folder: Path
) -> tuple[Case, ...]:
    """Return the cases of a twin, whose modules are written into the folder."""
    home = folder / case.backend / case.name
    home.mkdir(parents=True, exist_ok=True)
    write_support(folder / case.backend, small.supported)
    for part in emitted:
        (home / part.file).write_text(part.text, encoding="utf-8")
    return _cases(small, home / case.module.name)


def emitted_now(
    description: Description, backend: str, like: Sequence[Part] = ()
) -> tuple[Part, ...]:
    """Return a backend's modules as they would be emitted now; `like`: in the form of these,
    where the backend has several and chooses by size."""
    plan, command = emit_described(description).plan, description.command()
    return parts(
        plan,
        backend,
        command,
        tuple(like),
        gradient=description.gradient,
        single_file=description.single_file,
        collective_id=bundle_id(description),
    )


def support_fault(description: Operation, root: Path) -> str:
    """Return what is wrong with the support modules of a bundle below a root, if anything."""
    return read_manifest(root).support.fault(root) if description.supported else ""


def write_support(root: Path, backends: Sequence[str], *, grouped: bool = False) -> None:
    """Write the support modules of these backends below a root; those of matmuls
    among them; `grouped`: those of groups too."""
    home = root / SUPPORT
    for name, text in support_files(backends, grouped=grouped, multiplied=True).items():
        home.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text, encoding="utf-8")
