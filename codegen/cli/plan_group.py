"""The output of `shardwright plan` for a group: its kinds of reshards, and the bytes of all
tensors."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from shardwright.codegen.cli.tables import console
from shardwright.codegen.spec.group import Group

if TYPE_CHECKING:
    from shardwright.ir.plan import Plan

Kinds = Mapping[str, "tuple[Plan, int]"]
"""The plan for each folder of bundles, and the number of tensors with this plan."""


def group_json(
    group: Group, kinds: Kinds, folders: Mapping[str, str], *, transfers: bool = False
) -> str:
    """Return the plans and bytes of all tensors as JSON, one tensor per line. `folders`: the folder
    of each tensor; `transfers`: whether to list transfers too."""
    said = {folder: plan.to_dict(transfers=transfers) for folder, (plan, _) in kinds.items()}
    lines = (json.dumps({"name": name, **said[folders[name]]}) for name in group.members)
    tensors = ",\n  ".join(lines)
    head = f'"name": {json.dumps(group.name)}, "bytes": {json.dumps(_bytes(kinds))}'
    return f'{{{head}, "tensors": [\n  {tensors}\n]}}\n'


def print_group(group: Group, kinds: Kinds) -> None:
    """Print the plans of a group as a table, and the bytes of all tensors."""
    from rich.markup import escape
    from rich.table import Table

    table = Table("bundle", "tensors", "moves", "received by the busiest device")
    for folder, (plan, count) in kinds.items():
        reshard = plan.reshard
        shape = "x".join(map(str, reshard.shape)) or "()"
        moves = f"{reshard.dtype} {shape}: {reshard.source} -> {reshard.target}"
        table.add_row(folder, str(count), escape(moves), f"{plan.traffic.received_max:,}")
    console().print(table)
    first, _ = next(iter(kinds.values()))
    source, target = first.reshard.source.mesh, first.reshard.target.mesh
    print(f"{len(group.members)} tensors, {source} -> {target}, in one exchange")
    for what, count in _bytes(kinds).items():
        print(f"{what.replace('_', ' ')}: {count:,} bytes")


def _bytes(kinds: Kinds) -> dict[str, int]:
    """Return the bytes of all tensors, in total and on the busiest device."""
    from shardwright.codegen.operations.emit.group import bytes_by_rank

    received: Any = 0
    sent: Any = 0
    for name, (plan, count) in kinds.items():
        taken, given = bytes_by_rank(name, plan)
        received, sent = received + count * taken, sent + count * given
    return {
        "received_max": int(received.max()),
        "received_total": int(received.sum()),
        "sent_max": int(sent.max()),
    }
