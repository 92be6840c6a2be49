"""Verify a group's module: run it or, if its tensors are too large, run it with smaller twins."""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from shardwright.codegen.checks.case import MAX_DEVICES, Case, GroupCase
from shardwright.codegen.checks.report import Report
from shardwright.codegen.operations.emit.choice import planned
from shardwright.codegen.operations.emit.group import group_files
from shardwright.codegen.operations.verify.pool import Runner, failure
from shardwright.codegen.operations.verify.single import (
    emitted_now,
    no_twin,
    on,
    proof,
    twins_of,
    write_support,
)
from shardwright.codegen.operations.verify.twin import is_too_large
from shardwright.codegen.spec.description import Description
from shardwright.codegen.spec.group import Group
from shardwright.codegen.spec.manifest import read_manifest
from shardwright.ir.errors import InputError
from shardwright.ir.reshard import Reshard

MOST_MEMBERS, OF_A_KIND = 32, 3
"""In a group of more than MOST_MEMBERS members, only OF_A_KIND members of each kind are run."""


def report_group(
    group: Group,
    descriptions: Sequence[Description],
    root: Path,
    backend: str,
    runner: Runner,
    folder: Path,
) -> Report:
    """Return the verdict on a backend's group module in `root`. Modules of twins may be written
    into `folder`."""
    reshards = {each.name: each.reshard() for each in descriptions}
    listed = read_manifest(root)
    case = _case(group, reshards, backend, root, listed.modules())
    fault = listed.support.fault(root)
    if fault:
        return failure(case, fault)
    too_many = len(case.devices()) > MAX_DEVICES
    if not too_many and not any(is_too_large(each.shape) for each in reshards.values()):
        return runner.run(case)
    start = time.perf_counter()
    try:
        result = _not_as_it_is(group, descriptions, case, runner, folder / case.backend)
    except InputError as error:
        result = failure(case, f"would not be emitted now: {str(error).splitlines()[0]}")
    return dataclasses.replace(result, seconds=time.perf_counter() - start)


def _case(
    group: Group,
    reshards: Mapping[str, Reshard],
    backend: str,
    root: Path,
    folders: Mapping[str, str],
) -> GroupCase:
    members = tuple(
        Case.of(reshard, name, backend, root / folders[name] / f"{backend}.py")
        for name, reshard in reshards.items()
    )
    return GroupCase(group.name, backend, root / group.name / f"{backend}.py", members)


def _not_as_it_is(
    group: Group, descriptions: Sequence[Description], case: GroupCase, runner: Runner, root: Path
) -> Report:
    """Report on a group that is too large to run: check the module's text and transfers at full
    size, and run the module of a group of twins."""
    backend, folders = case.backend, {each.name: each.module.parent.name for each in case.members}
    # Members that share a bundle are equal, and so are their twins.
    kinds = {folders[each.name]: each for each in descriptions}
    text = _text(group, kinds, backend, folders)
    if not case.module.is_file() or case.module.read_text(encoding="utf-8") != text:
        return failure(case, "differs from a new emission: see `shardwright check`")
    full = runner.run(dataclasses.replace(case, execute=False))
    if full.verdict != "ok":
        return full
    checked = f"at full size: text; {proof(full, f'{len(case.members)} tensors, ')}"
    emitted = [emitted_now(description, backend) for description in kinds.values()]
    found = twins_of(list(kinds.values()), backend, emitted)
    if found is None:
        detail = f"not run: {no_twin(case)}; {checked}"
        return dataclasses.replace(full, verdict="skipped", detail=detail)
    twins = dict(zip(kinds, found, strict=True))
    for folder, (_, modules) in twins.items():
        _write(root / folder, {part.file: part.text for part in modules})
    write_support(root, [backend], case.module.parent.parent, grouped=True)
    few = dataclasses.replace(group, members=_few(group.members, folders))
    shrunk = {folder: on(each, twins[folder][0]) for folder, each in kinds.items()}
    _write(root / group.name, {case.module.name: _text(few, shrunk, backend, folders)})
    small = {name: twins[folders[name]][0] for name in few.members}
    run = _case(few, small, backend, root, folders)
    result = runner.run(run)
    return dataclasses.replace(
        result,
        devices=full.devices,
        detail="; ".join(filter(None, (result.detail, _said(run, case), checked))),
        checks=tuple(dict.fromkeys((*full.checks, *result.checks))),
    )


def _few(members: Sequence[str], folders: Mapping[str, str]) -> tuple[str, ...]:
    """Return the members to run: all of them or, in a large group, OF_A_KIND of each kind. Members
    of a kind share a folder and are equal."""
    if len(members) <= MOST_MEMBERS:
        return tuple(members)
    taken: Counter[str] = Counter()
    few = []
    for name in members:
        taken[folders[name]] += 1
        if taken[folders[name]] <= OF_A_KIND:
            few.append(name)
    return tuple(few)


def _said(run: GroupCase, case: GroupCase) -> str:
    some = "its" if len(run.members) == len(case.members) else f"{len(run.members)} of its"
    fewer = len(run.devices()) < len(case.devices())
    return f"twins of {some} tensors" + f" on {len(run.devices())} devices" * fewer


def _text(
    group: Group, kinds: Mapping[str, Description], backend: str, folders: Mapping[str, str]
) -> str:
    made = {folder: planned(each) for folder, each in kinds.items()}
    plans = {name: made[folder] for name, folder in folders.items()}
    return group_files(group, plans, (backend,), folders)[f"{backend}.py"]


def _write(folder: Path, files: dict[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
