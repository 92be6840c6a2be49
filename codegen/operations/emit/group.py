"""Emission of groups: one module per backend moves several tensors together, each as the module of
its own bundle would."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardwright.codegen import registry
from shardwright.codegen.backends.base import Grouping
from shardwright.codegen.moves import plan as plan_of
from shardwright.codegen.operations.emit.package import other_backends
from shardwright.codegen.show.review import commands_text
from shardwright.codegen.spec.collective_ids import group_id
from shardwright.codegen.spec.description import Description
from shardwright.codegen.spec.group import GROUP_IDS, Group, check_devices
from shardwright.codegen.text.context import constant_lines, plan_hash
from shardwright.codegen.text.python_text import WIDTH, called, exploded
from shardwright.codegen.text.support import version
from shardwright.codegen.text.templates import render
from shardwright.ir.dtypes import DTYPES
from shardwright.ir.errors import InputError, one_of
from shardwright.ir.plan import DirectPlan, Plan, direct_of


@dataclass(frozen=True)
class GroupText:
    """A group's text for the templates of every backend. `bundles`: the folder and plan hash of
    each bundle. `kind_of`: for each tensor, the number of its bundle."""

    name: str
    names: tuple[str, ...]
    bundles: tuple[tuple[str, str], ...]
    kind_of: tuple[int, ...]
    listed: tuple[str, ...]
    received: str
    received_total: str
    command: str
    others: str

    @property
    def commands(self) -> str:
        return commands_text(self.name, self.command)

    @property
    def count(self) -> int:
        return len(self.names)

    @property
    def listing(self) -> list[str]:
        """The names of the tensors, in as few lines as possible."""
        return textwrap.wrap(", ".join(self.names), WIDTH, break_on_hyphens=False)


@dataclass(frozen=True)
class GroupModule(GroupText):
    """The context of the template of one backend's module. `positions`: the number of positions in
    the source mesh."""

    backend: str
    support: str
    devices: int
    positions: int
    grouping: Grouping
    collective_id: int | None

    @property
    def host(self) -> str:
        """The support module with the class of the host object."""
        return self.grouping.host

    @property
    def how(self) -> str:
        """The transport of each message."""
        return self.grouping.how

    @property
    def environment(self) -> list[str]:
        """Statements that run before a self-check imports anything."""
        said = (
            (name, value.format(devices=self.devices, more=self.devices + 1))
            for name, value in self.grouping.environment
        )
        return [f'os.environ.setdefault("{name}", "{value}")' for name, value in said]

    @property
    def exported_lines(self) -> list[str]:
        every = ("NAMES", *self.grouping.exports)
        return exploded("__all__ = ", [f'"{name}"' for name in every], "[]")

    @property
    def name_lines(self) -> list[str]:
        return constant_lines("NAMES", [f'"{name}"' for name in self.names])

    @property
    def kind_lines(self) -> list[str]:
        """The lines of `KIND_OF`, the number of each tensor's bundle."""
        return constant_lines("KIND_OF", list(map(str, self.kind_of)))

    @property
    def host_lines(self) -> list[str]:
        """The lines that define the host object, with its first collective id if kernels use
        any."""
        given = ["NAMES", f'hosts_of(__package__, "{self.backend}", BUNDLES)', "KIND_OF"]
        given += [self.grouping.kernel] if self.grouping.kernel else []
        if self.collective_id is None:
            return called("_HOST = Group", given)
        line = f"COLLECTIVE_ID = {self.collective_id}  # and the {GROUP_IDS.step - 1} after it"
        return [line, *called("_HOST = Group", [*given, "COLLECTIVE_ID"])]

    @property
    def made_lines(self) -> list[str]:
        names = self.grouping.exports
        halves = (names[at : at + 2] for at in range(0, len(names), 2))
        return [f"{', '.join(h)} = {', '.join(f'_HOST.{name}' for name in h)}" for h in halves]


def backends_of(group: Group, members: Iterable[Description]) -> tuple[str, ...]:
    """Return the backends that all members of a group have, given their descriptions. Raises
    InputError, argument "members", if there is none."""
    wanted = [description.backends for description in members if description.name in group.members]
    found = tuple(each for each in registry.NAMES if all(each in given for given in wanted))
    if not found:
        listed = sorted({", ".join(given) for given in wanted})
        raise InputError(
            "the members of a group must have a backend in common",
            argument="members",
            got="; ".join(listed),
            expected=f"{one_of(registry.NAMES)} for all",
        )
    return found


def group_files(
    group: Group,
    plans: Mapping[str, Plan],
    backends: Iterable[str],
    folders: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the text of every file in a group's folder, given its members' plans. `folders`: the
    folder of each member that is not named after it.

    Raises InputError, argument "members", unless all members are on the same devices and move
    values.
    """
    check_devices({member: plans[member].reshard for member in group.members})
    backends = tuple(backends)
    text = _text(group, plans, folders or {}, backends)
    said = {field: getattr(text, field) for field in GroupText.__dataclass_fields__}
    first = group_id(group, {member: plans[member].reshard for member in group.members})
    modules = {
        name: GroupModule(
            **said,
            backend=name,
            support=version(name),
            devices=plans[group.members[0]].devices,
            positions=plans[group.members[0]].reshard.source.mesh.size,
            grouping=registry.backend(name).grouping,
            collective_id=first if registry.contract(name).collective else None,
        )
        for name in backends
    }
    return {
        **{f"{name}.py": render(m.grouping.template, m) for name, m in modules.items()},
        "README.md": render("common/group.md.jinja", text),
        "__init__.py": render("common/group_package.py.jinja", text),
    }


def _text(
    group: Group, plans: Mapping[str, Plan], folders: Mapping[str, str], backends: tuple[str, ...]
) -> GroupText:
    folder_of = {member: folders.get(member, member) for member in group.members}
    kinds = list(dict.fromkeys(folder_of.values()))
    kind_of = tuple(kinds.index(folder_of[member]) for member in group.members)
    firsts = [group.members[kind_of.index(kind)] for kind in range(len(kinds))]
    counts = [kind_of.count(kind) for kind in range(len(kinds))]
    received = sum(
        count * bytes_by_rank(name, plans[name])[0]
        for name, count in zip(firsts, counts, strict=True)
    )
    return GroupText(
        name=group.name,
        names=group.members,
        bundles=tuple(
            (folder, plan_hash(plans[name])) for folder, name in zip(kinds, firsts, strict=True)
        ),
        kind_of=kind_of,
        listed=tuple(
            f"{folder}{f', {count} times' * (count > 1)}: {_line(plans[name])}"
            for folder, name, count in zip(kinds, firsts, counts, strict=True)
        ),
        received=f"{int(np.max(received)):,}",
        received_total=f"{int(np.sum(received)):,}",
        command=group.command(),
        others=other_backends(backends),
    )


def _line(plan: Plan) -> str:
    reshard = plan.reshard
    shape = ", ".join(map(str, reshard.shape))
    return f"{reshard.dtype}[{shape}] {reshard.source} -> {reshard.target}"


def bytes_by_rank(name: str, plan: Plan) -> tuple[Any, Any]:
    """Return the bytes of a member that each device receives, and those that it sends, as two
    arrays by rank."""
    direct = _directly(name, plan)
    moved, ranks = direct.transfers(), direct.exchange.ranks
    sizes = np.where(moved.is_local, 0, moved.elements) * DTYPES[plan.reshard.dtype]
    received, sent = (
        np.bincount(np.searchsorted(ranks, ends), weights=sizes, minlength=plan.devices)
        for ends in (moved.receiver, moved.sender)
    )
    return received, sent


def _directly(name: str, plan: Plan) -> DirectPlan:
    """Return the direct plan by which a group moves a member, whatever plan the member has itself.
    Raises InputError for partial sums."""
    if plan.reshard.source.unreduced or plan.reshard.target.unreduced:
        raise InputError(
            "a group cannot reduce partial sums",
            argument="members",
            got=f"unreduced axes of {name}",
            expected="members without unreduced axes; emit the others alone",
        )
    return plan if isinstance(plan, DirectPlan) else direct_of(plan_of(plan.reshard, "direct"))
