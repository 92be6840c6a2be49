"""The mode `cheapest`: choose the splits of ops that make the whole program cheapest.

Given shardings of arguments, results and constraints are binding; everything else is free,
including operands and results of loops and branches. The cost of a program is the number of bytes
that its busiest device receives, plus its computation, counted as the bytes that it could receive
in the same time. The search starts from the propagated shardings and from a greedy pass. It changes
one op at a time, then an op together with the neighbours that adopt its sharding, as long as this
lowers the cost. On a topology, latencies may hide the saving of a single change, so the search also
starts from the result that it finds when only bytes count.

Then it tries the plans that `as_shardy` compares and the ideas of `seeds.py`: it improves each of
them op by op, and the cheapest one fully. Received bytes are exact, but computation is an estimate,
because compilers fuse ops. So a plan found from one of them is used only if it costs less than the
plan found before and receives no more bytes. Then the search replaces all-reduces by
reduce-scatters where this lowers the cost. Where it saves enough, devices may then receive more
bytes, but never more than the plans of `as_shardy`. Small updates, such as that of a bias, are
computed whole on every device if devices then receive fewer bytes. Where bytes alone count, a plan
of `as_shardy` that receives no more and costs less replaces the plan found: the search prices the
moves of each op alone, so its prices may be a little higher than a plan's cost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from shardwright.codegen.partition.local.axes import CutAxes, cut_axes
from shardwright.codegen.partition.local.costs import Costs
from shardwright.codegen.partition.local.idle import without_idle_constraints
from shardwright.codegen.partition.local.late import with_late_sums
from shardwright.codegen.partition.local.lower import Choice, lower
from shardwright.codegen.partition.local.price_search import EXTRA, PriceSearch
from shardwright.codegen.partition.local.priced_plan import PricedPlan
from shardwright.codegen.partition.local.prices import Ratings
from shardwright.codegen.partition.local.seeds import seeds
from shardwright.codegen.partition.local.shardy import (
    propagated_choices,
    propagated_layouts,
    propagated_plans,
)
from shardwright.codegen.partition.local.steps import LocalProgram, moves_of
from shardwright.codegen.partition.local.work import cost, received
from shardwright.ir.mesh import Mesh
from shardwright.ir.program import Program


def cheapest(program: Program, mesh: Mesh, ratings: Ratings) -> LocalProgram:
    """Return the cheapest program of one device that the search finds for a propagated program."""
    program = without_idle_constraints(program)
    axes = cut_axes(program, mesh, ratings.topology)
    given = list(propagated_layouts(program, axes))
    known = [dict(propagated_choices(program, axes, layouts)) for layouts in given]
    late = [with_late_sums(program, axes, *each)[0] for each in zip(known, given, strict=True)]
    choice = _searched(program, axes, known[0], late, ratings)
    found = lower(program, axes, choice, [None] * len(program.values), ratings.regather)
    if axes.rates.pace or ratings.held or not ratings.seeded:
        return found
    most = received(found)
    plans = (each for each in propagated_plans(program, axes, ratings) if received(each) <= most)
    return min((found, *plans), key=cost)


def _searched(
    program: Program,
    axes: CutAxes,
    known: Choice,
    shardy: Sequence[Choice],
    ratings: Ratings,
) -> Choice:
    """Return the cheapest splits that the search finds. `known`: the propagated splits;
    `shardy`: those that the mode `as_shardy` compares."""
    costs = Costs(program, axes, ratings)
    bound = {n: known[op.results[0]] for n, op in enumerate(costs.ops) if op.kind == "constrain"}
    search = PriceSearch(costs, bound)
    begin: list[Callable[[], None]] = [search.greedy, partial(search.start, known)]
    if axes.rates.pace:
        by_bytes = replace(axes, rates=replace(axes.rates, pace=None))
        begin.append(partial(search.start, _searched(program, by_bytes, known, shardy, ratings)))
    found = [search.plan(start, search.improve) for start in begin]
    best = min(found, key=PricedPlan.by_price)
    if not ratings.seeded:
        return search.received_less(search.rounded_less(best))
    lowered = partial(_lowered, program, axes, ratings)
    starts: list[Callable[[], None]] = [partial(search.start, each) for each in shardy]
    starts += seeds(costs, bound)
    settled = [search.plan(start, search.settle) for start in starts]
    settled.sort(key=PricedPlan.by_price)
    ideas = (search.improved(settled[0]), *settled)
    better = [plan for plan in ideas if plan.price < best.price]
    chosen = _spread(search, _first_sure(better, best, lowered), starts[: len(shardy)], lowered)
    return search.received_less(search.rounded_less(chosen))


def _spread(
    search: PriceSearch,
    best: PricedPlan,
    shardy: Sequence[Callable[[], None]],
    lowered: Callable[[PricedPlan], LocalProgram],
) -> PricedPlan:
    """Return a plan with reduce-scatters in place of all-reduces, so that devices share the
    computation between collectives. Return `best` if the plan costs no less. If the plan receives
    more bytes, return it only if it costs less by more than the share `EXTRA`, and receives no more
    than any plan of `as_shardy`."""
    plan = search.plan(partial(search.start, best.choice), search.spread)
    if plan.price >= best.price:
        return best
    most = received(lowered(plan))
    if most <= received(lowered(best)):
        return plan
    unchanged = (lowered(search.plan(start, _unchanged)) for start in shardy)
    is_cheap = (1 + EXTRA) * plan.price < best.price
    return plan if is_cheap and all(most <= received(each) for each in unchanged) else best


def _unchanged() -> None:
    """Improve nothing."""


def _first_sure(
    better: Sequence[PricedPlan], best: PricedPlan, lowered: Callable[[PricedPlan], LocalProgram]
) -> PricedPlan:
    """Return the first of the plans that receives no more bytes than `best`, or as many in no more
    collectives; `best` if there is none. Bytes are exact here: the search itself counts a fetched
    halo that several ops share once per op."""
    if not better:
        return best
    own = lowered(best)
    most = received(own), _runs(own)
    for plan in better:
        local = lowered(plan)
        if (received(local), _runs(local)) <= most:
            return plan
    return best


def _runs(local: LocalProgram) -> int:
    """Return how often a device takes part in a collective."""
    return sum(times for step, times in moves_of(local) if step.is_sent)


def _lowered(program: Program, axes: CutAxes, ratings: Ratings, plan: PricedPlan) -> LocalProgram:
    return lower(program, axes, plan.choice, [None] * len(program.values), ratings.regather)
