"""The flags that describe a reshard, the same in every command, and what they become.

A command that takes a description is a frozen dataclass: its fields are what its flags say, and
`run` carries it out. Typer reads the fields of its bases too, so that annotations must be values:
the files of such commands do not postpone them.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from shardwright.codegen.spec.config import load_groups, load_toml
from shardwright.codegen.spec.description import (
    FIELDS,
    REQUIRED,
    Description,
    describe,
    read_limit,
    read_topology,
    split_backends,
)
from shardwright.codegen.spec.group import Group
from shardwright.codegen.spec.manifest import read_group_listing, read_listing
from shardwright.ir.errors import InputError, one_of, suggested

_OVERRIDES = ("strategy", "backends", "topology", "memory_limit", "gradient", "single_file")
"""What flags may say beside a FILE."""


@dataclass(frozen=True, kw_only=True)
class Flags(ABC):
    """A file of descriptions, or the texts of flags; None for a flag that is not given."""

    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE",
            help="TOML file of [[reshard]] tables, whose keys are the flags with underscores.",
        ),
    ] = None
    name: Annotated[
        str | None,
        typer.Option(help="Name of the bundle, a Python identifier; picks one reshard of FILE."),
    ] = None
    mesh: Annotated[
        str | None,
        typer.Option(help="""Axes and sizes, major to minor: x=2,y=3 or '<["x"=2, "y"=3]>'."""),
    ] = None
    shape: Annotated[str | None, typer.Option(help="Shape of the tensor: 6x6.")] = None
    dtype: Annotated[str | None, typer.Option(help="Element type: float32, bfloat16, int8, …")] = (
        None
    )
    source: Annotated[
        str | None,
        typer.Option(help="""Sharding before: '[{"x"}, {"y"}]', or as HLO has it."""),
    ] = None
    target: Annotated[str | None, typer.Option(help="Sharding after.")] = None
    target_mesh: Annotated[
        str | None, typer.Option(help="Mesh of the target, where it is another one.")
    ] = None
    source_split: Annotated[
        str | None,
        typer.Option(
            help="How an uneven source is split: flat (default) or nested, as torch does."
        ),
    ] = None
    target_split: Annotated[str | None, typer.Option(help="The same of the target.")] = None
    strategy: Annotated[
        str | None, typer.Option(help="How to move it: auto (default), direct or basis.")
    ] = None
    topology: Annotated[
        str | None,
        typer.Option(
            help="Hardware that a plan is priced on and made for: v5e:4x4, h100:2x8, …, or a file; "
            "device ids are JAX's: they count along the first axis of a torus first, and host by "
            "host."
        ),
    ] = None
    memory_limit: Annotated[
        str | None, typer.Option(help="Bytes of the tensor that a device may hold at once.")
    ] = None

    @abstractmethod
    def run(self) -> None:
        """Carry out the command."""

    @property
    def fields(self) -> dict[str, Any]:
        """What describes a reshard, by the name of the field."""
        given = ((field, getattr(self, field, None)) for field in FIELDS)
        return {field: value for field, value in given if value is not None}

    def many(self) -> tuple[Description, ...]:
        """Return all reshards that are described."""
        if self.file is None:
            return (self._from_flags(),)
        for key in self.fields:
            if key not in ("name", *_OVERRIDES):
                raise InputError(
                    "a reshard is described by FILE or by flags, not by both",
                    argument=flag(key),
                    got=f"{flag(key)} beside {self.file}",
                    expected="one of them",
                )
        return tuple(map(self._overridden, self._selected(self.file)))

    def one(self) -> Description:
        """Return the one reshard that is described."""
        if self.file is None:
            return self._from_flags(name="reshard")
        descriptions = self.many()
        if any(group.name == self.fields.get("name") for group in self.groups()):
            raise InputError(
                f"a group of {self.file} is given, and one reshard is wanted",
                argument="--name",
                got=self.fields["name"],
                expected=one_of([description.name for description in descriptions]),
            )
        if len(descriptions) > 1:
            raise InputError(
                f"{self.file} describes {len(descriptions)} reshards, and one is wanted",
                argument="--name",
                expected=one_of(d.name for d in descriptions),
            )
        return descriptions[0]

    def _from_flags(self, name: str | None = None) -> Description:
        """Return the reshard of the flags; `name` is for one that needs none."""
        needed = [*REQUIRED, *(["name"] if name is None else [])]
        missing = [flag(key) for key in needed if key not in self.fields]
        if missing:
            *listed, last = map(flag, needed)
            raise InputError(
                f"a reshard is described by a FILE, or by {', '.join(listed)} and {last}",
                argument=missing[0],
                got=f"no {' and no '.join(missing)}",
            )
        try:
            return describe({"name": name or "", **self.fields})
        except InputError as error:
            raise error.named(flag(error.argument or "name")) from None

    def groups(self) -> tuple[Group, ...]:
        """Return the groups of the file, or the one of the name that was given."""
        if self.file is None:
            return ()
        read = read_group_listing if self.file.suffix == ".json" else load_groups
        name = self.fields.get("name")
        return tuple(group for group in read(self.file) if name in (None, group.name))

    def _selected(self, file: Path) -> tuple[Description, ...]:
        descriptions = read_listing(file) if file.suffix == ".json" else load_toml(file)
        name = self.fields.get("name")
        members = {m for g in self.groups() for m in g.members} if name is not None else set()
        chosen = tuple(d for d in descriptions if name in (None, d.name) or d.name in members)
        if not chosen:
            raise InputError(
                f"{file} describes no reshard of this name"
                + suggested(str(name), [d.name for d in descriptions]),
                argument="--name",
                got=name,
                expected=one_of(d.name for d in descriptions),
            )
        return chosen

    def _overridden(self, description: Description) -> Description:
        as_given = ("strategy", "gradient", "single_file")
        changes: dict[str, Any] = {k: v for k, v in self.fields.items() if k in as_given}
        if "backends" in self.fields:
            changes["backends"] = split_backends(self.fields["backends"])
        for key, read in (("topology", read_topology), ("memory_limit", read_limit)):
            if key in self.fields:
                changes[key] = self._read(key, read)
        return replace(description, **changes)

    def _read(self, key: str, read: Callable[[object], object]) -> object:
        try:
            return read(self.fields[key])
        except InputError as error:
            raise error.named(flag(key)) from None

    def located(self, error: InputError, description: Description) -> InputError:
        """Return an error that came up after the description was read, said of a flag or of the
        file."""
        if error.argument is None or error.argument not in FIELDS:
            return error
        if self.file is None or error.argument in self.fields:
            return error.named(flag(error.argument))
        return error.named(f"{self.file}, reshard {description.name!r}, {error.argument}")


def flag(field: str) -> str:
    """Return the flag of a field: `--target-mesh` for `target_mesh`."""
    return "--" + field.replace("_", "-")
