"""Relayouts that are reshards of one tensor: backends that pad emit the reshard's module for
them."""

from __future__ import annotations

from shardwright.codegen import registry
from shardwright.codegen.moves import plan as plan_of
from shardwright.codegen.operations.emit.modules import parts
from shardwright.codegen.spec.collective_ids import relayout_id
from shardwright.codegen.spec.relayout import RelayoutDescription
from shardwright.codegen.text.context import quoted
from shardwright.ir.errors import InputError
from shardwright.ir.plan import Plan
from shardwright.ir.relayout import Relayout, as_reshard


def plan_as_reshard(relayout: Relayout, backend: str) -> Plan | None:
    """Return the plan of the reshard whose module a backend emits for a relayout.

    Return None, so that the module lists boxes, in three cases: the relayout is not a reshard or
    moves nothing; the backend refuses the reshard; its module would receive more than the minimum
    bytes.
    """
    reshard = as_reshard(relayout) if registry.contract(backend).pads else None
    if reshard is None:
        return None
    renders = registry.backend(backend)
    try:
        plan = plan_of(reshard, "direct")
        renders.refuse(plan)
    except InputError:
        return None
    least = plan.traffic.received_max
    return plan if least and renders.timeline(plan).wire_bytes == least else None


def modules_as_reshard(
    plan: Plan, backend: str, relayout: Relayout, description: RelayoutDescription
) -> dict[str, str]:
    """Return the text of a reshard's module for a relayout and, if gradients are requested, of its
    backward module, by file name."""
    (before,), (after,) = relayout.source.buffers, relayout.target.buffers
    found = parts(
        plan,
        backend,
        description.command(),
        gradient=description.gradient,
        single_file=True,
        collective_id=relayout_id(description),
        buffers=(quoted(before), quoted(after)),
    )
    return {part.file: part.text for part in found}
