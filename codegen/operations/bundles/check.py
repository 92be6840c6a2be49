"""Check that files on disk equal a new emission."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from shardwright.codegen.operations.answers import Within
from shardwright.codegen.operations.emit.owner import owner_of, owner_path
from shardwright.codegen.operations.emit.package import PACKAGE_FILE, package_text
from shardwright.codegen.operations.kinds import answers_of
from shardwright.codegen.spec import manifest
from shardwright.codegen.spec.config import Config, read_config
from shardwright.codegen.spec.group import Group
from shardwright.codegen.spec.manifest import (
    SUPPORT,
    Entry,
    GroupEntry,
    Manifest,
    listing,
    read_manifest,
    sha256,
    support_kinds,
    supported,
)
from shardwright.codegen.spec.matmul import Operation
from shardwright.codegen.spec.paths import located
from shardwright.codegen.text.support import support_files
from shardwright.ir.errors import InputError

# For longer texts, show only the first difference: a diff takes quadratic time.
DIFFED_CHARACTERS = 1_000_000

Progress = Callable[[int, int], None]
"""Called with the number of bundles checked so far, and the number of all bundles."""


@dataclass(frozen=True)
class Problem:
    """A file or folder that differs from a new emission; `path` is relative to the root."""

    path: str
    rule: str
    diff: str = ""

    def __str__(self) -> str:
        return f"{self.path}: {self.rule}" + (f"\n{self.diff}" if self.diff else "")


def check(path: str | Path, progress: Progress | None = None) -> tuple[Problem, ...]:
    """Return the problems of a root or of one bundle in it. Return none if all files are up to
    date.

    The expected contents come from the config that the manifest names, or else from the manifest.
    Raises InputError if the path has no bundles, and for a faulty config."""
    root, names = located(path)
    listed, folder = read_manifest(root), Path(os.path.abspath(path))
    asked = None if root == folder else (folder.name, *names)
    owner = owner_path(root, listed)
    if owner is None:
        return check_config(listing(root / manifest.FILE), root, asked, progress)
    if owner.is_file():
        return check_config(read_config(owner), root, asked, progress)
    said = check_config(listing(root / manifest.FILE), root, asked, progress)
    return Problem(manifest.FILE, f"the config {listed.config} does not exist"), *said


def check_config(
    config: Config,
    root: Path,
    names: Iterable[str] | None = None,
    progress: Progress | None = None,
) -> tuple[Problem, ...]:
    """Return the problems of a config's folder: how its manifest and files differ from the config.
    `names`: the bundles and groups to check, by default all."""
    listed = read_manifest(root)
    pairs = _pairs(config, listed, names)
    problems: list[Problem] = []
    within = Within(config)
    for done, (name, said, entry) in enumerate(pairs):
        if progress is not None:
            progress(done, len(pairs))
        problems += _problems(root, within, name, said, entry)
    if progress is not None:
        progress(len(pairs), len(pairs))
    kept = () if names is None else tuple(entry.what for entry in listed.entries)
    grouped = bool(config.groups or (names is not None and listed.groups))
    operations = (*kept, *config.operations)
    backends = supported(operations, grouped=grouped)
    support = support_files(backends, **support_kinds(operations, grouped=grouped))
    problems += _folder_problems(root, SUPPORT, support, listed.support.hashes)
    if names is None:
        text, recorded = package_text(config.modules()), dict(listed.package)
        problems += _file_problems(root, PACKAGE_FILE, text, recorded.get(PACKAGE_FILE))
        problems += _root_problems(root, config, listed)
    return tuple(problems)


def _pairs(
    config: Config, listed: Manifest, names: Iterable[str] | None
) -> list[tuple[str, FolderSaid | None, Entry | GroupEntry | None]]:
    """Return the name of each selected folder, the operation that the config describes there, and
    its manifest entry. The last two are None if they are missing."""
    said: dict[str, FolderSaid] = {}
    for each in config.operations:
        folder = config.folder(each.name)
        also = () if folder not in said else (*said[folder].also, each.name)
        said[folder] = FolderSaid(said[folder].what if folder in said else each, also)
    said |= {group.name: FolderSaid(group) for group in config.groups}
    entries: dict[str, Entry | GroupEntry] = {each.what.name: each for each in listed.entries}
    entries |= {each.what.name: each for each in listed.groups}
    wanted = said.keys() | entries.keys() if names is None else set(map(config.folder, names))
    return [(name, said.get(name), entries.get(name)) for name in sorted(wanted)]


@dataclass(frozen=True)
class FolderSaid:
    """The operation or group for which a folder is emitted, and the folder's other names."""

    what: Operation | Group
    also: tuple[str, ...] = ()

    def lines(self) -> tuple[str, ...]:
        """Return the description as TOML, then the other names."""
        return (*self.what.lines(), *(f'also = "{name}"' for name in sorted(self.also)))


def _problems(
    root: Path, within: Within, name: str, said: FolderSaid | None, entry: Entry | GroupEntry | None
) -> Iterator[Problem]:
    config = within.config
    after = () if said is None else said.lines()
    before = () if entry is None else _listed(entry).lines()
    diff = _diff(name, before, after, (manifest.FILE, str(config.path)))
    if said is None:
        yield Problem(name, f"an orphan: {config.path} has no table with this name", diff)
        return
    if entry is None:
        yield Problem(name, "not emitted", diff)
        return
    if before != after:
        yield Problem(name, "emitted from a different description", diff)
    try:
        now = answers_of(said.what).now(said.what, within, root / name)
    except InputError as error:
        yield Problem(name, f"would not be emitted now: {error}")
        return
    for rule, changes in now.found:
        yield Problem(name, rule, changes)
    if now.refused is not None:
        yield Problem(name, f"would not be emitted now: {now.refused}")
        return
    yield from _folder_problems(root, name, now.files, entry.hashes)


def _listed(entry: Entry | GroupEntry) -> FolderSaid:
    return FolderSaid(entry.what, entry.also)


def _folder_problems(
    root: Path, name: str, emitted: Mapping[str, str], recorded: Iterable[tuple[str, str]]
) -> Iterator[Problem]:
    hashes = dict(recorded)
    for file in sorted({*emitted, *hashes}):
        yield from _file_problems(root, f"{name}/{file}", emitted.get(file), hashes.get(file))
    folder = root / name
    for stray in sorted(p.name for p in folder.iterdir()) if folder.is_dir() else ():
        if stray not in emitted and stray not in hashes and not _ignored(stray):
            yield Problem(f"{name}/{stray}", "no emission writes this file")


def _file_problems(
    root: Path, path: str, emitted: str | None, recorded: str | None
) -> Iterator[Problem]:
    """Yield the problems of a file. `emitted`: the text that it should have; `recorded`: its hash
    in the manifest. Each is None if there is none."""
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
        yield Problem(path, rule, _text_diff(path, found, emitted))
    elif recorded != expected:
        rule = f"{manifest.FILE} has a different hash for this file"
        yield Problem(path, rule, f"-{recorded}\n+{expected}")


def _root_problems(root: Path, config: Config, listed: Manifest) -> Iterator[Problem]:
    if config.root is not None and listed.config != owner_of(root, config):
        said = "no config" if listed.config is None else listed.config
        yield Problem(manifest.FILE, f"names {said}, but {config.path} describes the folder")
    if not root.is_dir():
        return
    for folder in sorted(path for path in root.iterdir() if path.is_dir()):
        known = folder.name in (SUPPORT, *listed.folders())
        if not known and not _ignored(folder.name):
            said = f"an orphan: {manifest.FILE} does not list it, remove or move the folder"
            yield Problem(folder.name, said)


def _ignored(name: str) -> bool:
    return name.startswith(".") or name == "__pycache__"


def _text_diff(path: str, found: str, emitted: str) -> str:
    before, after = found.split("\n"), emitted.split("\n")
    if len(found) + len(emitted) > DIFFED_CHARACTERS:
        return _first_difference(before, after)
    return _diff(path, before, after, ("on disk", "emitted"))


def _diff(name: str, before: Sequence[str], after: Sequence[str], sides: tuple[str, str]) -> str:
    old, new = (f"{name} ({side})" for side in sides)
    lines = difflib.unified_diff(before, after, old, new, n=2)
    # the head lines end with a newline, the others do not
    return "\n".join(line.rstrip("\n") for line in lines)


def _first_difference(before: list[str], after: list[str]) -> str:
    pairs = enumerate(zip(before, after, strict=False), 1)
    line = next((n for n, (a, b) in pairs if a != b), min(len(before), len(after)) + 1)
    shown = [
        f"{sign}{text[line - 1]}"
        for sign, text in (("-", before), ("+", after))
        if line <= len(text)
    ]
    return "\n".join([f"@@ line {line}, the first that differs @@", *shown])
