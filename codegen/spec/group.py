"""Groups: several bundles whose tensors move together, in one launch or one exchange.

A group has a folder of its own with a Triton module, which takes the modules of its members from
the folders beside it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shardwright.codegen.spec.description import check_name
from shardwright.ir.errors import InputError

if TYPE_CHECKING:
    from shardwright.ir.plan import Plan

BACKEND = "triton_gpu"
# A block of a group's kernel: four rows of 2 KiB, as many bytes as that of a bundle's.
ROWS, COLUMNS = 4, 2048


@dataclass(frozen=True)
class Group:
    """The name of a group and those of the bundles that are its members, in its order."""

    name: str
    members: tuple[str, ...]

    @staticmethod
    def of(given: Mapping[str, object]) -> Group:
        """A group from the keys of its table. Raises InputError, which names the key."""
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
        """Raises InputError for a name that is taken and a member that is none of the reshards."""
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
        """The command line that emits the group and its members again."""
        return f"shardwright emit {out}/manifest.json --name {self.name} -o {out}"

    def files(self, plans: Mapping[str, Plan]) -> dict[str, str]:
        """The text of every file of the group's folder, from the plans of its members.

        Raises InputError, argument "members", unless all are on the same devices.
        """
        from shardwright.codegen.emit.templates import render

        text = _text(self, {member: plans[member] for member in self.members})
        return {
            f"{BACKEND}.py": render("triton_gpu/group.py.jinja", text),
            "README.md": render("review/group.md.jinja", text),
            "__init__.py": render("triton_gpu/group_package.py.jinja", text),
        }

    def to_dict(self) -> dict[str, Any]:
        """The group as JSON has it, without its name."""
        return {"members": list(self.members)}


@dataclass(frozen=True)
class GroupText:
    """Everything the templates of a group print."""

    name: str
    plan: str
    count: int
    listed: tuple[str, ...]
    plans: tuple[tuple[str, str], ...]
    received: int
    received_total: int
    command: str
    unit: int
    triton_unit: str
    rows: int
    columns: int
    tested: str


def _text(group: Group, plans: Mapping[str, Plan]) -> GroupText:
    from shardwright.codegen.backends.triton_gpu.context import TESTED, plan_hash
    from shardwright.codegen.backends.triton_gpu.rows import Moves
    from shardwright.codegen.emit.context import as_vectors
    from shardwright.ir.dtypes import DTYPES

    _check_devices(plans)
    hashes = tuple((name, plan_hash(plan)) for name, plan in plans.items())
    unit = min(Moves(as_vectors(p.exchange), DTYPES[p.reshard.dtype]).unit for p in plans.values())
    return GroupText(
        name=group.name,
        plan=hashlib.sha256(repr(hashes).encode()).hexdigest()[:16],
        count=len(plans),
        listed=tuple(f"{name}: {_line(plan)}" for name, plan in plans.items()),
        plans=hashes,
        received=_received_max(plans),
        received_total=sum(plan.traffic.received_total for plan in plans.values()),
        command=group.command(),
        unit=unit,
        triton_unit="tl.uint8" if unit == 1 else f"tl.int{8 * unit}",
        rows=ROWS,
        columns=COLUMNS,
        tested=TESTED,
    )


def _line(plan: Plan) -> str:
    reshard = plan.reshard
    shape = ", ".join(map(str, reshard.shape))
    return f"{reshard.dtype}[{shape}] {reshard.source} -> {reshard.target}"


def _received_max(plans: Mapping[str, Plan]) -> int:
    """Bytes that the busiest device receives of all members."""
    import numpy as np

    from shardwright.ir.dtypes import DTYPES

    total: Any = 0
    for plan in plans.values():
        moved = plan.transfers()
        ranks = np.searchsorted(plan.exchange.ranks, moved.receiver)
        sizes = np.where(moved.is_local, 0, moved.elements) * DTYPES[plan.reshard.dtype]
        total = total + np.bincount(ranks, weights=sizes, minlength=plan.devices)
    return int(np.max(total))


def _check_devices(plans: Mapping[str, Plan]) -> None:
    first_name, first = next(iter(plans.items()))
    for name, plan in plans.items():
        for side in ("source", "target"):
            ids = list(getattr(plan.reshard, side).mesh.device_ids)
            wanted = list(getattr(first.reshard, side).mesh.device_ids)
            if ids != wanted:
                raise InputError(
                    "the members of a group are on the same devices in the same order",
                    argument="members",
                    got=f"the {side} mesh of {name} on devices {_short(ids)}",
                    expected=f"{_short(wanted)}, as that of {first_name}",
                )


def _short(ids: list[int]) -> str:
    listed = ", ".join(map(str, ids[:8]))
    return listed if len(ids) <= 8 else f"{listed}, … ({len(ids)} in all)"


def read_groups(document: object, path: Path) -> tuple[Group, ...]:
    """The groups of a TOML document or of a manifest's list, checked one by one."""
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
