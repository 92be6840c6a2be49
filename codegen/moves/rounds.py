"""Schedule transfers in rounds. In a round, a device sends at most once and receives at most once.

    rotation   The round of a transfer is given by the differences of the coordinates of sender and
               receiver in the topology, modulo its sizes. On a switch, device i receives from
               i + 1, then from i + 2, ... On a torus, all devices receive over the same route at
               once, so all links are equally busy. Two transfers with the same differences have
               different senders and different receivers, so every rotation is a valid schedule.
    colouring  An edge colouring of the bipartite graph of senders and receivers (König), built
               transfer by transfer along alternating paths. It has the minimum number of rounds:
               the transfers of the busiest device. It is used if rotation needs more rounds.

A round lasts as long as its largest transfer, so larger transfers are coloured first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from shardwright.codegen.hardware.topology import Hierarchical, Torus
from shardwright.codegen.moves.network.links import Network
from shardwright.ir.arrays import Integers
from shardwright.ir.colouring import colouring
from shardwright.ir.transfers import Transfers

# The maximum number of transfers to colour. Colouring takes one path per transfer.
MOST_COLOURED = 1 << 16


@dataclass(frozen=True)
class Schedule:
    """The rounds of a step's transfers.

    `rounds`: the round of each transfer, -1 for a local copy. `count`: the number of rounds.
    `least`: the maximum number of transfers that one device sends or receives; no schedule has
    fewer rounds.
    """

    rounds: Integers
    count: int
    kind: Literal["rotation", "colouring"]
    least: int


def schedule(transfers: Transfers, network: Network) -> Schedule:
    """Return the rounds of a step's transfers, by rotation if no schedule has fewer rounds or if
    there are too many transfers to colour; otherwise by colouring."""
    away = np.flatnonzero(~transfers.is_local)
    sender, receiver = transfers.sender[away], transfers.receiver[away]
    rounds = np.full(len(transfers), -1, dtype=np.int64)
    least = max(_busiest(sender), _busiest(receiver))
    turn = _rotation(sender, receiver, network)
    count, kind = int(turn.max(initial=-1)) + 1, "rotation"
    if count > least and away.size <= MOST_COLOURED:
        turn = colouring(sender, receiver, transfers.elements[away], least)
        count, kind = least, "colouring"
    rounds[away] = turn
    return Schedule(rounds, count, "rotation" if kind == "rotation" else "colouring", least)


def _busiest(devices: Integers) -> int:
    return int(np.unique(devices, return_counts=True)[1].max(initial=0))


def _rotation(sender: Integers, receiver: Integers, network: Network) -> Integers:
    """Return the round of each transfer by rotation. Several transfers with the same ends get
    different rounds."""
    key = _differences(sender, receiver, network)
    again = _repeats(sender, receiver)
    pair = key * (int(again.max(initial=0)) + 1) + again
    turn: Integers = np.unique(pair, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return turn


def _differences(sender: Integers, receiver: Integers, network: Network) -> Integers:
    topology = network.topology
    if isinstance(topology, Torus):
        sizes = topology.dims
    elif isinstance(topology, Hierarchical):
        sizes = (topology.hosts, topology.host_size)
    else:
        sizes = (topology.size or network.devices,)
    start, stop = topology.coordinates(sender), topology.coordinates(receiver)
    key = np.zeros(sender.size, dtype=np.int64)
    for axis, size in enumerate(sizes):
        key = key * size + (start[:, axis] - stop[:, axis]) % size
    return key


def _repeats(sender: Integers, receiver: Integers) -> Integers:
    """Count, for each transfer, the earlier transfers with the same sender and receiver."""
    order = np.lexsort((receiver, sender))
    new = np.ones(order.size, dtype=bool)
    new[1:] = (np.diff(sender[order]) != 0) | (np.diff(receiver[order]) != 0)
    number = np.arange(order.size)
    first = np.maximum.accumulate(np.where(new, number, 0)) if order.size else number
    repeats = np.empty(order.size, dtype=np.int64)
    repeats[order] = number - first
    return repeats
