"""Read and write the manifest of a folder of bundles: the description of each bundle, and a hash of
each file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from shardwright.codegen.spec.config import KINDS, Config
from shardwright.codegen.spec.description import Description
from shardwright.codegen.spec.group import Group, read_group
from shardwright.codegen.spec.matmul import Operation, describe_operation
from shardwright.codegen.spec.toml_tables import read_text
from shardwright.ir.errors import InputError

FILE = "manifest.json"
PLAN = "plan.json"
"""A file that every bundle has."""
SUPPORT = "_support"
"""The folder of support modules, next to the folders of bundles."""
VERSION = 1


@dataclass(frozen=True)
class Entry:
    """A bundle's description, the sha256 of each of its files by name, and its aliases."""

    description: Operation
    hashes: tuple[tuple[str, str], ...]
    also: tuple[str, ...] = ()

    @property
    def what(self) -> Operation:
        """The operation of the bundle."""
        return self.description

    @property
    def names(self) -> tuple[str, ...]:
        """All names of the bundle; the first is the name of its folder."""
        return (self.description.name, *self.also)

    @staticmethod
    def of(description: Operation, files: Mapping[str, str], also: Iterable[str] = ()) -> Entry:
        """Return the entry of a bundle; `files` has the text of each file by name."""
        hashes = tuple((name, sha256(files[name])) for name in sorted(files))
        return Entry(description, hashes, tuple(sorted(also)))


@dataclass(frozen=True)
class GroupEntry:
    """A group's members, and the sha256 of each of its files by name. `also` is empty: a group has
    only one name."""

    group: Group
    hashes: tuple[tuple[str, str], ...]
    also: tuple[str, ...] = ()

    @property
    def what(self) -> Group:
        """The group that the entry describes."""
        return self.group

    @staticmethod
    def of(group: Group, files: Mapping[str, str]) -> GroupEntry:
        """Return the entry of a group; `files` has the text of each file by name."""
        return GroupEntry(group, tuple((name, sha256(files[name])) for name in sorted(files)))


@dataclass(frozen=True)
class SupportEntry:
    """The support modules: the version for each backend, and the sha256 of each file."""

    versions: tuple[tuple[str, str], ...] = ()
    hashes: tuple[tuple[str, str], ...] = ()

    @staticmethod
    def of(versions: Mapping[str, str], files: Mapping[str, str]) -> SupportEntry:
        """Return the entry of support modules; `files` has the text of each file by name."""
        hashes = tuple((name, sha256(files[name])) for name in sorted(files))
        return SupportEntry(tuple(sorted(versions.items())), hashes)

    def fault(self, root: Path) -> str:
        """Describe the first mismatch between the entry and the files in folder `root`; "" if
        there is none."""
        for name, recorded in self.hashes:
            path = root / SUPPORT / name
            if not path.is_file():
                return f"{SUPPORT}/{name} is missing: `shardwright emit` writes it again"
            if sha256(path.read_bytes().decode(errors="replace")) != recorded:
                return f"{SUPPORT}/{name} was edited by hand: `shardwright check` says how"
        return ""


@dataclass(frozen=True)
class Manifest:
    """The bundles of a folder and their groups, both sorted by name, and the support modules.

    `config`: the path of the config relative to the folder; None if flags described the bundles.
    `package`: the hashes of the files directly in the folder.
    """

    entries: tuple[Entry, ...] = ()
    groups: tuple[GroupEntry, ...] = ()
    support: SupportEntry = SupportEntry()
    config: str | None = None
    package: tuple[tuple[str, str], ...] = ()

    def supported(self) -> tuple[str, ...]:
        """Return the backends whose support modules the bundles or groups import."""
        descriptions = (entry.description for entry in self.entries)
        return supported(descriptions, grouped=bool(self.groups))

    def support_kinds(self) -> dict[str, bool]:
        """Return, for each kind of support module, whether the folder needs it, as the function
        `support_kinds` does."""
        descriptions = (entry.description for entry in self.entries)
        return support_kinds(descriptions, grouped=bool(self.groups))

    def hashes(self) -> dict[str, dict[str, str]]:
        """Return the sha256 of every file by folder and name, including the support modules."""
        pairs = [(entry.description.name, entry.hashes) for entry in self.entries]
        pairs += [(entry.group.name, entry.hashes) for entry in self.groups]
        pairs += [(SUPPORT, self.support.hashes)] if self.support.hashes else []
        return {name: dict(hashes) for name, hashes in pairs}

    def folders(self) -> dict[str, tuple[str, ...]]:
        """Return the files of every folder by name."""
        return {name: tuple(hashes) for name, hashes in self.hashes().items()}

    def names(self) -> tuple[str, ...]:
        """Return the names of the bundles' folders."""
        return tuple(entry.description.name for entry in self.entries)

    def entry(self, name: str) -> Entry | None:
        """Return the entry of the bundle that has this name as one of its names, or None."""
        return next((entry for entry in self.entries if name in entry.names), None)

    def modules(self) -> dict[str, str]:
        """Return the folder of every bundle and group, by all of their names."""
        found = {name: entry.names[0] for entry in self.entries for name in entry.names}
        return found | {entry.group.name: entry.group.name for entry in self.groups}

    def members(self, group: Group) -> tuple[Description, ...]:
        """Return the descriptions of a group's members, each under the member's name."""
        entries = ((name, self.entry(name)) for name in group.members)
        return tuple(
            replace(found.description, name=name)
            for name, found in entries
            if found and found.description.kind == "reshard"
        )

    def updated(self, entries: tuple[Entry, ...], groups: tuple[GroupEntry, ...] = ()) -> Manifest:
        """Return this manifest with entries added or replaced."""
        new = {name for entry in entries for name in entry.names}
        new |= {each.group.name for each in groups}
        kept = (
            replace(entry, also=tuple(name for name in entry.also if name not in new))
            for entry in self.entries
            if entry.description.name not in new
        )
        old = (entry for entry in self.groups if entry.group.name not in new)
        return Manifest(
            tuple(sorted((*kept, *entries), key=lambda entry: entry.description.name)),
            tuple(sorted((*old, *groups), key=lambda entry: entry.group.name)),
            self.support,
            self.config,
            self.package,
        )

    def only(self, names: Iterable[str]) -> Manifest:
        """Return this manifest restricted to these bundles and groups."""
        kept = set(names)
        return replace(
            self,
            entries=tuple(each for each in self.entries if each.description.name in kept),
            groups=tuple(each for each in self.groups if each.group.name in kept),
        )

    def to_json(self) -> str:
        """Return the text of the file: one line per description and per hash."""
        bundles = {
            entry.description.name: {
                "description": _Line(_without_name(entry.description.to_dict())),
                **({"also": list(entry.also)} if entry.also else {}),
                "files": dict(entry.hashes),
            }
            for entry in self.entries
        }
        document: dict[str, Any] = {"version": VERSION}
        document |= {} if self.config is None else {"config": self.config}
        document["bundles"] = bundles
        if self.groups:
            document["groups"] = {
                entry.group.name: {**entry.group.to_dict(), "files": dict(entry.hashes)}
                for entry in self.groups
            }
        if self.support.hashes:
            document["support"] = {
                "versions": dict(self.support.versions),
                "files": dict(self.support.hashes),
            }
        document |= {"package": dict(self.package)} if self.package else {}
        return _json(document) + "\n"


@dataclass(frozen=True)
class _Line:
    fields: dict[str, Any]


def _json(value: object, indent: str = "") -> str:
    match value:
        case _Line():
            return json.dumps(value.fields)
        case dict() if value:
            further = f"{indent}  "
            entries = (f"{further}{json.dumps(k)}: {_json(v, further)}" for k, v in value.items())
            return "{\n" + ",\n".join(entries) + f"\n{indent}}}"
        case _:
            return json.dumps(value)


def sha256(text: str) -> str:
    """Return the hexadecimal sha256 of a text in UTF-8."""
    return hashlib.sha256(text.encode()).hexdigest()


def read_manifest(root: Path) -> Manifest:
    """Return the manifest of a folder, or an empty manifest if there is no file."""
    path = root / FILE
    return _read(path) if path.exists() else Manifest()


def listing(path: Path) -> Config:
    """Return the config that a manifest describes, with the manifest's folder as `out`."""
    found = _read(path)
    every = [replace(each.description, name=name) for each in found.entries for name in each.names]
    kinds: dict[str, Any] = {
        kind: tuple(each for each in every if f"{each.kind}s" == kind) for kind in KINDS
    }
    groups = tuple(entry.group for entry in found.groups)
    return Config(path, path.parent, groups=groups, folders=found.modules(), **kinds)


def supported(descriptions: Iterable[Operation], *, grouped: bool) -> tuple[str, ...]:
    """Return the backends whose support modules bundles or groups import."""
    listed = ((each.backends if grouped else each.supported) for each in descriptions)
    return tuple(sorted({backend for backends in listed for backend in backends}))


def support_kinds(descriptions: Iterable[Operation], *, grouped: bool) -> dict[str, bool]:
    """Return, for each kind of support module, whether bundles need it. Modules of models do not
    import the support modules of reshards; all other modules do."""
    kinds = {each.kind for each in descriptions if grouped or each.supported}
    return {
        "resharded": bool(kinds - {"model"}),
        "grouped": grouped,
        "multiplied": "matmul" in kinds,
        "modelled": "model" in kinds,
    }


def _read(path: Path) -> Manifest:
    try:
        document = json.loads(read_text(path))
        if document["version"] != VERSION:
            raise InputError(
                "the manifest must have the version that this shardwright writes",
                argument=str(path),
                got=document["version"],
                expected=f"{VERSION}; emit the bundles again",
            )
        groups = sorted(document.get("groups", {}).items())
        return Manifest(
            tuple(_entry(path, name, data) for name, data in sorted(document["bundles"].items())),
            tuple(_group_entry(path, name, data) for name, data in groups),
            SupportEntry(*map(_pairs, _support(document))),
            None if document.get("config") is None else str(document["config"]),
            _pairs(document.get("package", {})),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            "the file is not a manifest of bundles",
            argument=str(path),
            expected="the file that `shardwright emit` wrote",
        ) from None


def _entry(path: Path, name: str, data: dict[str, Any]) -> Entry:
    hashes = _pairs(data["files"])
    try:
        description = describe_operation({"name": name, **data["description"]})
        return Entry(description, hashes, tuple(map(str, data.get("also", ()))))
    except InputError as error:
        raise error.named(f"{path}, bundle {name!r}, {error.argument}") from None


def _support(document: dict[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    listed = document.get("support", {"versions": {}, "files": {}})
    return listed["versions"], listed["files"]


def _pairs(given: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple((str(name), str(value)) for name, value in given.items())


def _group_entry(path: Path, name: str, data: dict[str, Any]) -> GroupEntry:
    said = {key: value for key, value in data.items() if key != "files"}
    return GroupEntry(read_group(said, name, path), _pairs(data["files"]))


def _without_name(fields: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if key != "name"}
