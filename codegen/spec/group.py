"""Groups: several bundles whose tensors move together, in one launch or one exchange.

A group has a folder of its own, whose module takes those of its members from the folders beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shardwright.codegen.spec.description import check_name
from shardwright.ir.errors import InputError


@dataclass(frozen=True)
class Group:
    """The name of a group and those of the bundles that are its members, in its order."""

    name: str
    members: tuple[str, ...]

    @staticmethod
    def of(given: Mapping[str, object]) -> Group:
        """Return a group from the keys of its table. Raises InputError, which names the key."""
        for key in given:
            if key not in ("name", "members"):
                raise InputError("unknown key", argument=key, got=key, expected="name, members")
        name, members = given.get("name"), given.get("members")
        if not isinstance(name, str):
            raise InputError("a group has a name", argument="name", expected="a text in quotes")
        names = members if isinstance(members, list | tuple) else ()
        if not names or not all(isinstance(member, str) for member in names):
            raise InputError(
                "the members of a group are a list of names of reshards",
                argument="members",
                got=members,
                expected="one name or more",
            )
        if len(set(names)) < len(names):
            twice = next(member for member in names if names.count(member) > 1)
            raise InputError(
                "a member stands once in a group", argument="members", got=f"{twice} twice"
            )
        return Group(check_name(name), tuple(names))

    def check(self, taken: set[str], reshards: set[str]) -> None:
        """Raise InputError for a name that is taken and a member that is none of the reshards."""
        for member in self.members:
            if member not in reshards:
                raise InputError(
                    "no such reshard",
                    argument="members",
                    got=member,
                    expected="names of [[reshard]] tables of the same file",
                )
        if self.name.casefold() in {name.casefold() for name in taken}:
            raise InputError(
                "a reshard or a group has this name already, but for case",
                argument="name",
                got=self.name,
                expected="a name of its own for each",
            )

    def command(self, out: str = "generated") -> str:
        """Return the command line that emits the group and its members again."""
        return f"shardwright emit {out}/manifest.json --name {self.name} -o {out}"

    def to_dict(self) -> dict[str, Any]:
        """Return the group as JSON has it, without its name."""
        return {"members": list(self.members)}


def read_groups(document: object, path: Path) -> tuple[Group, ...]:
    """Return the groups of a TOML document or of a manifest's list, checked one by one."""
    if not isinstance(document, list) or not all(isinstance(each, dict) for each in document):
        raise InputError(
            "groups are an array of tables", argument=str(path), expected="[[group]] tables"
        )
    found = []
    for number, table in enumerate(document, 1):
        try:
            found.append(Group.of(table))
        except InputError as error:
            name = table.get("name")
            which = f"group {name!r}" if isinstance(name, str) else f"group {number}"
            raise error.named(f"{path}, {which}, {error.argument}") from None
    return tuple(found)
