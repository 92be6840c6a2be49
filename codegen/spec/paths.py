"""Resolve paths of bundles on disk: a root, a bundle below it, or a group."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from shardwright.codegen.spec.group import Group
from shardwright.codegen.spec.manifest import FILE, PLAN, read_manifest
from shardwright.codegen.spec.matmul import Operation
from shardwright.ir.errors import InputError


def located(path: str | Path) -> tuple[Path, tuple[str, ...]]:
    """Return the root folder of a path, and the bundles that it denotes: all bundles of a root,
    one bundle, or the members of a group. Raise InputError if there are none."""
    folder = Path(os.path.abspath(path))
    if (folder / FILE).is_file():
        return folder, read_manifest(folder).names()
    beside = read_manifest(folder.parent)
    entry = beside.entry(folder.name)
    if entry is not None:
        return folder.parent, (entry.description.name,)
    for group in beside.groups:
        if group.group.name == folder.name:
            members = beside.members(group.group)
            return folder.parent, tuple(beside.modules()[each.name] for each in members)
    _refuse_without_manifest(folder, str(path))
    raise InputError(
        "holds no bundles" if folder.is_dir() else "no such folder",
        argument=str(path),
        expected=f"a folder with a {FILE} that `shardwright emit` wrote, or one bundle in it",
    )


def _refuse_without_manifest(folder: Path, path: str) -> None:
    root = folder.parent if (folder / PLAN).is_file() else folder
    bundles = sorted(plan.parent.name for plan in root.glob(f"*/{PLAN}"))
    if bundles and not (root / FILE).is_file():
        raise InputError(
            f"{FILE} is missing",
            argument=path,
            got=f"no {root / FILE} next to {', '.join(bundles)}",
            expected="this file; run `shardwright emit` on the same reshards to write it again",
        )


def described(paths: Iterable[str | Path]) -> dict[tuple[Path, str], Operation]:
    """Return the descriptions of the bundles at these paths by root and name, without duplicates.

    Raises the InputErrors of `located`.
    """
    found: dict[tuple[Path, str], Operation] = {}
    for path in paths:
        root, names = located(path)
        manifest = read_manifest(root)
        for name in names:
            entry = manifest.entry(name)
            assert entry is not None  # `located` read the names from the manifest
            found[root, name] = entry.description
    return found


def grouped(paths: Iterable[str | Path]) -> dict[tuple[Path, str], Group]:
    """Return the groups at these paths by root and name, without duplicates. Raises the
    InputErrors of `located`."""
    found: dict[tuple[Path, str], Group] = {}
    for path in paths:
        folder, (root, _) = Path(os.path.abspath(path)), located(path)
        for entry in read_manifest(root).groups:
            if folder in (root, root / entry.group.name):
                found[root, entry.group.name] = entry.group
    return found
