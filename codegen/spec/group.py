"""Groups: several bundles whose tensors move together, in one launch or one exchange.

The module in a group's folder imports its members' modules from the sibling folders.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shardwright.codegen.spec.description import BUNDLE_IDS, check_name, listed_command, read_id
from shardwright.ir.errors import InputError, unknown
from shardwright.ir.reshard import Reshard

GROUP_IDS = range(BUNDLE_IDS.stop, 2**15, 8)
"""The possible first ids of a group, which also uses the next seven ids."""

_KEYS = ("name", "members", "collective_id")


@dataclass(frozen=True)
class Group:
    """The name of a group and the names of its member reshards, in order.

    `collective_id`: the first id of its TPU kernels; None derives it from the members.
    """

    name: str
    members: tuple[str, ...]
    collective_id: int | None = None

    @staticmethod
    def of(given: Mapping[str, object]) -> Group:
        """Return a group from its table. Raises InputError, which names the key, for an invalid
        table."""
        for key in given:
            if key not in _KEYS:
                raise unknown("unknown key", key, _KEYS, key)
        name, members = group_name(given), given.get("members")
        names = members if isinstance(members, list | tuple) else ()
        if not names or not all(isinstance(member, str) for member in names):
            raise InputError(
                "the members of a group must be a list of reshard names",
                argument="members",
                got=members,
                expected='members = ["wq", "wk"]',
            )
        if len(set(names)) < len(names):
            twice = next(member for member in names if names.count(member) > 1)
            raise InputError(
                "a member must occur only once in a group",
                argument="members",
                got=f"{twice} twice",
                expected="each name once",
            )
        return Group(name, tuple(names), read_id(given.get("collective_id"), GROUP_IDS))

    def command(self) -> str:
        """Return the command that emits the group and its members again."""
        return listed_command(self.name)

    def lines(self) -> tuple[str, ...]:
        """Return the members as TOML, one per line, and the collective id if stated."""
        members = ("members = [", *(f'  "{member}",' for member in self.members), "]")
        said = () if self.collective_id is None else (f"collective_id = {self.collective_id}",)
        return (*members, *said)

    def to_dict(self) -> dict[str, Any]:
        """Return the group as JSON types, omitting its name."""
        said = {} if self.collective_id is None else {"collective_id": self.collective_id}
        return {"members": list(self.members), **said}


def group_name(given: Mapping[str, object]) -> str:
    """Return the name of a group, given its table."""
    name = given.get("name")
    if not isinstance(name, str):
        raise InputError("a group must have a name", argument="name", expected='name = "weights"')
    return check_name(name)


def check_devices(reshards: Mapping[str, Reshard]) -> None:
    """Raise InputError, argument "members", unless all members are on the same devices in the
    same order. The error's `where` consists of the name of a member that differs and a side,
    "source" or "target"."""
    first_name, first = next(iter(reshards.items()))
    for name, reshard in reshards.items():
        for side in ("source", "target"):
            ids = list(getattr(reshard, side).mesh.device_ids)
            wanted = list(getattr(first, side).mesh.device_ids)
            if ids != wanted:
                raise InputError(
                    "the members of a group must be on the same devices in the same order",
                    argument="members",
                    got=f"the {side} mesh of {name} on devices {_short(ids)}",
                    expected=f"devices {_short(wanted)}, as for {first_name}",
                    where=(name, side),
                )


def _short(ids: list[int]) -> str:
    listed = ", ".join(map(str, ids[:8]))
    return listed if len(ids) <= 8 else f"{listed}, … ({len(ids)} in all)"


def read_group(given: Mapping[str, object], name: str, path: Path) -> Group:
    """Return a group from its entry in a manifest."""
    try:
        return Group.of({"name": name, **given})
    except InputError as error:
        raise error.named(f"{path}, group {name!r}, {error.argument}") from None
