"""Choose the strategy of a reshard, and plan it."""

from __future__ import annotations

from collections.abc import Callable

from shardwright.codegen.hardware.presets import MOST_DEVICES, check_devices, topology_of
from shardwright.codegen.hardware.topology import Topology
from shardwright.codegen.moves.basis.plan import plan_basis
from shardwright.codegen.moves.direct import plan_direct
from shardwright.codegen.moves.network.links import Network
from shardwright.codegen.moves.reduce import plan_reduced
from shardwright.ir.errors import InputError, check_type, unknown, wrong_type
from shardwright.ir.plan import Plan
from shardwright.ir.reshard import Reshard

# With a topology, `auto` is the strategy with the fewest seconds. Without a topology, it is `basis`
# for a reshard that adds partial sums, and otherwise `direct`, whose exchange moves the fewest
# bytes.
STRATEGIES = ("auto", "direct", "basis")


def plan(
    reshard: Reshard,
    strategy: str = "auto",
    *,
    topology: str | Topology | None = None,
    memory_limit: int | None = None,
    among: tuple[str, ...] = STRATEGIES[1:],
    price: Callable[[Plan], float] | None = None,
    in_two: bool = True,
) -> Plan:
    """Return the plan of a reshard.

    `topology`: the topology that prices steps: a string such as `v5e:4x4` or `h100:2x8`
    (`codegen/hardware/presets.py`), a TOML file, or a Topology. `memory_limit`: the maximum bytes
    of the tensor on a device at any time. `among`: the strategies from which `auto` chooses.
    `price`: a function that returns the seconds of a plan, by default its prediction. `in_two`:
    whether partial sums may be reduced in two exchanges. Raises InputError for an unknown or
    unsuitable strategy, for too many devices, for a topology with too few devices, and for a limit
    below the shards that a device must hold at once.
    """
    check_type(reshard, Reshard, "Reshard(shape, dtype, source, target)", "reshard")
    for argument, mesh in (("mesh", reshard.source.mesh), ("target_mesh", reshard.target.mesh)):
        if mesh.size > MOST_DEVICES:
            raise InputError(
                "the mesh has too many devices to plan for",
                argument=argument,
                got=f"{mesh.size} devices",
                expected=f"at most {MOST_DEVICES}",
            )
    if strategy not in STRATEGIES:
        raise unknown("no such strategy", str(strategy), STRATEGIES, "strategy")
    network = None if topology is None else network_of(reshard, topology)
    if strategy == "direct" or (strategy == "auto" and among == ("direct",)):
        if reshard.adds:
            known = network or default_network(reshard)
            is_priced = network is not None
            return plan_reduced(reshard, known, memory_limit, is_priced=is_priced, in_two=in_two)
        return plan_direct(reshard, network=network, memory_limit=memory_limit)
    if strategy == "basis":
        return plan_basis(reshard, network or default_network(reshard), memory_limit)
    if reshard.adds:
        return plan_basis(reshard, network or default_network(reshard), memory_limit)
    if network is None:
        return plan_direct(reshard, memory_limit=memory_limit)
    return _cheapest(reshard, network, memory_limit, price or _seconds)


def _cheapest(
    reshard: Reshard, network: Network, memory_limit: int | None, price: Callable[[Plan], float]
) -> Plan:
    direct = plan_direct(reshard, network=network, memory_limit=memory_limit)
    try:
        basis = plan_basis(reshard, network, memory_limit)
    except InputError:  # the basis does not support this reshard
        return direct
    return basis if price(basis) < price(direct) else direct


def _seconds(plan: Plan) -> float:
    return plan.prediction.seconds if plan.prediction else 0.0


def default_network(reshard: Reshard) -> Network:
    """Return the network for reshards without a topology: a switch."""
    return network_of(reshard, "switch")


def network_of(reshard: Reshard, topology: str | Topology) -> Network:
    """Return the network of a topology for the devices of a reshard. Raises InputError for an
    invalid topology, and for a topology with too few devices."""
    if not isinstance(topology, str | Topology):
        raise wrong_type(topology, str, '"v5e:4x4", or a Topology', "topology")
    found = topology_of(topology) if isinstance(topology, str) else topology
    meshes = (reshard.source.mesh, reshard.target.mesh)
    devices = 1 + max(max(mesh.device_ids) for mesh in meshes)
    check_devices(found, devices)
    return Network(found, devices)
