"""Count the bytes that each device receives and sends in the steps of a plan, and compute lower
bounds for any plan of the reshard."""

from __future__ import annotations

import math

import numpy as np

from shardwright.codegen.moves.holders import Loads
from shardwright.ir.arrays import Integers
from shardwright.ir.exchange import ids_of
from shardwright.ir.layout import Layout, read_digits
from shardwright.ir.plan import Traffic
from shardwright.ir.reshard import Reshard
from shardwright.ir.steps import ReduceStep, Step


def traffic_of(reshard: Reshard, steps: tuple[Step, ...]) -> Traffic:
    """Return the bytes of the steps of a plan, and lower bounds for any plan of the reshard.

    Reducing T partial sums onto R devices takes at least T + R - 2 transfers: T - 1 until the first
    device has the sum, and one to each other device. The busiest receiver and the busiest sender
    each have at least the average number of transfers.
    """
    ids = np.union1d(ids_of(reshard.source.mesh), ids_of(reshard.target.mesh))
    received, sent = np.zeros(ids.size, dtype=np.int64), np.zeros(ids.size, dtype=np.int64)
    for step in steps:
        for (devices, elements), total in zip(moved(step), (received, sent), strict=True):
            np.add.at(total, np.searchsorted(ids, devices), elements)
    size = reshard.itemsize
    bounds = _bounds(reshard)
    most, total_received = int(received.max(initial=0)), int(received.sum())
    return Traffic(
        most * size, total_received * size, int(sent.max(initial=0)) * size,
        *(bound * size for bound in bounds),
    )  # fmt: skip


def moved(step: Step) -> tuple[tuple[Integers, Integers], tuple[Integers, Integers]]:
    """Return two pairs of arrays: the ids of receivers and the numbers of elements that they
    receive from other devices, and the ids of senders and the numbers of elements that they send.
    Ids may be repeated."""
    if isinstance(step, ReduceStep):
        return _reduced(step)
    exchange = step.exchange
    loads = Loads(exchange.source, exchange.target, exchange)
    return (
        (ids_of(exchange.target.mesh), loads.received()),
        (ids_of(exchange.source.mesh), loads.sent(exchange.rule)),
    )


def _reduced(step: ReduceStep) -> tuple[tuple[Integers, Integers], tuple[Integers, Integers]]:
    ends: list[list[Integers]] = [[], []]
    counts: list[Integers] = []
    for phase in step.phases():
        away = ~phase.transfers.is_local
        ends[0].append(phase.transfers.receiver[away])
        ends[1].append(phase.transfers.sender[away])
        counts.append(phase.transfers.elements[away])
    elements = np.concatenate(counts)
    return (np.concatenate(ends[0]), elements), (np.concatenate(ends[1]), elements)


def _bounds(reshard: Reshard) -> tuple[int, int, int]:
    """Return lower bounds on the numbers of elements that the busiest receiver receives, that all
    devices receive, and that the busiest sender sends."""
    target = Layout.of(reshard.target, reshard.shape, reshard.target_split)
    if not reshard.adds:
        loads = Loads.of(reshard)
        received = loads.received()
        return int(received.max()), int(received.sum()), loads.bound_sent_max()
    source = Layout.of(reshard.source, reshard.shape, reshard.source_split)
    terms = math.prod(dim.parts for dim in source.dims[: source.hidden])
    kept = math.prod(map(reshard.source.mesh.full_size, reshard.fate.kept))
    boxes = target.boxes()[:, target.hidden :]
    wanted = np.prod(boxes[:, :, 1] - boxes[:, :, 0], axis=1, dtype=np.int64)
    new = tuple(map(reshard.target.mesh.digit, reshard.fate.new))
    wanted *= read_digits(new, np.arange(wanted.size)) == 0
    sums = int(wanted.sum()) // target.replicas
    total = sums * (terms // kept + target.replicas - 2)
    devices = {*reshard.source.mesh.device_ids, *reshard.target.mesh.device_ids}
    average = -(-total // len(devices))
    return max(int(wanted.max()), average), total, average
