"""The config: a TOML file and the files that it includes. It describes one folder of bundles.

The tables of a file come after the tables of the files that it includes. All files share the named
meshes. A key missing from a table comes from its group, else from the `[defaults]` of its file,
else from the defaults of the including files.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from shardwright.codegen.spec.collective_ids import allocated
from shardwright.codegen.spec.config_tables import (
    Origin,
    SaidAt,
    grouped_tables,
    learned_files,
    models_of,
    named_meshes,
    others_of,
    programs_of,
    reshards_of,
)
from shardwright.codegen.spec.description import Description
from shardwright.codegen.spec.group import Group, check_devices
from shardwright.codegen.spec.include import config_files
from shardwright.codegen.spec.matmul import SHARED as SHARED_BY_MATMULS
from shardwright.codegen.spec.matmul import MatmulDescription, Operation, describe_matmul
from shardwright.codegen.spec.model import ModelDescription
from shardwright.codegen.spec.program import ProgramDescription
from shardwright.codegen.spec.relayout import SHARED as SHARED_BY_RELAYOUTS
from shardwright.codegen.spec.relayout import RelayoutDescription, describe_relayout
from shardwright.codegen.spec.toml_tables import Table
from shardwright.ir.errors import InputError, unknown

FILE = "shardwright.toml"
OUT = "generated"
"""The default folder of bundles."""


KINDS = ("reshards", "matmuls", "programs", "relayouts", "models")
"""The field of `Config` for each kind of operation."""


@dataclass(frozen=True)
class Config:
    """The operations and groups of one output folder, and the tables that describe them.

    `path` is the TOML file or the manifest that was read, and `root` the top-level table of the
    TOML file, None for a manifest. `folders` maps the name of an operation to its folder if the two
    may differ: operations that differ only in name share the bundle of the first.
    """

    path: Path
    out: Path
    reshards: tuple[Description, ...]
    groups: tuple[Group, ...] = ()
    origins: Mapping[str, Origin] = field(default_factory=dict)
    root: Table | None = None
    folders: Mapping[str, str] = field(default_factory=dict)
    matmuls: tuple[MatmulDescription, ...] = ()
    programs: tuple[ProgramDescription, ...] = ()
    relayouts: tuple[RelayoutDescription, ...] = ()
    models: tuple[ModelDescription, ...] = ()
    learned: tuple[Path, ...] = ()  # the files of learned layouts that `check` learns again

    @property
    def operations(self) -> tuple[Operation, ...]:
        """All operations with a bundle: reshards, matmuls, programs, relayouts, then models."""
        return (*self.reshards, *self.matmuls, *self.programs, *self.relayouts, *self.models)

    def folder(self, name: str) -> str:
        """Return the name of the folder of an operation or a group."""
        return self.folders.get(name, name)

    def modules(self) -> dict[str, str]:
        """Return the folder of each operation and group by name."""
        return {name: self.folder(name) for name in self.names()}

    def names(self) -> tuple[str, ...]:
        """Return the names of all operations, then of the groups."""
        return (*(each.name for each in self.operations), *(each.name for each in self.groups))

    def select(self, names: Iterable[str], argument: str | None = None) -> Config:
        """Return the config restricted to some names, with the members of selected groups.

        Raises InputError, which names `argument`, for an unknown name.
        """
        wanted, known = set(names), self.names()
        for name in names:
            if name not in known:
                raise unknown(f"{self.path} has no operation with this name", name, known, argument)
        groups = tuple(each for each in self.groups if each.name in wanted)
        wanted |= {member for group in groups for member in group.members}
        kept: dict[str, Any] = {
            kind: tuple(each for each in getattr(self, kind) if each.name in wanted)
            for kind in KINDS
        }
        return replace(self, groups=groups, **kept)

    def located(self, error: InputError, name: str | None = None) -> InputError:
        """Return an error about a key of an operation or of the file, with its location."""
        if name is None:
            return error if self.root is None else self.root.located(error)
        if name in self.origins:
            return self.origins[name].located(error)
        kinds = ("groups", *KINDS)
        found = (kind for kind in kinds for each in getattr(self, kind) if each.name == name)
        kind = next(found, "reshards").removesuffix("s")
        return error.named(f"{self.path}, {kind} {name!r}, {error.argument}")


def find_config(start: Path = Path()) -> Path | None:
    """Return the config of a folder: `shardwright.toml` in it or in a parent, or None."""
    folder = Path(os.path.abspath(start))
    for home in (folder, *folder.parents):
        if (home / FILE).is_file():
            return Path(os.path.relpath(home / FILE))
    return None


def load_toml(path: str | Path) -> tuple[Description, ...]:
    """Return the descriptions of a config in order."""
    return read_config(path).reshards


def read_config(path: str | Path) -> Config:
    """Return the config in a TOML file. Keys of a table are command-line flags with underscores.

    Names must differ in more than case. Raises InputError, located in the file.
    """
    files = config_files(Path(path))
    meshes = named_meshes(files)
    reshards: list[SaidAt] = [each for file in files for each in reshards_of(file, meshes)]
    matmuls = [
        each
        for file in files
        for each in others_of(file, meshes, "matmul", SHARED_BY_MATMULS, describe_matmul)
    ]
    programs = [each for file in files for each in programs_of(file, meshes)]
    relayouts = [
        each
        for file in files
        for each in others_of(file, meshes, "relayout", SHARED_BY_RELAYOUTS, describe_relayout)
    ]
    models = [each for file in files for each in models_of(file, meshes)]
    groups: list[tuple[Group, Origin]] = []
    for file in files:
        for table in file.root.many("group", "group"):
            group, tensors = grouped_tables(table, file, meshes)
            reshards += tensors
            groups.append((group, Origin((table,))))
    others: list[tuple[Operation, Origin]] = [*matmuls, *programs, *relayouts, *models]
    if not reshards and not others:
        raise InputError(
            "the file must describe at least one operation",
            argument=str(path),
            expected="[[reshard]] tables",
        )
    origins = _origins([*reshards, *others, *groups])
    named = {description.name: description for description, _ in reshards}
    for group, _ in groups:
        _check_members(group, named, origins)
    products = tuple(description for description, _ in matmuls)
    partitioned = tuple(description for description, _ in programs)
    relaid = tuple(description for description, _ in relayouts)
    moved = tuple(description for description, _ in models)
    folders = shared((*named.values(), *products, *partitioned, *relaid, *moved))
    try:
        named, listed, products = allocated(
            named, [group for group, _ in groups], folders, products, relaid
        )
    except InputError as error:
        raise origins[str(error.where[0])].located(error) from None
    root, found = files[-1].root, tuple(named.values())
    layouts = tuple(each for file in files for each in learned_files(file.root))
    said = (origins, root, folders, products, partitioned, relaid, moved, layouts)
    return Config(Path(path), _out(root), found, listed, *said)


def shared(operations: Iterable[Operation]) -> dict[str, str]:
    """Return, by name, the folder of each operation that equals an earlier operation in all but
    name."""
    firsts: dict[Operation, str] = {}
    folders = {
        each.name: firsts.setdefault(replace(each, name=""), each.name) for each in operations
    }
    return {name: folder for name, folder in folders.items() if name != folder}


def _out(root: Table) -> Path:
    """Return the output folder, which is relative to the file."""
    out = root.values.get("out", OUT)
    if not isinstance(out, str):
        error = InputError(
            "out must be a string", argument="out", got=out, expected="a folder's path"
        )
        raise root.located(error)
    return Path(os.path.normpath(root.path.parent / out))


def _origins(said: Iterable[tuple[Operation | Group, Origin]]) -> dict[str, Origin]:
    found: dict[str, tuple[str, Origin]] = {}
    for one, origin in said:
        folder = one.name.casefold()  # for file systems that ignore case
        if folder in found:
            other, before = found[folder]
            raise origin.located(_not_distinct(one.name, other, _in_two_groups(origin, before)))
        found[folder] = one.name, origin
    return dict(found.values())


def _in_two_groups(*origins: Origin) -> bool:
    """Return whether all origins are tensors of groups, and the first and the last are in different
    groups."""
    groups = [each.tables[1] for each in origins if len(each.tables) > 1]
    said = all("tensors" in group.values for group in groups)
    return len(groups) == len(origins) and said and groups[0] != groups[-1]


def _not_distinct(name: str, other: str, in_two: bool) -> InputError:
    same = name == other
    expected = "a different name for each"
    if not same:
        expected += "; some file systems ignore case"
    elif in_two:
        expected += (
            "; for the same tensors in two groups, a config with its own `out` for each group"
        )
    return InputError(
        "two operations must not have the same name"
        if same
        else "the names of two operations must not differ only in case",
        argument="name",
        got=name if same else f"{name} and {other}",
        expected=expected,
    )


def _check_members(
    group: Group, reshards: Mapping[str, Description], origins: Mapping[str, Origin]
) -> None:
    (table,) = origins[group.name].tables
    for member in group.members:
        if member not in reshards:
            expected = "names of [[reshard]] tables"
            raise table.located(unknown("no such reshard", member, reshards, "members", expected))
    firsts: dict[tuple[str, str | None], str] = {}
    for member in group.members:
        firsts.setdefault((reshards[member].mesh, reshards[member].target_mesh), member)
    try:
        check_devices({member: reshards[member].reshard() for member in firsts.values()})
    except InputError as error:
        if "members" in table.values:
            raise table.located(error) from None
        member, side = map(str, error.where)
        key = "mesh" if side == "source" or reshards[member].target_mesh is None else "target_mesh"
        raise origins[member].located(error.named(key)) from None
