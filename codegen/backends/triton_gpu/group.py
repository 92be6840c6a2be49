"""The module of a group: one launch, or one exchange, for the tensors of several bundles."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardwright.codegen.backends.triton_gpu.context import NAME, plan_hash
from shardwright.codegen.emit.support import version
from shardwright.codegen.emit.templates import render
from shardwright.codegen.spec.group import Group, check_devices
from shardwright.ir.dtypes import DTYPES
from shardwright.ir.plan import DirectPlan, Plan, direct_of


def group_files(
    group: Group, plans: Mapping[str, Plan], folders: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the text of every file of a group's folder, from the plans of its members; `folders`:
    those of the members that are not in one of their own name.

    Raises InputError, argument "members", unless all are on the same devices.
    """
    direct = {member: direct_of(plans[member]) for member in group.members}
    shared = tuple((name, folder) for name, folder in (folders or {}).items() if name in direct)
    text = _text(group, direct, tuple(pair for pair in shared if pair[0] != pair[1]))
    return {
        "triton_gpu.py": render("triton_gpu/group.py.jinja", text),
        "README.md": render("triton_gpu/group.md.jinja", text),
        "__init__.py": render("triton_gpu/group_package.py.jinja", text),
    }


@dataclass(frozen=True)
class GroupModule:
    """Everything the templates of a group print."""

    name: str
    plan: str
    count: int
    listed: tuple[str, ...]
    plans: tuple[tuple[str, str], ...]
    folders: tuple[tuple[str, str], ...]
    received: int
    received_total: int
    command: str
    support: str


def _text(
    group: Group, plans: Mapping[str, DirectPlan], folders: tuple[tuple[str, str], ...]
) -> GroupModule:
    check_devices({name: plan.reshard for name, plan in plans.items()})
    hashes = tuple((name, plan_hash(plan)) for name, plan in plans.items())
    return GroupModule(
        name=group.name,
        plan=hashlib.sha256(repr(hashes).encode()).hexdigest()[:16],
        count=len(plans),
        listed=tuple(f"{name}: {_line(plan)}" for name, plan in plans.items()),
        plans=hashes,
        folders=folders,
        received=_received_max(plans),
        received_total=sum(plan.traffic.received_total for plan in plans.values()),
        command=group.command(),
        support=version(NAME),
    )


def _line(plan: Plan) -> str:
    reshard = plan.reshard
    shape = ", ".join(map(str, reshard.shape))
    return f"{reshard.dtype}[{shape}] {reshard.source} -> {reshard.target}"


def _received_max(plans: Mapping[str, DirectPlan]) -> int:
    """Return bytes that the busiest device receives of all members."""
    total: Any = 0
    for plan in plans.values():
        moved = plan.transfers()
        ranks = np.searchsorted(plan.exchange.ranks, moved.receiver)
        sizes = np.where(moved.is_local, 0, moved.elements) * DTYPES[plan.reshard.dtype]
        total = total + np.bincount(ranks, weights=sizes, minlength=plan.devices)
    return int(np.max(total))
