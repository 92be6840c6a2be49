"""The basis plan: the cheapest sequence of collectives on a topology."""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass, replace

import numpy as np

from shardwright.codegen.moves.basis.bound import Estimates
from shardwright.codegen.moves.basis.boxed import fits
from shardwright.codegen.moves.basis.boxed import seconds_of as boxed_seconds
from shardwright.codegen.moves.basis.graph import Basis, State, product_of
from shardwright.codegen.moves.basis.guided import ALIKE, Guided
from shardwright.codegen.moves.basis.naming import Naming, split_of
from shardwright.codegen.moves.basis.permutes import Permutes
from shardwright.codegen.moves.basis.search import Allowed, Path, Search
from shardwright.codegen.moves.basis.traffic import traffic_of
from shardwright.codegen.moves.memory import check_limit, shard_bytes
from shardwright.codegen.moves.network.flows import flows
from shardwright.codegen.moves.network.links import Network
from shardwright.ir.errors import InputError
from shardwright.ir.exchange import Exchange, HolderRule, ids_of, same_devices
from shardwright.ir.layout import HiddenDim, Layout
from shardwright.ir.plan import Prediction, SteppedPlan
from shardwright.ir.reshard import Reshard
from shardwright.ir.steps import Ends, MoveStep, ReduceStep
from shardwright.ir.unreduced import Fate

# Intermediate shards of at most this many bytes are allowed in plans without a limit: their memory
# does not matter, and for a small tensor one gather is fastest.
SMALL_BYTES = 1 << 20
# The maximum number of devices of a mesh for which the boxes of a step are listed.
MOST_LISTED = 512


def plan_basis(reshard: Reshard, network: Network, memory_limit: int | None = None) -> SteppedPlan:
    """Return the cheapest sequence of slices, all-gathers, all-to-alls, permutes and reductions.

    `memory_limit`: the maximum bytes of the shards before and after a step together. Without a
    limit, no intermediate shard exceeds the source shard, the target shard or SMALL_BYTES,
    whichever is largest; if that is impossible, the prediction gives the reason. Raises InputError
    for meshes of different devices, for reshards that the basis does not support, and for a limit
    that no sequence meets.
    """
    _check_devices(reshard)
    if reshard.reads_one or not _keeps_terms(reshard):
        raise _none(reshard, None)
    if memory_limit is not None:
        check_limit(reshard, memory_limit)
    moved = _moved(reshard.moving, network, memory_limit)
    if reshard.places:
        return _placed(moved, reshard, memory_limit)
    return moved if moved.reshard is reshard else _of(reshard, moved.steps, moved)


def _moved(reshard: Reshard, network: Network, memory_limit: int | None) -> SteppedPlan:
    """Return the plan of a reshard without new unreduced axes."""
    basis = Basis(reshard, long_slices=memory_limit is not None)
    estimates = Estimates(basis, network)
    allowed, why = within(estimates, memory_limit), None
    path = _search(basis, estimates, allowed)
    if path is None and memory_limit is None:
        allowed = _whatever
        path = _search(basis, estimates, allowed)
        largest = max(estimates.shard_bytes(s) for s in (basis.start, basis.goal))
        why = f"no sequence of basis steps keeps every shard within {largest:,.0f} bytes"
    if path is None:
        raise _none(reshard, memory_limit)
    found = _Found.of(path, estimates)
    if not found.fits:
        fitting = _search(basis, estimates, _fitting(basis, allowed), must_find=False)
        found = _cheaper(found, fitting, estimates)
    traffic = traffic_of(reshard, found.steps)
    bound = found.path.bound
    if not basis.is_even:  # rounds of boxes may be cheaper than padded shards
        bound = min(bound, estimates.at_least(traffic.bound_received_max))
    said = Prediction(
        str(network.topology), sum(found.costs), found.costs, bound, found.peak(estimates),
        memory_limit, why,
    )  # fmt: skip
    return SteppedPlan(reshard=reshard, steps=found.steps, traffic=traffic, prediction=said)


@dataclass(frozen=True)
class _Found:
    """A path, the steps of its plan, the seconds of each step, and whether all steps are
    collectives on padded shards."""

    path: Path
    steps: tuple[MoveStep | ReduceStep, ...]
    costs: tuple[float, ...]
    fits: bool

    @staticmethod
    def of(path: Path, estimates: Estimates) -> _Found:
        """Return a path with its steps. A step whose shards do not nest is priced as all its
        transfers at once."""
        steps = Naming(estimates.basis).steps(path.steps)
        # A path without moves may still have a step, which changes how extents are split.
        known = path.costs or (0.0,) * len(steps)
        network, itemsize = estimates.network, estimates.basis.reshard.itemsize
        costs = [
            cost
            if isinstance(step, ReduceStep) or fits(step)
            else network.collective_seconds(network.total(flows(step.exchange, itemsize)))
            for step, cost in zip(steps, known, strict=True)
        ]
        return _Found(path, steps, tuple(costs), all(map(fits, steps)))

    def by_boxes(self, estimates: Estimates) -> _Found:
        """Return the same path, with each step whose shards do not nest priced as rounds of
        boxes."""
        reshard = estimates.basis.reshard
        ids = ids_of(reshard.source.mesh)
        if not same_devices(reshard.source.mesh, reshard.target.mesh):
            ids = np.sort(ids)
        costs = [
            cost if fits(step) else boxed_seconds(step, ids, estimates.network, reshard.itemsize)
            for step, cost in zip(self.steps, self.costs, strict=True)
        ]
        return replace(self, costs=tuple(costs))

    @property
    def seconds(self) -> float:
        return sum(self.costs)

    def peak(self, estimates: Estimates) -> int:
        """Return the maximum bytes of the tensor on a device at any time."""
        basis, moves = estimates.basis, self.path.steps
        states = [basis.start, *(move.after for move in moves)] + [basis.goal] * (not moves)
        held = [int(estimates.shard_bytes(state)) for state in states]
        return max(a + b for a, b in itertools.pairwise(held)) if self.steps else held[0]


def _cheaper(found: _Found, fitting: Path | None, estimates: Estimates) -> _Found:
    """Return the cheaper of two paths: one with steps whose shards do not nest, and one without.

    `fitting`: the path without such steps, or None. A step whose shards do not nest is priced as
    rounds of boxes or, on a mesh of more than MOST_LISTED devices, as all its transfers at once.
    """
    lists = estimates.basis.size <= MOST_LISTED
    other = None if fitting is None else _Found.of(fitting, estimates)
    if other is None or (other.fits and found.seconds < other.seconds):
        found = found.by_boxes(estimates) if lists else found
    return found if other is None or found.seconds < other.seconds else other


def _whatever(_before: State, _after: State) -> bool:
    return True


def _fitting(basis: Basis, allowed: Allowed) -> Allowed:
    return lambda before, after: basis.fit(before, after) and allowed(before, after)


def _of(
    reshard: Reshard, steps: tuple[MoveStep | ReduceStep, ...], moved: SteppedPlan
) -> SteppedPlan:
    return replace(moved, reshard=reshard, steps=steps, traffic=traffic_of(reshard, steps))


def _placed(moved: SteppedPlan, reshard: Reshard, memory_limit: int | None) -> SteppedPlan:
    """Return the plan `moved` with a final step, which makes the new axes of a reshard unreduced:
    along them, one device keeps the value. Until then devices are replicas along these axes, which
    does not change the cost of the other steps. Raises InputError if the limit is too small."""
    after, split = reshard.target, split_of(reshard.target_split)
    before = moved.reshard.target
    fate = Fate.of(before, after)
    kept, new = (
        tuple(HiddenDim.of((ref,), after.mesh) for ref in refs) for refs in (fate.kept, fate.new)
    )
    layouts = (
        Layout.of(before, reshard.shape, split, (*kept, *[HiddenDim(1)] * len(fate.new))),
        Layout.of(after, reshard.shape, split, (*kept, *new)),
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


def _search(
    basis: Basis, estimates: Estimates, allowed: Allowed, must_find: bool = True
) -> Path | None:
    """Return the cheapest path found, or None if none was found.

    With few enough shardings, this is the path of an exact search, unless the guided search found a
    path with fewer steps that is about as cheap. `must_find`: whether the guided search may exceed
    its limits to find a path.
    """
    permutes = Permutes(basis, estimates)
    known = Guided(basis, estimates, permutes, allowed, must_find).run()
    if not basis.is_exact:
        return known
    found = Search(basis, estimates, permutes, allowed, known).run()
    if found is None or known is None or len(known.steps) >= len(found.steps):
        return found
    is_alike = known.seconds <= (1 + ALIKE) * found.seconds
    return replace(known, bound=found.bound) if is_alike else found


def within(estimates: Estimates, memory_limit: int | None) -> Allowed:
    """Return a predicate that allows a step if its shards before and after together fit the limit.

    Without a limit, it allows a step if the shard after it is at most as large as the source shard,
    the target shard or SMALL_BYTES, or if the step reaches the target.
    """
    size, goal = estimates.shard_bytes, estimates.basis.goal
    largest = max(size(estimates.basis.start), size(goal), SMALL_BYTES)
    if memory_limit is None:
        is_small = functools.cache(lambda parts: estimates.bytes_of(parts) <= largest)
        return lambda _, after: is_small(product_of(after)) or after == goal
    return lambda before, after: size(before) + size(after) <= memory_limit


def _check_devices(reshard: Reshard) -> None:
    source, target = ids_of(reshard.source.mesh), ids_of(reshard.target.mesh)
    if np.array_equal(np.sort(source), np.sort(target)):
        return
    shared = np.intersect1d(source, target).size
    sizes = f"meshes of {source.size} and {target.size} devices that share {shared}"
    if reshard.adds:
        raise InputError(
            "partial sums can be reduced only within one set of devices",
            argument="target",
            got=sizes,
            expected="a reshard to the source's devices, then another between the meshes",
        )
    raise InputError(
        "the basis strategy needs the same devices before and after",
        argument="strategy",
        got=f"basis, for {sizes}",
        expected="direct, which works between any two meshes",
    )


def _keeps_terms(reshard: Reshard) -> bool:
    """Return whether the axes that stay unreduced are the same digits of the device position in
    both meshes, whose device orders must be equal."""
    sides, kept = (reshard.source.mesh, reshard.target.mesh), reshard.fate.kept
    digits = [tuple(map(mesh.digit, kept)) for mesh in sides]
    return not kept or (same_devices(*sides) and digits[0] == digits[1])


def _none(reshard: Reshard, memory_limit: int | None) -> InputError:
    if memory_limit is None and reshard.adds:
        return InputError(
            "axes that stay unreduced must keep their device order",
            argument="target_mesh",
            got=f"a different order of devices, and {reshard.target}",
            expected="the source's order of devices, then a second reshard to the other order",
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
