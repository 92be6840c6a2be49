"""One module of one bundle: run as it is, or, if its tensor is too large, on a smaller twin."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

from shardwright.codegen.backends import BACKENDS
from shardwright.codegen.bundle import Bundle, emit_described
from shardwright.codegen.describe import Description
from shardwright.codegen.verify.agreement import as_rows, disagreement
from shardwright.codegen.verify.case import MAX_DEVICES, Case, Transfer
from shardwright.codegen.verify.pool import Runner, failure
from shardwright.codegen.verify.report import Report
from shardwright.codegen.verify.twin import form, is_too_large, twins
from shardwright.ir.errors import InputError
from shardwright.ir.reshard import Reshard

MAX_ENUMERATED = 512
"""Plans of more devices are not enumerated to compare the module's transfers with them."""


def report(description: Description, module: Path, runner: Runner, folder: Path) -> Report:
    """The verdict on a module; `folder` is where the module of a twin may be written."""
    case = Case.of(description.reshard(), description.name, module.stem, module)
    if not is_too_large(case.shape) and len(case.devices()) <= MAX_DEVICES:
        return runner.run(case)
    start = time.perf_counter()
    result = _not_as_it_is(description, case, runner, folder)
    return dataclasses.replace(result, seconds=time.perf_counter() - start)


def _not_as_it_is(description: Description, case: Case, runner: Runner, folder: Path) -> Report:
    """The module at full size without moving anything, then its twin's module in full."""
    try:
        bundle = emit_described(description)
    except InputError as error:
        return failure(case, f"would not be emitted now: {str(error).splitlines()[0]}")
    text = _text(bundle, description, case.backend)
    full = _full_size(bundle, case, runner, text)
    if full.verdict != "ok":
        return full
    if len(case.devices()) > MAX_DEVICES:
        return _not_run(full, f"more than {MAX_DEVICES} devices")
    found = _twin(description, case, bundle, text)
    if found is None:
        return _not_run(full, "its smallest twin is too large too")
    result = runner.run(_twin_case(case, *found, folder))
    name = f"twin {'x'.join(map(str, found[0].shape))}"
    if form(found[1]) != form(text):
        name += " of another form"
    if result.verdict != "ok":
        return dataclasses.replace(result, detail=f"{name}: {result.detail}")
    checks = tuple(dict.fromkeys((*full.checks, *result.checks)))
    return dataclasses.replace(result, detail=f"{name}; {_checked(full)}", checks=checks)


def _twin(
    description: Description, case: Case, bundle: Bundle, text: str
) -> tuple[Reshard, str] | None:
    """The smallest twin whose module has the form of `text`, else the smallest, with its module."""
    smallest = None
    for small in twins(description.reshard(), case.source, case.target):
        shrunk = dataclasses.replace(description, shape=small.shape)
        found = small, _text(emit_described(shrunk), shrunk, case.backend, bundle)
        if form(found[1]) == form(text):
            return found
        smallest = smallest or found
    return smallest


def _not_run(full: Report, why: str) -> Report:
    detail = f"not run: {why}; {_checked(full)}"
    return dataclasses.replace(full, verdict="skipped", detail=detail)


def _checked(full: Report) -> str:
    return f"at full size: {', '.join(full.checks)}"


def _full_size(bundle: Bundle, case: Case, runner: Runner, text: str) -> Report:
    """Constants, index functions and transfers of the module, and its text against `text`."""
    transfers: tuple[Transfer, ...] = ()
    if len(case.devices()) <= MAX_ENUMERATED:
        enumerated = bundle.plan.transfers()
        fault = disagreement(enumerated, case.source, case.target, case.shape)
        if fault:
            return failure(case, f"plan: {fault}")
        transfers = as_rows(enumerated)
    result = runner.run(dataclasses.replace(case, execute=False, transfers=transfers))
    if result.verdict != "ok":
        return result
    if case.module.read_text(encoding="utf-8") != text:
        return failure(case, "not what would be emitted now: `shardwright check` says how")
    return dataclasses.replace(result, checks=(*result.checks, "text"))


def _twin_case(case: Case, small: Reshard, text: str, folder: Path) -> Case:
    """The case of a twin, whose module is written into the folder."""
    home = folder / case.backend / case.name
    home.mkdir(parents=True, exist_ok=True)
    module = home / case.module.name
    module.write_text(text, encoding="utf-8")
    return Case.of(small, case.name, case.backend, module)


def _text(
    bundle: Bundle, description: Description, backend: str, like: Bundle | None = None
) -> str:
    """The text of a module as it would be emitted now; `like`: in the form of this one's, where
    the backend has several and chooses by size."""
    module, command = BACKENDS[backend], description.command()
    text: str
    if like is not None and hasattr(module, "render_like"):
        text = module.render_like(bundle.plan, command, like.plan)
    else:
        text = module.render(bundle.plan, command)
    return text
