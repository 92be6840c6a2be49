"""The module of a group: run as it is, or, if its tensors are too large, with twins of them."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from shardwright.codegen.backends import registry
from shardwright.codegen.emit.emit import emit_described
from shardwright.codegen.planner import plan
from shardwright.codegen.spec.description import Description
from shardwright.codegen.spec.group import Group
from shardwright.codegen.spec.manifest import read_manifest
from shardwright.codegen.verify.case import MAX_DEVICES, Case, GroupCase
from shardwright.codegen.verify.pool import Runner, failure
from shardwright.codegen.verify.report import Report
from shardwright.codegen.verify.single import emitted_now, twin_of, write_support
from shardwright.codegen.verify.twin import is_too_large
from shardwright.ir.errors import InputError
from shardwright.ir.reshard import Reshard


def report_group(
    group: Group, descriptions: Sequence[Description], root: Path, runner: Runner, folder: Path
) -> Report:
    """Return the verdict on the module of a group in `root`; twins may be written into `folder`."""
    reshards = {each.name: each.reshard() for each in descriptions}
    listed = read_manifest(root)
    case, fault = _case(group, reshards, root, listed.modules()), listed.support.fault(root)
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
    group: Group, reshards: dict[str, Reshard], root: Path, folders: Mapping[str, str]
) -> GroupCase:
    """Return what is to be run below a root; `folders`: those of members by name."""
    backend = registry.grouping().name
    members = tuple(
        Case.of(reshard, name, backend, root / folders[name] / f"{backend}.py")
        for name, reshard in reshards.items()
    )
    return GroupCase(group.name, backend, root / group.name / f"{backend}.py", members)


def _not_as_it_is(
    group: Group, descriptions: Sequence[Description], case: GroupCase, runner: Runner, root: Path
) -> Report:
    """Return the report on the text at full size, then on the module of a group of twins."""
    plans = {each.name: emit_described(each).plan for each in descriptions}
    folders = {each.name: each.module.parent.name for each in case.members}
    text = registry.grouping().group_files(group, plans, folders)[case.module.name]
    if not case.module.is_file() or case.module.read_text(encoding="utf-8") != text:
        return failure(case, "not what would be emitted now: `shardwright check` says how")
    if len(case.devices()) > MAX_DEVICES:
        said = f"not run: more than {MAX_DEVICES} devices; at full size: text"
        return dataclasses.replace(failure(case, said), verdict="skipped")
    twins = {}
    for description, member in zip(descriptions, case.members, strict=True):
        found = twin_of(description, member, emitted_now(description, case.backend))
        if found is None:
            said = f"not run: the smallest twin of {member.name} is too large too"
            return dataclasses.replace(failure(case, said), verdict="skipped")
        twins[member.name], parts = found
        _write(root / member.name, {part.file: part.text for part in parts})
    plans = {name: plan(each) for name, each in twins.items()}
    write_support(root, [case.backend])
    _write(root / group.name, registry.grouping().group_files(group, plans))
    result = runner.run(_case(group, twins, root, {name: name for name in twins}))
    detail = f"{result.detail}; twins of its tensors; at full size: text".removeprefix("; ")
    return dataclasses.replace(result, detail=detail)


def _write(folder: Path, files: dict[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
