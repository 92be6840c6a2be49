"""Check: is what is on disk what would be emitted now?"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from shardwright.codegen.backends import registry
from shardwright.codegen.emit.emit import emit_described
from shardwright.codegen.emit.support import support_files
from shardwright.codegen.spec import manifest
from shardwright.codegen.spec.manifest import (
    SUPPORT,
    Entry,
    GroupEntry,
    Manifest,
    located,
    read_manifest,
    sha256,
)
from shardwright.ir.errors import InputError

# Above this many characters only the first differing line is shown: a diff takes quadratic time.
DIFFED_CHARACTERS = 1_000_000

Progress = Callable[[int, int], None]
"""Called as progress(done, total) of bundles."""


@dataclass(frozen=True)
class Problem:
    """One file or folder that is not as it would be emitted; `path` is relative to the root."""

    path: str
    rule: str
    diff: str = ""

    def __str__(self) -> str:
        return f"{self.path}: {self.rule}" + (f"\n{self.diff}" if self.diff else "")


def check(path: str | Path, progress: Progress | None = None) -> tuple[Problem, ...]:
    """Return the problems of a root, or of one bundle in it; none where everything is up to date.

    Raises InputError where the path holds no bundles.
    """
    root, names = located(path)
    listed = read_manifest(root)
    problems: list[Problem] = []
    for done, name in enumerate(names):
        if progress is not None:
            progress(done, len(names))
        entry = listed.entry(name)
        if entry is not None:
            problems += _bundle_problems(root, entry)
    if progress is not None:
        progress(len(names), len(names))
    folder = Path(os.path.abspath(path))
    for group in listed.groups:
        if folder in (root, root / group.group.name):
            problems += _group_problems(root, group, listed)
    emitted = support_files(listed.supported())
    problems += _folder_problems(root, SUPPORT, emitted, dict(listed.support.hashes))
    if root == folder:
        problems += _root_problems(root, listed)
    return tuple(problems)


def _bundle_problems(root: Path, entry: Entry) -> Iterator[Problem]:
    name = entry.description.name
    try:
        emitted = emit_described(entry.description).files(name)
    except InputError as error:
        rule = f"would not be emitted now: {error}"
        yield Problem(name, rule)
        return
    yield from _folder_problems(root, name, emitted, dict(entry.hashes))


def _group_problems(root: Path, entry: GroupEntry, listed: Manifest) -> Iterator[Problem]:
    name, plans = entry.group.name, {}
    for member in entry.group.members:
        bundle = listed.entry(member)
        if bundle is None:
            yield Problem(name, f"{manifest.FILE} lists no bundle of its member {member}")
            return
        try:
            plans[member] = emit_described(bundle.description).plan
        except InputError:
            return  # which the member's own problem says
    try:
        emitted = registry.grouping().group_files(entry.group, plans)
    except InputError as error:
        yield Problem(name, f"would not be emitted now: {error}")
        return
    yield from _folder_problems(root, name, emitted, dict(entry.hashes))


def _folder_problems(
    root: Path, name: str, emitted: Mapping[str, str], hashes: Mapping[str, str]
) -> Iterator[Problem]:
    for file in sorted({*emitted, *hashes}):
        yield from _file_problems(root, f"{name}/{file}", emitted.get(file), hashes.get(file))
    folder = root / name
    for stray in sorted(p.name for p in folder.iterdir()) if folder.is_dir() else ():
        if stray not in emitted and stray not in hashes and not _ignored(stray):
            yield Problem(f"{name}/{stray}", "no emission writes this file")


def _file_problems(
    root: Path, path: str, emitted: str | None, recorded: str | None
) -> Iterator[Problem]:
    """Yield what is wrong with a file: its text should be `emitted`, its hash was `recorded`."""
    if emitted is None:
        yield Problem(path, f"{manifest.FILE} lists a file that would not be emitted now")
        return
    try:
        found = (root / path).read_bytes().decode(errors="replace")
    except OSError:
        yield Problem(path, "missing")
        return
    expected = sha256(emitted)
    if found != emitted:
        edited = sha256(found) != recorded
        rule = "edited by hand" if edited else "would be emitted differently now"
        yield Problem(path, rule, _diff(path, found, emitted))
    elif recorded != expected:
        rule = f"{manifest.FILE} has another hash of this file"
        yield Problem(path, rule, f"-{recorded}\n+{expected}")


def _root_problems(root: Path, listed: Manifest) -> Iterator[Problem]:
    for folder in sorted(path for path in root.iterdir() if path.is_dir()):
        known = folder.name in (SUPPORT, *listed.folders())
        if not known and not _ignored(folder.name):
            yield Problem(folder.name, f"an orphan: {manifest.FILE} lists no bundle of this name")


def _ignored(name: str) -> bool:
    return name.startswith(".") or name == "__pycache__"


def _diff(path: str, found: str, emitted: str) -> str:
    before, after = found.split("\n"), emitted.split("\n")
    if len(found) + len(emitted) > DIFFED_CHARACTERS:
        return _first_difference(before, after)
    lines = difflib.unified_diff(before, after, f"{path} (on disk)", f"{path} (emitted)", n=2)
    return "\n".join(line.rstrip("\n") for line in lines)  # the heads end in one, the rest do not


def _first_difference(before: list[str], after: list[str]) -> str:
    pairs = enumerate(zip(before, after, strict=False), 1)
    line = next((n for n, (a, b) in pairs if a != b), min(len(before), len(after)) + 1)
    shown = [
        f"{sign}{text[line - 1]}"
        for sign, text in (("-", before), ("+", after))
        if line <= len(text)
    ]
    return "\n".join([f"@@ line {line}, the first that differs @@", *shown])
