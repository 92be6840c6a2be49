"""The predicted cost of a bundle's module on a topology, by the planner's model."""

from __future__ import annotations

from collections.abc import Callable

from shardwright.codegen import registry
from shardwright.codegen.hardware.presets import check_devices
from shardwright.codegen.hardware.rates import check_multiplies, multiply_rate
from shardwright.codegen.hardware.topology import Topology
from shardwright.codegen.moves.matmul.plan import plan_matmul
from shardwright.codegen.moves.network.links import Network
from shardwright.codegen.moves.network.timeline import cost_of
from shardwright.codegen.moves.plan import network_of
from shardwright.codegen.operations.emit.matmul import plan_described_matmul
from shardwright.codegen.spec.matmul import MatmulDescription
from shardwright.ir.plan import Plan

Price = Callable[[Topology], float]
"""A function that returns the predicted seconds of a module on a topology."""


def price_of_reshard(plan: Plan, backend: str) -> Price:
    """Return the price function of a backend's module for a plan. It raises InputError for a
    topology with too few devices."""
    timeline = registry.backend(backend).timeline(plan)

    def price(topology: Topology) -> float:
        return cost_of(timeline, network_of(plan.reshard, topology)).seconds

    return price


def price_of_matmul(description: MatmulDescription, backend: str) -> Price:
    """Return the price function of a matmul's module. If parts move during the product, or the
    backend is not portable, it is the planner's price of the same plan. Otherwise the moves are
    priced like the backend's modules of reshards."""
    matmul = description.matmul()
    chosen = plan_described_matmul(description, listed=0).chosen
    if chosen.loop or not registry.backend(backend).portable:
        return lambda on: plan_matmul(matmul, on, like=chosen, listed=0).chosen.cost.seconds
    moves = [move for move in chosen.moves if move.reshard.source != move.reshard.target]
    timelines = [registry.backend(backend).timeline(move) for move in moves]
    devices = 1 + max(matmul.mesh.device_ids)
    flops, touched = chosen.cost.flops, chosen.cost.touched

    def price(topology: Topology) -> float:
        check_multiplies(topology, matmul.dtype)
        check_devices(topology, devices)
        network = Network(topology, devices)
        moving = sum(cost_of(each, network).moving for each in timelines)
        touching = touched / topology.memory if topology.memory else 0.0
        multiplying = flops / multiply_rate(topology, matmul.dtype)
        return topology.launch + topology.kernel + moving + max(multiplying, touching)

    return price
