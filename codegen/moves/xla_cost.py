"""The time of XLA's own collectives, by the cost model of the basis (`network/collectives.py`).

Collectives run in sequence. A collective is priced like a basis collective over the digits of the
mesh position in which the members of a group differ. If there are no such digits, it is priced as
direct sends between all members. A permute is always priced by its transfers.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import numpy as np

from shardwright.codegen.hardware.topology import Torus
from shardwright.codegen.moves.basis.digits import Digits
from shardwright.codegen.moves.network.collectives import Prices, positions_of_groups, prices_of
from shardwright.codegen.moves.network.links import Flows, Network
from shardwright.codegen.moves.xla import Collective, XlaCollectives
from shardwright.ir.arrays import Integers
from shardwright.ir.steps import ring_bytes

# The collectives in which only the first member of a group or pair sends.
FROM_ONE = ("collective-permute", "collective-broadcast")


def seconds_of(moves: Iterable[Collective], network: Network, ids: Integers) -> float:
    """Return the time of collectives that run in sequence, in seconds. `ids`: the device id at
    each mesh position."""
    prices = prices_of(network, ids)
    return sum(_seconds(move, prices) for move in moves)


def seconds_of_xla(found: XlaCollectives, network: Network, ids: Integers) -> float:
    """Return the time of XLA's own plan in seconds: of its collectives and, on a TPU, of its
    passes over memory. `ids`: the device id at each mesh position."""
    return seconds_of(found.moves, network, ids) + seconds_of_passes(found.copied, network)


def seconds_of_passes(nbytes: float, network: Network) -> float:
    """Return the time in seconds that a TPU takes to read and write `nbytes` bytes in passes
    over memory. Return 0 for other devices, where these passes are not counted, and for a TPU
    whose memory bandwidth is unknown."""
    topology = network.topology
    return nbytes / topology.memory if isinstance(topology, Torus) and topology.memory else 0.0


def _seconds(move: Collective, prices: Prices) -> float:
    digits = None if move.op in FROM_ONE else digits_of(move.ends, prices.ids.size)
    if digits is None:
        return prices.network.collective_seconds(prices.network.load(sends_of(move, prices.ids)))
    op = move.op.replace("-", "_")
    return prices.seconds(op, digits, ring_bytes(op, move.nbytes, len(move.ends[0])))


def digits_of(groups: list[list[int]], count: int) -> Digits | None:
    """Return the digits in which the members of every group differ, minor to major, or None if
    digits cannot describe the groups. `count`: the number of mesh positions."""
    first = sorted(groups[0])
    offsets, found, block = [member - first[0] for member in first], [], 1
    while block < len(offsets):
        stride, size = offsets[block], 1
        while size * block < len(offsets) and offsets[size * block] == size * stride:
            size += 1
        found.append((stride, size))
        block *= size
    digits = tuple(found)
    fit = block == len(offsets) and all(count % (a * size) == 0 for a, size in digits)
    if not digits or not fit:
        return None
    made = np.sort(positions_of_groups(digits, count), axis=1).tolist()
    return digits if sorted(made) == sorted(map(sorted, groups)) else None


def sends_of(move: Collective, ids: Integers) -> Flows:
    """Return the transfers of a collective between devices. `ids`: the device id at each mesh
    position."""
    sends = [send for members in move.ends for send in _sends_within(move, members)]
    sender, receiver = np.array([(a, b) for a, b, _ in sends], dtype=np.int64).reshape(-1, 2).T
    return Flows(ids[sender], ids[receiver], np.array([nbytes for *_, nbytes in sends]))


def _sends_within(move: Collective, members: list[int]) -> Iterable[tuple[int, int, float]]:
    """List the sender, the receiver and the bytes of each transfer within one group."""
    if move.op in FROM_ONE:
        first, *others = members
        return [(first, other, float(move.nbytes)) for other in others if other != first]
    times = {"reduce-scatter": len(members), "all-reduce": 2}.get(move.op, 1)
    nbytes = times * move.nbytes / len(members)
    return [(a, b, nbytes) for a, b in itertools.permutations(members, 2)]
