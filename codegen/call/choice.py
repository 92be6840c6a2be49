"""Who reshards an array of JAX: the module of a backend, or XLA itself where it is as good."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shardwright.codegen.backends import registry
from shardwright.codegen.emit.choice import plan as plan_of
from shardwright.codegen.emit.verdict import AS_FAST, Priced, priced, verdict, xla_peer
from shardwright.codegen.hardware.presets import topology_of
from shardwright.codegen.hardware.topology import Topology
from shardwright.codegen.planner.plan import network_of
from shardwright.codegen.planner.xla import XlaCollectives
from shardwright.ir.errors import InputError
from shardwright.ir.plan import Plan, SteppedPlan
from shardwright.ir.reshard import Reshard

_KINDS = {
    "TPU v4": "v4",
    "TPU v5 lite": "v5e",
    "TPU v5e": "v5e",
    "TPU v5": "v5p",
    "TPU v5p": "v5p",
    "TPU v6 lite": "v6e",
    "TPU v6e": "v6e",
    "TPU7x": "tpu7x",
}
"""Names of chips by what `device_kind` says, as jaxlib's topologies do."""


@dataclass(frozen=True)
class Way:
    """A plan with the backend that carries it out, or None for XLA itself, and why in words."""

    plan: Plan | None
    backend: str | None
    why: str


def way_of(reshard: Reshard, devices: list[Any], ask: Callable[[], XlaCollectives] | None) -> Way:
    """Return who does a reshard on devices of JAX; `ask`: for what XLA does, None where it has no
    plan of its own.

    XLA is asked where collectives do it that it finds by itself: elsewhere it warns of a
    rematerialization and moves more. On a slice of TPUs seconds of the model decide. Elsewhere,
    where nothing is known of links, it is bytes: XLA is as good where its busiest device receives
    no more than the least.
    """
    found = None if ask is None or not _is_xlas(reshard) else ask()
    where = topology_on(devices)
    if where is not None:
        return _by_seconds(reshard, where, found)
    name = next(each.name for each in registry.every() if each.portable)
    plan = plan_of(reshard, backends=(name,))
    least = plan.traffic.received_max
    if found is not None and found.received_max <= (1 + AS_FAST) * least:
        return Way(None, None, f"XLA's own plan moves {found.received_max:,} bytes, as few")
    beside = "" if found is None else f", XLA's own plan {found.received_max:,} ({found.steps})"
    return Way(plan, name, f"the busiest device receives {least:,} bytes{beside}")


def _is_xlas(reshard: Reshard) -> bool:
    """Return whether nothing moves, or all-gathers, slices, or one all-to-all alone do it."""
    name = next(each.name for each in registry.every() if "basis" in each.executes)
    plan = plan_of(reshard, "basis", backends=(name,))
    ops = [step.op for step in plan.steps] if isinstance(plan, SteppedPlan) else []
    alone = ops in ([], ["all_to_all"])
    return alone or {*ops} in ({"all_gather"}, {"slice"})


def _by_seconds(reshard: Reshard, where: Topology, found: XlaCollectives | None) -> Way:
    network = network_of(reshard, where)
    ways = [way for name in _candidates() for way in _priced_ways(reshard, name, where)]
    plan, best = min(ways, key=lambda way: way[1].cost.seconds)
    peer = None if found is None else xla_peer(reshard, found, network)
    why = verdict(best, plan, peer, str(where))
    if peer is not None and peer.seconds <= (1 + AS_FAST) * best.cost.seconds:
        return Way(None, None, why)
    return Way(plan, best.backend, why)


def _priced_ways(reshard: Reshard, name: str, where: Topology) -> list[tuple[Plan, Priced]]:
    """Return the plan of a backend with its price, nothing where the backend has none."""
    try:
        plan = plan_of(reshard, topology=where, backends=(name,))
    except InputError:
        return []
    return [(plan, one) for one in priced(plan, (name,), network_of(reshard, where))]


def _candidates() -> list[str]:
    """Return the backends whose modules take arrays of JAX."""
    return [name for name in registry.NAMES if "jax" in registry.runtime(name).packages]


def topology_on(devices: list[Any]) -> Topology | None:
    """Return the topology of the slice that devices of JAX are in, None where it is not known: on
    other platforms, for several slices, and for slices of unknown form.

    `devices`: all of the slice, each with `device_kind` and `coords`.
    """
    name = _KINDS.get(devices[0].device_kind)
    slices = {getattr(device, "slice_index", 0) for device in devices}
    if name is None or len(slices) > 1:
        return None
    sizes = [1 + max(at) for at in zip(*(device.coords for device in devices), strict=True)]
    for count in (2, 3):
        if all(size == 1 for size in sizes[count:]):
            try:
                return topology_of(f"{name}:{'x'.join(map(str, sizes[:count]))}")
            except InputError:
                continue
    return None
