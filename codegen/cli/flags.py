"""The arguments of commands, the same for every command: a file, names in it, or flags that
describe a reshard.

A command is a frozen dataclass: its fields are its arguments and flags, and `run` executes it.
Typer reads the fields of base classes at run time, so files of commands must not postpone the
evaluation of annotations.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from shardwright.codegen.cli.given import GivenFlags
from shardwright.codegen.registry import MODELLING
from shardwright.codegen.spec.config import FILE, OUT, Config, find_config, read_config
from shardwright.codegen.spec.description import FIELDS, REQUIRED, Description, describe
from shardwright.codegen.spec.features import (
    check_features,
    check_matmul_features,
    read_features,
)
from shardwright.codegen.spec.fields import in_order, read_limit, read_topology, split_backends
from shardwright.codegen.spec.group import Group
from shardwright.codegen.spec.manifest import listing
from shardwright.codegen.spec.matmul import FIELDS as MATMUL_FIELDS
from shardwright.codegen.spec.matmul import MatmulDescription, Operation
from shardwright.codegen.spec.model import FIELDS as MODEL_FIELDS
from shardwright.codegen.spec.model import ModelDescription
from shardwright.codegen.spec.program import FIELDS as PROGRAM_FIELDS
from shardwright.codegen.spec.program import ProgramDescription
from shardwright.codegen.spec.relayout import FIELDS as RELAYOUT_FIELDS
from shardwright.codegen.spec.relayout import RelayoutDescription
from shardwright.ir.errors import InputError, one_of

_OVERRIDES = (
    *("strategy", "backends", "topology", "memory_limit", "gradient", "single_file"),
    "features",
)
"""The flags that may be combined with a FILE or names."""

FLAGS = Path("flags")
"""The path that replaces a config's path if flags describe the reshard."""


@dataclass(frozen=True, kw_only=True)
class Flags(GivenFlags, ABC):
    """The operations that the flags of a command describe: those of a file, or one reshard."""

    @property
    def kept(self) -> str:
        """The text printed after an interrupt: the results that remain."""
        return "nothing was changed"

    @abstractmethod
    def run(self) -> None:
        """Run the command."""

    @property
    def fields(self) -> dict[str, Any]:
        """The values that describe a reshard, by field name."""
        given = ((field, getattr(self, field)) for field in FIELDS)
        return {field: value for field, value in given if value not in (None, [])}

    @property
    def beside(self) -> tuple[str, ...]:
        """The fields that are allowed next to a file or names, to change or select operations."""
        return ("name", *_OVERRIDES)

    @cached_property
    def described(self) -> bool:
        """Whether flags, rather than a file, describe a reshard."""
        keys = [key for key in self.fields if key not in self.beside]
        if self.words and keys:
            raise InputError(
                "give either a FILE or the flags of a reshard",
                argument=flag(keys[0]),
                got=f"both {self.words[0]} and {flag(keys[0])}",
                expected="only the FILE, or only flags",
            )
        return bool(keys)

    @property
    def file(self) -> Path | None:
        first = Path(self.words[0]) if self.words else None
        return first if first is not None and _is_file(first) else None

    @property
    def names(self) -> tuple[str, ...]:
        """The selected names; empty selects all."""
        words = (self.words or [])[0 if self.file is None else 1 :]
        return (*words, *([] if self.name is None else [self.name]))

    @cached_property
    def config(self) -> Config:
        """The config: the given file, or that of this folder."""
        path = self.file or find_config()
        if path is None:
            raise InputError(
                f"found no {FILE} in this folder or its parents",
                got=", ".join(self.names) or None,
                expected="that file, a FILE argument, or flags that describe a reshard",
            )
        return listing(path) if path.suffix == ".json" else read_config(path)

    @cached_property
    def chosen(self) -> Config:
        """The selected operations of the file, changed by flags, or the reshard that flags
        describe."""
        if self.described:
            return Config(FLAGS, Path(OUT), (self.from_flags(),))
        argument = "--name" if self.name is not None else None
        chosen = self.config.select(self.names, argument) if self.names else self.config
        reshards = tuple(map(self._overridden, chosen.reshards))
        matmuls = tuple(map(self._overridden_matmul, chosen.matmuls))
        programs = tuple(map(self._overridden_program, chosen.programs))
        return replace(
            chosen,
            reshards=reshards,
            matmuls=matmuls,
            programs=programs,
            relayouts=tuple(map(self._overridden_relayout, chosen.relayouts)),
            models=tuple(map(self._overridden_model, chosen.models)),
        )

    @property
    def group(self) -> Group | None:
        """The group, if exactly one group and nothing else is selected."""
        if self.described or len(self.names) > 1:
            return None
        if not self.names:
            return self._only_group()
        return next((each for each in self.chosen.groups if each.name == self.names[0]), None)

    def _only_group(self) -> Group | None:
        """Return the group of a file that describes nothing else."""
        chosen = self.chosen
        described = {each.name for each in chosen.operations}
        fits = len(chosen.groups) == 1 and described == {*chosen.groups[0].members}
        return chosen.groups[0] if fits else None

    def kinds(self, group: Group) -> dict[str, tuple[Description, int]]:
        """Return one member of a group per bundle folder, with the number of members that share
        it."""
        folders = [self.chosen.folder(member) for member in group.members]
        firsts = {self.chosen.folder(each.name): each for each in reversed(self.chosen.reshards)}
        return {each: (firsts[each], folders.count(each)) for each in dict.fromkeys(folders)}

    def one(self) -> Description:
        found = self.one_operation()
        if found.kind == "reshard":
            return found
        raise InputError(
            f"the operation of this name in {self.chosen.path} is not a reshard",
            argument="--name",
            got=found.name,
            expected="the name of a reshard",
        )

    def one_operation(self) -> Operation:
        """Return the only operation that is selected. Raises InputError for a group, or for
        several."""
        if self.described:
            return self.from_flags(name="reshard")
        chosen = self.chosen
        given = [group.name for group in chosen.groups if group.name in self.names]
        names = one_of(description.name for description in chosen.operations)
        if given:
            raise InputError(
                f"this command takes one operation, not a group of {chosen.path}",
                argument="--name",
                got=given[0],
                expected=names,
            )
        count = len(chosen.operations)
        if count > 1:
            what = "reshards" if count == len(chosen.reshards) else "operations"
            raise InputError(
                f"name one of the {count} {what} in {chosen.path}",
                expected=names,
            )
        return chosen.operations[0]

    def from_flags(self, name: str | None = None) -> Description:
        """Return the reshard that flags describe; `name`: its default name."""
        needed = [*REQUIRED, *(["name"] if name is None else [])]
        missing = [flag(key) for key in needed if key not in self.fields]
        if missing:
            *listed, last = map(flag, needed)
            raise InputError(
                f"a reshard must be described by a FILE, or by {', '.join(listed)} and {last}",
                argument=missing[0],
                got=f"no {' and no '.join(missing)}",
            )
        try:
            described = describe({"name": name or "", **self.fields})
            check_features(self._features(), described.backends)
            return described
        except InputError as error:
            raise error.named(flag(error.argument or "name")) from None

    def _overridden(self, description: Description) -> Description:
        as_given = ("strategy", "gradient", "single_file")
        changes: dict[str, Any] = {k: v for k, v in self.fields.items() if k in as_given}
        if "backends" in self.fields:
            changes["backends"] = in_order(split_backends(self.fields["backends"]))
        for key, read in (("topology", read_topology), ("memory_limit", read_limit)):
            if key in self.fields:
                changes[key] = self._read(key, read)
        asked = self._features()
        if self._meant(description.name):
            backends = changes.get("backends", description.backends)
            self._located_flag("features", lambda: check_features(asked, backends))
        changes |= {"gradient": True} if "gradient" in asked else {}
        changes["features"] = tuple(sorted({*description.features, *asked} - {"gradient"}))
        return replace(description, **changes)

    def _features(self) -> tuple[str, ...]:
        found: tuple[str, ...] = self._read("features", read_features) if self.features else ()
        return found

    def _overridden_matmul(self, description: MatmulDescription) -> MatmulDescription:
        """Change a matmul by flags. A flag that no matmul takes is an error if it is meant for this
        matmul, and is otherwise ignored."""
        meant, asked = self._meant(description.name), self._features()
        if meant:
            self._located_flag("features", lambda: check_matmul_features(asked))
        for key in ("strategy", "memory_limit"):
            if key in self.fields and meant:
                raise InputError(
                    "a matmul does not take this option",
                    argument=flag(key),
                    got=description.name,
                    expected=f"no {flag(key)}",
                )
        as_given = ("gradient", "single_file")
        changes: dict[str, Any] = {k: v for k, v in self.fields.items() if k in as_given}
        if "backends" in self.fields:
            changes["backends"] = split_backends(self.fields["backends"])
        if "topology" in self.fields:
            changes["topology"] = self._read("topology", read_topology)
        changes |= {"gradient": True} if "gradient" in asked else {}
        return replace(description, **changes)

    def _overridden_program(self, description: ProgramDescription) -> ProgramDescription:
        """Change a program by flags, with the same rules as for matmuls."""
        self._check_named(description.name, "program", "topology", "backends")
        if "topology" not in self.fields:
            return description
        return replace(description, topology=self._read("topology", read_topology))

    def _overridden_relayout(self, description: RelayoutDescription) -> RelayoutDescription:
        """Change a relayout by flags, with the same rules as for matmuls."""
        self._check_named(description.name, "relayout", "backends", "gradient")
        changes = {key: value for key, value in self.fields.items() if key == "gradient"}
        if "backends" in self.fields:
            changes["backends"] = in_order(split_backends(self.fields["backends"]))
        return replace(description, **changes)

    def _overridden_model(self, description: ModelDescription) -> ModelDescription:
        """Change a model by flags, with the same rules as for matmuls."""
        self._check_named(description.name, "model", "backends", "memory_limit")
        changes: dict[str, Any] = {}
        if "backends" in self.fields:
            asked = in_order(split_backends(self.fields["backends"]))
            changes["backends"] = tuple(name for name in asked if name in MODELLING)
            if not changes["backends"]:
                raise InputError(
                    "the backend cannot emit models",
                    argument="--backends",
                    got=", ".join(asked),
                    expected=" or ".join(MODELLING),
                )
        if "memory_limit" in self.fields:
            changes["memory_limit"] = self._read("memory_limit", read_limit)
        return replace(description, **changes)

    def _check_named(self, name: str, what: str, *taken: str) -> None:
        """Raise InputError for flags that an operation does not take, if they are meant for it."""
        if self._meant(name):
            self.check_keys(name, what, *taken)

    def check_keys(self, name: str, what: str, *taken: str) -> None:
        """Raise InputError for flags that an operation does not take."""
        for key in self.fields:
            if key not in ("name", *taken):
                raise InputError(
                    f"a {what} does not take this option",
                    argument=flag(key),
                    got=name,
                    expected=f"no {flag(key)}",
                )

    def _meant(self, name: str) -> bool:
        """Return whether flags are meant for an operation, because it is named or is the config's
        only one."""
        return name in self.names or len(self.config.operations) == 1

    def _read(self, key: str, read: Callable[[object], Any]) -> Any:
        return self._located_flag(key, lambda: read(self.fields[key]))

    def _located_flag(self, key: str, do: Callable[[], Any]) -> Any:
        """Call a function. If it raises InputError, add the flag of `key` to the error."""
        try:
            return do()
        except InputError as error:
            raise error.named(flag(key)) from None

    def located(self, error: InputError, name: str) -> InputError:
        """Add the flag or the file to an error found after reading the description."""
        known = (
            *FIELDS,
            *MATMUL_FIELDS,
            *PROGRAM_FIELDS,
            *RELAYOUT_FIELDS,
            *MODEL_FIELDS,
            "members",
        )
        if error.argument is None:
            return error
        if error.argument not in known:  # such as an argument of a program's function
            programs = {each.name for each in self.chosen.programs}
            return error.named(f"program {name!r}, {error.argument}") if name in programs else error
        if self.described or error.argument in self.fields:
            return error.named(flag(error.argument))
        return self.chosen.located(error, name)


def _is_file(path: Path) -> bool:
    """Return whether a word is a file rather than a name: it has a suffix or a path separator, or
    it exists as a file."""
    return bool(path.suffix) or os.sep in str(path) or path.is_file()


def flag(field: str) -> str:
    """Return the flag of a field, such as `--target-mesh` for `target_mesh`."""
    return "--feature" if field == "features" else "--" + field.replace("_", "-")
