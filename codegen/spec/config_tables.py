"""Read the tables of a config: meshes, operations, and the tensors of groups."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from shardwright.codegen.registry import MODELLING, NAMES
from shardwright.codegen.spec.collective import SHARED as SHARED_BY_COLLECTIVES
from shardwright.codegen.spec.collective import describe_collective
from shardwright.codegen.spec.description import SHARED, Description, describe, read_id, read_mesh
from shardwright.codegen.spec.features import (
    check_features,
    check_matmul_features,
    read_features,
)
from shardwright.codegen.spec.fields import read_backends
from shardwright.codegen.spec.group import GROUP_IDS, Group, group_name
from shardwright.codegen.spec.include import ConfigFile
from shardwright.codegen.spec.matmul import MatmulDescription
from shardwright.codegen.spec.model import SHARED as SHARED_BY_MODELS
from shardwright.codegen.spec.model import ModelDescription, describe_model
from shardwright.codegen.spec.program import SHARED as SHARED_BY_PROGRAMS
from shardwright.codegen.spec.program import ProgramDescription, describe_program
from shardwright.codegen.spec.relayout import RelayoutDescription
from shardwright.codegen.spec.toml_tables import Table
from shardwright.ir.errors import InputError, in_a_line, one_of, unknown

AnOperation = TypeVar(
    "AnOperation",
    Description,
    MatmulDescription,
    ProgramDescription,
    RelayoutDescription,
    ModelDescription,
)


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


SaidAt = tuple[Description, Origin]


def learned_files(root: Table) -> list[Path]:
    """Return the files of learned layouts, which are relative to the config."""
    names = root.values.get("learned", [])
    if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
        rule, expected = "`learned` must be a list of files", 'learned = ["server.toml"]'
        error = InputError(rule, argument="learned", got=in_a_line(names), expected=expected)
        raise root.located(error)
    return [Path(os.path.normpath(root.path.parent / each)) for each in names]


def named_meshes(files: Iterable[ConfigFile]) -> dict[str, str]:
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


def reshards_of(file: ConfigFile, meshes: Mapping[str, str]) -> Iterator[SaidAt]:
    for table in file.root.many("reshard", "reshard"):
        origin = Origin((table, *file.defaults))
        yield _described(origin, origin.fields(), meshes), origin
    for table in file.root.many("collective", "collective"):
        origin = Origin((table, *file.defaults), SHARED_BY_COLLECTIVES)
        yield _described(origin, origin.fields(), meshes, describe_collective), origin


def others_of(
    file: ConfigFile,
    meshes: Mapping[str, str],
    what: str,
    keys: tuple[str, ...],
    read: Callable[[Mapping[str, object]], AnOperation],
) -> Iterator[tuple[AnOperation, Origin]]:
    for table in file.root.many(what, what):
        origin = Origin((table, *file.defaults), keys)
        yield _described(origin, origin.fields(), meshes, read), origin


def programs_of(
    file: ConfigFile, meshes: Mapping[str, str]
) -> Iterator[tuple[ProgramDescription, Origin]]:
    for table in file.root.many("program", "program"):
        origin = Origin((table, *file.defaults), SHARED_BY_PROGRAMS)
        described = _described(origin, origin.fields(), meshes, describe_program)
        yield replace(described, home=str(table.path.parent)), origin


def models_of(
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


def grouped_tables(
    table: Table, file: ConfigFile, meshes: Mapping[str, str]
) -> tuple[Group, list[SaidAt]]:
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


def _tensor(origin: Origin, meshes: Mapping[str, str]) -> SaidAt:
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
