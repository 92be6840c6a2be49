"""Loops that overlap communication with the product: devices multiply while they pass the parts of
an operand's last all-gather, or of the result's first reduce-scatter, around a ring.

Parts must have equal sizes, so the step must change one dimension, which divides evenly. An
iteration takes the time of its product or of the transfer of a part to the next device, whichever
is longer. A product takes the time of its arithmetic or of its memory traffic, whichever is longer.
Its traffic is the current part of each tensor that is cut into parts, and all of each other tensor
unless the device's cache can keep it. If the result is not cut, its partial sums are read too. On a
GPU each product is a kernel.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

import numpy as np

from shardwright.codegen.hardware.rates import cache_bytes
from shardwright.codegen.hardware.torus import Torus
from shardwright.codegen.moves.basis.boxed import layouts_of
from shardwright.codegen.moves.basis.digits import Digits, tail
from shardwright.codegen.moves.matmul.cycles import orders
from shardwright.codegen.moves.network.collectives import positions_of_groups
from shardwright.codegen.moves.network.links import Flows, Network
from shardwright.ir.dtypes import itemsize
from shardwright.ir.exchange import ids_of
from shardwright.ir.layout import DimLayout
from shardwright.ir.matmul import SIDES, Side
from shardwright.ir.matmul_plan import Loop, MatmulCandidate
from shardwright.ir.plan import SteppedPlan
from shardwright.ir.steps import MoveStep, ReduceStep, Step

DIRECTIONS: tuple[Literal[1, 2], ...] = (1, 2)


def looped(candidate: MatmulCandidate, network: Network) -> Iterator[MatmulCandidate]:
    """Yield the candidate with each possible loop, with its cost on a network."""
    for side in SIDES:
        step = _rotated(candidate, side)
        found = None if step is None else _ring(step)
        if step is None or found is None:
            continue
        axis, digits, size = found
        factor = candidate.multiplication.matmul.factors(side)[axis]
        count = math.prod(each for _, each in digits)
        for directions in DIRECTIONS:
            if size % directions == 0:
                loop = Loop(side, factor, digits, count, directions)
                yield _priced(candidate, loop, step, network)


def _rotated(candidate: MatmulCandidate, side: Side) -> MoveStep | ReduceStep | None:
    """Return the step that a loop may replace in the movement of a side: the last step of an
    operand if it is an all-gather, or the first step of the result if it is a reduce-scatter;
    otherwise None."""
    plan = candidate.move(side)
    if not isinstance(plan, SteppedPlan) or not plan.steps:
        return None
    step = plan.steps[0 if side == "out" else -1]
    return step if step.op == ("reduce_scatter" if side == "out" else "all_gather") else None


def _ring(step: Step) -> tuple[int, Digits, int] | None:
    """Return the dimension that a step changes, the digits that number its parts, and the extent of
    a part. Return None if the step changes several dimensions, or if parts differ in size."""
    before, after = layouts_of(step)
    pairs = zip(before.dims[before.hidden :], after.dims[after.hidden :], strict=True)
    changed = [(axis, *pair) for axis, pair in enumerate(pairs) if pair[0] != pair[1]]
    if len(changed) != 1:
        return None
    ((axis, old, new),) = changed
    small, large = sorted((old, new), key=lambda dim: -dim.parts)
    digits = tail(_pairs(small), _pairs(large))
    if not digits or not small.is_even:
        return None
    return axis, digits, small.size


def _pairs(dim: DimLayout) -> Digits:
    return tuple((digit.stride, digit.size) for digit in dim.digits)


def _priced(
    candidate: MatmulCandidate, loop: Loop, step: MoveStep | ReduceStep, network: Network
) -> MatmulCandidate:
    """Return the candidate with a loop in place of a step, in the fastest order of the ring."""
    number = SIDES.index(loop.side)
    plan, cost = candidate.moves[number], candidate.cost
    assert isinstance(plan, SteppedPlan)
    layouts = layouts_of(step)
    small = layouts[1] if isinstance(step, ReduceStep) else layouts[0]
    nbytes = math.prod(small.local_shape) * plan.reshard.itemsize
    turns = (
        (_turn(each, nbytes, network, candidate), each) for each in _laid(loop, candidate, network)
    )
    sent, loop = min(turns, key=lambda turn: turn[0])
    topology, products = network.topology, loop.count * loop.directions
    touched = _touched(candidate, loop, cache_bytes(topology))
    touching = touched / topology.memory if topology.memory else 0.0
    product = max(cost.multiplying, touching) + (products - 1) * topology.kernel
    at = plan.steps.index(step)
    rest = cost.moving[number] - plan.prediction.step_seconds[at]
    moving = tuple(
        rest + sent * (loop.count - 1) if n == number else each
        for n, each in enumerate(cost.moving)
    )
    hidden = (loop.count - 1) * min(sent, product / loop.count)
    lhs, rhs, out = moving
    made = replace(
        cost,
        touched=touched,
        touching=touching,
        launch=cost.launch + (products - 1) * topology.kernel,
        moving=(lhs, rhs, out),
        hidden=hidden,
        apart=cost.seconds,
    )
    return replace(candidate, loop=loop, cost=made)


def _touched(candidate: MatmulCandidate, loop: Loop, cache: int) -> int:
    """Return the bytes of memory that the products of all iterations read and write. `cache`: the
    bytes that a device can keep between products."""
    product, total = candidate.multiplication, 0
    matmul = product.matmul
    for side in SIDES:
        own = math.prod(product.local_shape(side)) * itemsize(matmul.dtype_of(side))
        is_cut = loop.factor in matmul.factors(side)
        each = 2 * own if side == "out" else own
        total += own if is_cut or own <= cache else own + (loop.count - 1) * each
    return total


def _laid(loop: Loop, candidate: MatmulCandidate, network: Network) -> Iterator[Loop]:
    """Yield the loop with each possible order of its ring: ascending and, on a torus, cycles in
    which a step is one link."""
    yield loop
    topology = network.topology
    if isinstance(topology, Torus):
        mesh = candidate.multiplication.matmul.mesh
        first, *_ = ids_of(mesh)[positions_of_groups(loop.digits, mesh.size)]
        for order in orders(topology.coordinates(first)):
            yield replace(loop, order=order)


def _turn(loop: Loop, nbytes: int, network: Network, candidate: MatmulCandidate) -> float:
    """Return the time in seconds that every device takes to send a part of `nbytes` bytes to the
    next device of its ring, half of it each way if the loop has two directions."""
    mesh = candidate.multiplication.matmul.mesh
    rings = ids_of(mesh)[positions_of_groups(loop.digits, mesh.size)][:, loop.places]
    ways = [np.roll(rings, -1, axis=1)]
    ways += [np.roll(rings, 1, axis=1)] if loop.directions == 2 else []
    sender = np.concatenate([rings.ravel() for _ in ways])
    receiver = np.concatenate([way.ravel() for way in ways])
    weight = np.full(sender.size, nbytes / loop.directions)
    return network.collective_seconds(network.load(Flows(sender, receiver, weight)))
