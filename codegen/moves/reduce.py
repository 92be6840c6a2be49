"""Direct plans that reduce partial sums, in one exchange or in two.

One exchange brings all partial sums to every replica of a value. Two exchanges reduce each value on
one device, and then copy it to its replicas. To divide the work, a plan cuts along a dimension
either each target shard, into one part per replica, or each source shard, into one part per device
with a partial sum of it. In the latter case every device already holds a partial sum of its part.
The second exchange costs a launch and a barrier over all devices.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from shardwright.codegen.hardware.presets import topology_of
from shardwright.codegen.moves.basis.traffic import traffic_of
from shardwright.codegen.moves.direct import plan_direct
from shardwright.codegen.moves.memory import beyond_limit, check_limit, held_in_exchange
from shardwright.codegen.moves.network.links import Network
from shardwright.ir.axes import AxisRef
from shardwright.ir.plan import DirectPlan, Plan, Prediction, SteppedPlan
from shardwright.ir.reshard import Reshard
from shardwright.ir.sharding import DimSharding, Sharding
from shardwright.ir.steps import Ends, MoveStep


def plan_reduced(
    reshard: Reshard,
    network: Network,
    memory_limit: int | None = None,
    *,
    is_priced: bool = True,
    in_two: bool = True,
) -> DirectPlan | SteppedPlan:
    """Return the plan of a reshard that reduces partial sums in one or two exchanges, whichever is
    faster on a network.

    `memory_limit`: the maximum bytes on a device at any time. `is_priced`: whether the plan has a
    prediction. `in_two`: whether two exchanges are allowed. Raises InputError for a limit below
    both shards and the partial sums that arrive.
    """
    if memory_limit is not None:
        check_limit(reshard, memory_limit)
    once = plan_direct(reshard, network=network, memory_limit=memory_limit)
    twos = [_in_two(reshard, parts, network, memory_limit) for parts in parts_of(reshard) if in_two]
    peak = held_in_exchange(reshard)
    if memory_limit is not None:
        least = min([peak, *(each.prediction.peak_bytes for each in twos)])
        if least > memory_limit:
            raise beyond_limit(memory_limit, least)
        twos = [each for each in twos if each.prediction.peak_bytes <= memory_limit]
        if peak > memory_limit:
            return _least(twos)
    if twos and once.prediction is not None:
        twice = _least(twos)
        if twice.prediction.seconds < once.prediction.seconds:
            return twice
    return once if is_priced else replace(once, prediction=None)


def _least(plans: list[SteppedPlan]) -> SteppedPlan:
    return min(plans, key=lambda made: (made.prediction.seconds, made.traffic.received_total))


def reduced_like(plan: Plan, like: Plan) -> Plan:
    """Return the plan of the reshard of `plan` with as many exchanges as `like`, the plan of a
    larger tensor."""
    two = isinstance(like, SteppedPlan)
    if not plan.reshard.adds or two == isinstance(plan, SteppedPlan):
        return plan
    if not two:
        return plan_direct(plan.reshard)
    network = _network_of(plan.reshard, "switch")
    made = [_in_two(plan.reshard, parts, network, None) for parts in parts_of(plan.reshard)]
    return _least(made) if made else plan


def halves_of(plan: SteppedPlan) -> tuple[DirectPlan, DirectPlan]:
    """Return the two exchanges of a plan as separate plans: the first reduces partial sums to parts
    of target shards, and the second copies the parts."""
    network = _network_of(plan.reshard, plan.prediction.topology)
    first, second = _halves(plan.reshard, plan.steps[0].ends.after)
    return plan_direct(first, network=network), plan_direct(second, network=network)


def _halves(reshard: Reshard, parts: Sharding) -> tuple[Reshard, Reshard]:
    split = reshard.target_split
    return replace(reshard, target=parts), replace(reshard, source=parts, source_split=split)


def _network_of(reshard: Reshard, topology: str) -> Network:
    sides = reshard.source.mesh, reshard.target.mesh
    return Network(topology_of(topology), 1 + max(max(mesh.device_ids) for mesh in sides))


def parts_of(reshard: Reshard) -> Iterator[Sharding]:
    """Yield the shardings between the two exchanges of a reshard, with one part per device.

    First, target shards are cut into one part per replica. Then, if both sides are on one mesh,
    source shards are cut into one part per device with the shard or a partial sum of it. Yields
    nothing if target shards have no replicas, if a part would be empty, and for new unreduced axes.
    """
    source, target = reshard.source, reshard.target
    if reshard.places:
        return
    shape = target.local_shape(reshard.shape)
    yield from _cut(target, shape, target)
    if source.mesh == target.mesh:
        shape = source.local_shape(reshard.shape)
        yield from _cut(source, shape, target)


def _cut(side: Sharding, shape: tuple[int, ...], target: Sharding) -> Iterator[Sharding]:
    """Yield, for each dimension, the sharding of a side with that dimension cut further, along
    all axes that neither split the side nor stay unreduced in the target. `shape`: the shape of a
    shard."""
    used = (*(ref for dim in side.dims for ref in dim.axes), *target.unreduced)
    free = target.mesh.refs_free_of(used)
    count = 1
    for ref in free:
        count *= target.mesh.full_size(ref)
    for axis, dim in enumerate(side.dims):
        if count > 1 and shape[axis] >= count:
            cut = replace(dim, axes=(*dim.axes, *free))
            dims: tuple[DimSharding, ...] = (*side.dims[:axis], cut, *side.dims[axis + 1 :])
            yield replace(target, dims=dims, replicated=())


def _in_two(
    reshard: Reshard, parts: Sharding, network: Network, memory_limit: int | None
) -> SteppedPlan:
    split = reshard.target_split
    halves = _halves(reshard, parts)
    made = [plan_direct(half, network=network) for half in halves]
    ends = (
        Ends(reshard.fate.reduced, reshard.source, parts, reshard.source_split, split),
        Ends(_added(parts, reshard.target), parts, reshard.target, split, split),
    )
    steps = (
        MoveStep("reduce_scatter", ends[0], made[0].exchange),
        MoveStep("all_gather", ends[1], made[1].exchange),
    )
    # All devices synchronise before and after the second exchange, with one message each time.
    waits = 0.0, 2 * network.topology.least_latency
    seconds = (each.prediction.seconds for each in made if each.prediction)
    costs = tuple(map(sum, zip(seconds, waits, strict=True)))
    said = Prediction(
        str(network.topology), sum(costs), costs, None,
        max(map(held_in_exchange, halves)), memory_limit,
    )  # fmt: skip
    traffic = traffic_of(reshard, steps)
    return SteppedPlan(reshard=reshard, steps=steps, traffic=traffic, prediction=said, by="direct")


def _added(parts: Sharding, target: Sharding) -> tuple[AxisRef, ...]:
    return parts.mesh.refs_free_of((*target.used(), *target.unreduced))
