"""The basis plan: the cheapest sequence of collectives under a topology."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np

from shardwright.codegen.planner.basis.bound import Estimates
from shardwright.codegen.planner.basis.graph import Basis
from shardwright.codegen.planner.basis.guided import ALIKE, Guided
from shardwright.codegen.planner.basis.naming import Naming, split_of
from shardwright.codegen.planner.basis.permutes import Permutes
from shardwright.codegen.planner.basis.search import Allowed, Path, Search
from shardwright.codegen.planner.basis.traffic import traffic_of
from shardwright.codegen.planner.memory import check_limit, shard_bytes
from shardwright.codegen.planner.network.flows import flows
from shardwright.codegen.planner.network.links import Network
from shardwright.ir.errors import InputError
from shardwright.ir.exchange import Exchange, HolderRule, ids_of, same_devices
from shardwright.ir.layout import Layout
from shardwright.ir.plan import Prediction, SteppedPlan
from shardwright.ir.reshard import Reshard
from shardwright.ir.steps import Ends, MoveStep, ReduceStep, Step
from shardwright.ir.unreduced import Fate

# Shards of up to so many bytes may be held on the way, however small source and target are: what
# they take does not matter, and one gather of a small tensor takes least.
SMALL_BYTES = 1 << 20


def plan_basis(reshard: Reshard, network: Network, memory_limit: int | None = None) -> SteppedPlan:
    """Return the cheapest sequence of slices, all-gathers, all-to-alls, permutes and reductions.

    No shard in between is larger than the larger one of source and target, but for such as are
    within SMALL_BYTES, or, with a limit, no step holds more before and after than that. Where the
    default cannot be met, the plan says why.
    Raises InputError for meshes of different devices, sums of booleans, and a limit that leaves no
    sequence.
    """
    _check_devices(reshard)
    if reshard.reads_one or not _keeps_terms(reshard):
        raise _none(reshard, None)
    if memory_limit is not None:
        check_limit(reshard, memory_limit)
    moved = _moved(reshard.moving, network, memory_limit)
    if reshard.places:
        return _placed(moved, reshard, memory_limit)
    return _of(reshard, moved.steps, moved)


def _moved(reshard: Reshard, network: Network, memory_limit: int | None) -> SteppedPlan:
    """Return the plan of a reshard without new unreduced axes."""
    basis = Basis(reshard, long_slices=memory_limit is not None)
    estimates = Estimates(basis, network)
    why = None
    path = _search(basis, estimates, within(estimates, memory_limit))
    if path is None and memory_limit is None:
        path = _search(basis, estimates, lambda _before, _after: True)
        largest = max(estimates.shard_bytes(s) for s in (basis.start, basis.goal))
        why = f"no sequence of basis steps keeps every shard within {largest:,.0f} bytes"
    if path is None:
        raise _none(reshard, memory_limit)
    steps = Naming(basis).steps(path.steps)
    costs = path.costs
    if steps and not path.steps:  # the same sharding, cut otherwise where it does not divide
        costs = (_routed(steps[0], network, reshard.itemsize),)
    states = [basis.start, *(move.after for move in path.steps)] + [basis.goal] * (not path.steps)
    held = [int(estimates.shard_bytes(state)) for state in states]
    peak = max(a + b for a, b in itertools.pairwise(held)) if steps else held[0]
    prediction = Prediction(
        str(network.topology), sum(costs), costs, path.bound, peak, memory_limit, why
    )
    traffic = traffic_of(reshard, steps)
    return SteppedPlan(reshard=reshard, steps=steps, traffic=traffic, prediction=prediction)


def _of(
    reshard: Reshard, steps: tuple[MoveStep | ReduceStep, ...], moved: SteppedPlan
) -> SteppedPlan:
    return replace(moved, reshard=reshard, steps=steps, traffic=traffic_of(reshard, steps))


def _placed(moved: SteppedPlan, reshard: Reshard, memory_limit: int | None) -> SteppedPlan:
    """Return the plan with one step more: along new unreduced axes one holder keeps the value.

    It comes last: along these axes devices are replicas until then, of which a step moves as much.
    """
    after, split = reshard.target, split_of(reshard.target_split)
    before = moved.reshard.target
    fate = Fate.of(before, after)
    layouts = (
        Layout.of(before, reshard.shape, split, (*fate.kept, *[None] * len(fate.new))),
        Layout.of(after, reshard.shape, split, (*fate.kept, *fate.new)),
    )
    ends = Ends(fate.new, before, after, split, split)
    step = MoveStep("replicated_to_unreduced", ends, Exchange(*layouts, HolderRule()))
    made = _of(reshard, (*moved.steps, step), moved)
    said = moved.prediction
    peak = max(said.peak_bytes, 2 * shard_bytes(reshard)[1])
    if memory_limit is not None and peak > memory_limit:
        raise _none(reshard, memory_limit)
    costs = (*said.step_seconds, 0.0)
    return replace(made, prediction=replace(said, step_seconds=costs, peak_bytes=peak))


def _routed(step: Step, network: Network, itemsize: int) -> float:
    assert isinstance(step, MoveStep)
    return network.seconds(network.total(flows(step.exchange, itemsize)))


def _search(basis: Basis, estimates: Estimates, allowed: Allowed) -> Path | None:
    """Return the cheapest path: where there are few shardings the exact one, unless the led search
    has one as good of fewer steps."""
    permutes = Permutes(basis, estimates)
    known = Guided(basis, estimates, permutes, allowed).run()
    if known is not None and not basis.is_exact:
        return known
    found = Search(basis, estimates, permutes, allowed, known).run()
    if found is None or known is None or len(known.steps) >= len(found.steps):
        return found
    is_alike = known.seconds <= (1 + ALIKE) * found.seconds
    return replace(known, bound=found.bound) if is_alike else found


def within(estimates: Estimates, memory_limit: int | None) -> Allowed:
    """Return whether steps are within a limit; without one, within the larger shard of the two
    sides, or SMALL_BYTES."""
    size, goal = estimates.shard_bytes, estimates.basis.goal
    largest = max(size(estimates.basis.start), size(goal), SMALL_BYTES)
    if memory_limit is None:
        return lambda _, after: after == goal or size(after) <= largest
    return lambda before, after: size(before) + size(after) <= memory_limit


def _check_devices(reshard: Reshard) -> None:
    source, target = ids_of(reshard.source.mesh), ids_of(reshard.target.mesh)
    if np.array_equal(np.sort(source), np.sort(target)):
        return
    shared = np.intersect1d(source, target).size
    sizes = f"meshes of {source.size} and {target.size} devices that share {shared}"
    if reshard.adds:
        raise InputError(
            "terms are reduced among one set of devices",
            argument="target",
            got=sizes,
            expected="a reshard to the source's devices, then another between the meshes",
        )
    raise InputError(
        "the steps of the basis need one set of devices before and after",
        argument="strategy",
        got=f"basis, for {sizes}",
        expected="direct, which works between any two meshes",
    )


def _keeps_terms(reshard: Reshard) -> bool:
    """Return whether what stays unreduced is the same digits of a device's position on both
    sides."""
    sides, kept = (reshard.source.mesh, reshard.target.mesh), reshard.fate.kept
    digits = [tuple(map(mesh.digit, kept)) for mesh in sides]
    return not kept or (same_devices(*sides) and digits[0] == digits[1])


def _none(reshard: Reshard, memory_limit: int | None) -> InputError:
    if memory_limit is None and reshard.adds:
        return InputError(
            "terms that stay unreduced stay in their order of devices",
            argument="target_mesh",
            got=f"another order, and {reshard.target}",
            expected="the source's order of devices, then a reshard to the other",
        )
    if memory_limit is None:
        return InputError(
            "no sequence of basis steps makes this reshard",
            argument="strategy",
            got="basis",
            expected="direct",
        )
    return InputError(
        "no sequence of basis steps fits in the memory limit",
        argument="memory_limit",
        got=f"{memory_limit} bytes",
        expected="strategy direct, which holds source and target only, or a larger limit",
    )
