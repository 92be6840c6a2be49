"""The config: a TOML file and the files that it includes. It describes one folder of bundles.

The tables of a file come after the tables of the files that it includes. All files share the named
meshes. A key missing from a table comes from its group, else from the `[defaults]` of its file,
else from the defaults of the including files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from shardwright.codegen.registry import MODELLING, NAMES
from shardwright.codegen.spec.collective import SHARED as SHARED_BY_COLLECTIVES
from shardwright.codegen.spec.collective import describe_collective
from shardwright.codegen.spec.collective_ids import allocated
from shardwright.codegen.spec.description import (
    SHARED,
    Description,
    describe,
    read_backends,
    read_id,
    read_mesh,
)
from shardwright.codegen.spec.features import (
    check_features,
    check_matmul_features,
    read_features,
)
from shardwright.codegen.spec.group import GROUP_IDS, Group, check_devices, group_name
from shardwright.codegen.spec.include import ConfigFile, config_files
from shardwright.codegen.spec.matmul import SHARED as SHARED_BY_MATMULS
from shardwright.codegen.spec.matmul import MatmulDescription, Operation, describe_matmul
from shardwright.codegen.spec.model import SHARED as SHARED_BY_MODELS
from shardwright.codegen.spec.model import ModelDescription, describe_model
from shardwright.codegen.spec.program import SHARED as SHARED_BY_PROGRAMS
from shardwright.codegen.spec.program import ProgramDescription, describe_program
from shardwright.codegen.spec.relayout import SHARED as SHARED_BY_RELAYOUTS
from shardwright.codegen.spec.relayout import RelayoutDescription, describe_relayout
from shardwright.codegen.spec.toml_tables import Table
from shardwright.ir.errors import InputError, in_a_line, one_of, unknown

FILE = "shardwright.toml"
OUT = "generated"
"""The default folder of bundles."""

AnOperation = TypeVar(
    "AnOperation",
    Description,
    MatmulDescription,
    ProgramDescription,
    RelayoutDescription,
    ModelDescription,
)

KINDS = ("reshards", "matmuls", "programs", "relayouts", "models")
"""The field of `Config` for each kind of operation."""
_GROUP = ("name", "tensors", *SHARED, "collective_id")
_NAME = re.compile(r"[^\W\d]\w*")


@dataclass(frozen=True)
class Origin:
    """The tables that describe an operation: its own, then the tables from which it inherits the
    keys `shared`."""

    tables: tuple[Table, ...]
    shared: tuple[str, ...] = SHARED

    def fields(self) -> dict[str, Any]:
        """Return the keys of the first table, and the shared keys of the other tables."""
        own, *others = self.tables
        found: dict[str, Any] = {}
        for table in reversed(others):
            found |= {key: value for key, value in _values(table).items() if key in self.shared}
        return found | _values(own)

    def located(self, error: InputError) -> InputError:
        """Return an error about a key, located in the table that has the key."""
        holders = (table for table in self.tables if error.argument in table.values)
        return next(holders, self.tables[0]).located(error)


def _values(table: Table) -> dict[str, Any]:
    """Return the values of a table. Resolve a topology file relative to the table's own file."""
    topology = table.values.get("topology")
    if not isinstance(topology, str) or not topology.endswith(".toml"):
        return dict(table.values)
    return {**table.values, "topology": str(table.path.parent / topology)}


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
    meshes = _meshes(files)
    reshards: list[_Said] = [each for file in files for each in _reshards(file, meshes)]
    matmuls = [
        each
        for file in files
        for each in _others(file, meshes, "matmul", SHARED_BY_MATMULS, describe_matmul)
    ]
    programs = [each for file in files for each in _programs(file, meshes)]
    relayouts = [
        each
        for file in files
        for each in _others(file, meshes, "relayout", SHARED_BY_RELAYOUTS, describe_relayout)
    ]
    models = [each for file in files for each in _models(file, meshes)]
    groups: list[tuple[Group, Origin]] = []
    for file in files:
        for table in file.root.many("group", "group"):
            group, tensors = _grouped(table, file, meshes)
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
    layouts = tuple(each for file in files for each in _learned(file.root))
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


_Said = tuple[Description, Origin]


def _out(root: Table) -> Path:
    """Return the output folder, which is relative to the file."""
    out = root.values.get("out", OUT)
    if not isinstance(out, str):
        error = InputError(
            "out must be a string", argument="out", got=out, expected="a folder's path"
        )
        raise root.located(error)
    return Path(os.path.normpath(root.path.parent / out))


def _learned(root: Table) -> list[Path]:
    """Return the files of learned layouts, which are relative to the config."""
    names = root.values.get("learned", [])
    if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
        rule, expected = "`learned` must be a list of files", 'learned = ["server.toml"]'
        error = InputError(rule, argument="learned", got=in_a_line(names), expected=expected)
        raise root.located(error)
    return [Path(os.path.normpath(root.path.parent / each)) for each in names]


def _meshes(files: Iterable[ConfigFile]) -> dict[str, str]:
    found: dict[str, str] = {}
    for file in files:
        table = file.root.one("mesh", "mesh")
        for name in () if table is None else table.values:
            assert table is not None
            try:
                if _NAME.fullmatch(name) is None:
                    raise InputError(
                        "the name of a mesh must be an identifier",
                        argument=name,
                        expected="letters, digits and underscores, not starting with a digit",
                    )
                mesh = str(read_mesh(name, table.values[name]))
            except InputError as error:
                raise table.located(error) from None
            if found.setdefault(name, mesh) != mesh:
                rule = "two meshes must not have the same name"
                raise table.located(
                    InputError(rule, argument=name, got=mesh, expected="a different name")
                )
    return found


def _reshards(file: ConfigFile, meshes: Mapping[str, str]) -> Iterator[_Said]:
    for table in file.root.many("reshard", "reshard"):
        origin = Origin((table, *file.defaults))
        yield _described(origin, origin.fields(), meshes), origin
    for table in file.root.many("collective", "collective"):
        origin = Origin((table, *file.defaults), SHARED_BY_COLLECTIVES)
        yield _described(origin, origin.fields(), meshes, describe_collective), origin


def _others(
    file: ConfigFile,
    meshes: Mapping[str, str],
    what: str,
    keys: tuple[str, ...],
    read: Callable[[Mapping[str, object]], AnOperation],
) -> Iterator[tuple[AnOperation, Origin]]:
    for table in file.root.many(what, what):
        origin = Origin((table, *file.defaults), keys)
        yield _described(origin, origin.fields(), meshes, read), origin


def _programs(
    file: ConfigFile, meshes: Mapping[str, str]
) -> Iterator[tuple[ProgramDescription, Origin]]:
    for table in file.root.many("program", "program"):
        origin = Origin((table, *file.defaults), SHARED_BY_PROGRAMS)
        described = _described(origin, origin.fields(), meshes, describe_program)
        yield replace(described, home=str(table.path.parent)), origin


def _models(
    file: ConfigFile, meshes: Mapping[str, str]
) -> Iterator[tuple[ModelDescription, Origin]]:
    """Yield the models of a file; paths in their tables are relative to it, and their rules may
    name meshes. A default list of backends is reduced to the backends that can emit models."""
    for table in file.root.many("model", "model"):
        origin = Origin((table, *file.defaults), SHARED_BY_MODELS)
        given, home = origin.fields(), table.path.parent
        if "backends" not in table.values:
            given["backends"] = _able(origin, given.get("backends", MODELLING))
        for side in ("source", "target"):
            if isinstance(given.get(side), Mapping):
                try:
                    given[side] = {
                        rule: _in_mesh(rule, said, meshes) for rule, said in given[side].items()
                    }
                except InputError as error:
                    raise origin.located(error.named(side)) from None
        yield (
            _described(origin, given, meshes, partial(describe_model, home=home)),
            origin,
        )


def _able(origin: Origin, backends: object) -> tuple[str, ...]:
    """Return the given backends that can emit models, and any unknown names, which are rejected
    later. If none are left, return all backends that can emit models."""
    try:
        given = read_backends(backends)
    except InputError as error:
        raise origin.located(error) from None
    return tuple(each for each in given if each in MODELLING or each not in NAMES) or MODELLING


def _in_mesh(rule: str, said: object, meshes: Mapping[str, str]) -> object:
    if not isinstance(said, Mapping) or "mesh" not in said:
        return said
    return {**said, "mesh": _mesh(f"{rule}, mesh", said["mesh"], meshes)}


def _described(
    origin: Origin,
    given: dict[str, Any],
    meshes: Mapping[str, str],
    read: Callable[[Mapping[str, object]], AnOperation] = describe,  # type: ignore[assignment]
) -> AnOperation:
    try:
        keys = (key for key in ("mesh", "target_mesh") if key in given)
        described = read(given | {key: _mesh(key, given[key], meshes) for key in keys})
        own = read_features(origin.tables[0].values.get("features", ()))
        if described.kind == "reshard":
            check_features(own, described.backends)
        elif described.kind == "matmul":
            check_matmul_features(own)
        return described
    except InputError as error:
        raise origin.located(error) from None


def _mesh(key: str, value: object, meshes: Mapping[str, str]) -> object:
    """Return the text of a named mesh, or the value unchanged if it is not a name. Raise InputError
    for an unknown name."""
    if not isinstance(value, str) or _NAME.fullmatch(value) is None:
        return value
    if value not in meshes:
        axes = "the axes of a mesh, as x=2,y=3"
        expected = f"{one_of(meshes)}, or {axes}" if meshes else axes
        raise unknown("no mesh with this name", value, meshes, key, expected)
    return meshes[value]


def _grouped(
    table: Table, file: ConfigFile, meshes: Mapping[str, str]
) -> tuple[Group, list[_Said]]:
    try:
        if "members" in table.values:
            return Group.of(table.values), []
        name = group_name(table.values)
        for key in table.values:
            if key not in _GROUP:
                raise unknown("unknown key", key, _GROUP, key)
        if not table.values.get("tensors"):
            expected = 'tensors = [{name = "wq", …}], or members = ["wq"] of [[reshard]] tables'
            raise InputError("a group must have tensors", argument="tensors", expected=expected)
        first_id = read_id(table.values.get("collective_id"), GROUP_IDS)
    except InputError as error:
        raise table.located(error) from None
    tensors = table.many("tensors", "tensor")
    said = [_tensor(Origin((tensor, table, *file.defaults)), meshes) for tensor in tensors]
    return Group(name, tuple(description.name for description, _ in said), first_id), said


def _tensor(origin: Origin, meshes: Mapping[str, str]) -> _Said:
    """Return the reshard of a tensor of a group. Replace characters in its name that identifiers
    cannot contain: `layer0_wq` for `layer0.wq`."""
    given = origin.fields()
    name = given.get("name")
    if name is None:
        rule = "a tensor of a group must have a name, its key in the dicts of calls"
        error = InputError(rule, argument="name", expected='name = "layer0.wq" in its table')
        raise origin.tables[0].located(error)
    if isinstance(name, str):
        given["name"] = re.sub(r"\W", "_", name)
    return _described(origin, given, meshes), origin


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
