"""Choose the executor for a JAX array: a backend's module, or XLA itself if it is as good."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from shardwright.codegen import registry
from shardwright.codegen.hardware.presets import topology_of
from shardwright.codegen.hardware.topology import Switch, Topology
from shardwright.codegen.moves.plan import network_of
from shardwright.codegen.moves.xla import XlaCollectives
from shardwright.codegen.operations.emit.choice import plan as plan_of
from shardwright.codegen.operations.emit.verdict import Priced, priced, verdict, xla_peer
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
"""The names of chips, by their `device_kind` in jaxlib's topologies."""


@dataclass(frozen=True)
class Way:
    """A plan, the backend that executes it (None for XLA itself), and the reason for the choice, in
    words."""

    plan: Plan | None
    backend: str | None
    why: str


def way_of(reshard: Reshard, devices: list[Any], ask: Callable[[], XlaCollectives] | None) -> Way:
    """Return the executor of a reshard on JAX devices with the shortest predicted time. XLA wins a
    tie.

    `ask` returns XLA's own plan; None excludes XLA. XLA's plan is also excluded if XLA does not
    find the best collectives, in which case XLA warns of a rematerialization and moves more
    bytes.
    """
    found = None if ask is None or not _is_xlas(reshard) else ask()
    where = topology_on(devices)
    network = network_of(reshard, where)
    ways = [way for name in _candidates() for way in _priced_ways(reshard, name, where)]
    plan, best = min(ways, key=lambda way: way[1].cost.seconds)
    peer = None if found is None else xla_peer(reshard, found, network)
    why = verdict(best, plan, peer, str(where))
    if peer is not None and peer.seconds <= best.cost.seconds:
        return Way(None, None, why)
    return Way(plan, best.backend, why)


def _is_xlas(reshard: Reshard) -> bool:
    """Return whether a reshard needs only all-gathers, only slices, a single all-to-all, or no step
    at all."""
    name = next(each.name for each in registry.every() if "basis" in each.executes)
    plan = plan_of(reshard, "basis", backends=(name,))
    ops = [step.op for step in plan.steps] if isinstance(plan, SteppedPlan) else []
    alone = ops in ([], ["all_to_all"])
    return alone or {*ops} in ({"all_gather"}, {"slice"})


def _priced_ways(reshard: Reshard, name: str, where: Topology) -> list[tuple[Plan, Priced]]:
    try:
        plan = plan_of(reshard, topology=where, backends=(name,))
    except InputError:
        return []
    return [(plan, one) for one in priced(plan, (name,), network_of(reshard, where))]


def _candidates() -> list[str]:
    return [name for name in registry.NAMES if "jax" in registry.runtime(name).packages]


def topology_on(devices: list[Any]) -> Topology:
    """Return the topology of JAX devices: a CPU, a preset for the GPUs of one process, a TPU slice
    with its shape, or else a switch.

    `devices`: all devices of the slice, each with `device_kind`, and on a TPU with `coords`.
    """
    first = devices[0]
    if first.platform == "cpu":
        return _of_any_size("cpu:1")
    gpu = next((name for name in ("h100", "h200") if name.upper() in first.device_kind), None)
    if gpu is not None and len({device.process_index for device in devices}) == 1:
        return _of_any_size(gpu)
    return _slice_of(devices) or topology_of("switch")


def _of_any_size(name: str) -> Switch:
    found = topology_of(name)
    assert isinstance(found, Switch)
    return replace(found, size=None)


def _slice_of(devices: list[Any]) -> Topology | None:
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
