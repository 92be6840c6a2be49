"""A summary of a reshard: the first lines that `show` prints."""

from __future__ import annotations

from shardwright.ir.plan import ENUMERATED_DEVICES, DirectPlan
from shardwright.ir.sharding import Sharding


def summary(plan: DirectPlan) -> str:
    """Return lines with the tensor, the two shardings, the bytes sent and received with their
    lower bounds, and the number of tiles."""
    reshard, traffic = plan.reshard, plan.traffic
    shape = "x".join(map(str, reshard.shape)) or "a scalar"
    lines = [
        f"{reshard.dtype} {shape}, {reshard.nbytes:,} bytes, on {plan.devices} devices",
        f"from {_side(reshard.source, reshard.shape)}",
        f"to   {_side(reshard.target, reshard.shape)}",
        f"a device receives at most {traffic.received_max:,} bytes and sends at most "
        f"{traffic.sent_max:,}; all together receive {traffic.received_total:,}",
        f"at least: {traffic.bound_received_max:,}, {traffic.bound_sent_max:,}, "
        f"{traffic.bound_received_total:,}",
    ]
    if plan.devices <= ENUMERATED_DEVICES:
        found = plan.transfers()
        kept = int(found.is_local.sum())
        lines.append(f"{len(found) - kept} tiles go to other devices, {kept} stay where they are")
    lines.append("below: how the tiles are derived, all tiles, and pictures of them")
    return "\n".join(lines)


def _side(sharding: Sharding, shape: tuple[int, ...]) -> str:
    local = "x".join(map(str, sharding.local_shape(shape))) or "a scalar"
    return f"{sharding} on {sharding.mesh}: {local} a device"
