"""The module of a group: run as it is, or, if its tensors are too large, with twins of them."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from shardwright.codegen.emit.choice import planned
from shardwright.codegen.emit.group import group_files
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
    group: Group,
    descriptions: Sequence[Description],
    root: Path,
    backend: str,
    runner: Runner,
    folder: Path,
) -> Report:
    """Return the verdict on a backend's module of a group in `root`; twins may be written into
    `folder`."""
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
    """Return what is to be run below a root; `folders`: those of members by name."""
    members = tuple(
        Case.of(reshard, name, backend, root / folders[name] / f"{backend}.py")
        for name, reshard in reshards.items()
    )
    return GroupCase(group.name, backend, root / group.name / f"{backend}.py", members)


def _not_as_it_is(
    group: Group, descriptions: Sequence[Description], case: GroupCase, runner: Runner, root: Path
) -> Report:
    """Return the report on the text at full size, then on the module of a group of twins."""
    backend, folders = case.backend, {each.name: each.module.parent.name for each in case.members}
    # Members that share a bundle are alike, and so are their twins.
    kinds = {folders[each.name]: each for each in descriptions}
    made = {folder: planned(each) for folder, each in kinds.items()}
    plans = {name: made[folder] for name, folder in folders.items()}
    text = group_files(group, plans, (backend,), folders)[case.module.name]
    if not case.module.is_file() or case.module.read_text(encoding="utf-8") != text:
        return failure(case, "not what would be emitted now: `shardwright check` says how")
    if len(case.devices()) > MAX_DEVICES:
        said = f"not run: more than {MAX_DEVICES} devices; at full size: text"
        return dataclasses.replace(failure(case, said), verdict="skipped")
    members, twins = {each.name: each for each in case.members}, {}
    for folder, description in kinds.items():
        member = members[description.name]
        found = twin_of(description, member, emitted_now(description, backend))
        if found is None:
            said = f"not run: the smallest twin of {member.name} is too large too"
            return dataclasses.replace(failure(case, said), verdict="skipped")
        twins[folder], parts = found
        _write(root / folder, {part.file: part.text for part in parts})
    write_support(root, [backend], grouped=True)
    small = {name: twins[folder] for name, folder in folders.items()}
    shrunk = {f: dataclasses.replace(each, shape=twins[f].shape) for f, each in kinds.items()}
    made = {folder: planned(each) for folder, each in shrunk.items()}
    plans = {name: made[folder] for name, folder in folders.items()}
    _write(root / group.name, group_files(group, plans, (backend,), folders))
    result = runner.run(_case(group, small, backend, root, folders))
    detail = f"{result.detail}; twins of its tensors; at full size: text".removeprefix("; ")
    return dataclasses.replace(result, detail=detail)


def _write(folder: Path, files: dict[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
