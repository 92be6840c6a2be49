"""The cost of kernels that pull parts of operands and push partial sums while devices multiply.

Such a kernel replaces all movements of a candidate. It needs devices that read each other's memory:
on one switch or one host. A device copies the shards that others need to memory that its peers can
read. Some of its cores pull parts of both operands, local parts first, while the other cores
multiply the parts that have arrived. A device sends each finished tile of a partial sum to the
owner of the tile at once, and an owner that has all partial sums adds them. Links carry parts, then
sums. Two products overlap with no transfer: the product of the last part to arrive, and the product
of the first sums to leave.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from shardwright.codegen.hardware.presets import is_processor
from shardwright.codegen.hardware.topology import Hierarchical, Switch
from shardwright.codegen.moves.network.links import Flows, Network
from shardwright.ir.arrays import Integers
from shardwright.ir.dtypes import itemsize
from shardwright.ir.exchange import ids_of
from shardwright.ir.layout import Layout
from shardwright.ir.matmul import SIDES, Side
from shardwright.ir.matmul_plan import MatmulCandidate
from shardwright.ir.mesh import Mesh
from shardwright.ir.multiplication import Multiplication
from shardwright.ir.product_terms import product_layout, terms_at

PULLING = 16 / 132
"""The share of a device's cores that pull and do not multiply: 16 of the 132 SMs of an H100."""

ANNOUNCING = 5.9e-6
"""The time in seconds of the kernel that announces data to peers. It counts only on topologies
with kernel times. Source: bench/gpu_check.md, `announce` of matmul_gather_gpu."""


def reads_peers(network: Network, mesh: Mesh) -> bool:
    """Return whether all devices of a mesh can read each other's memory."""
    topology = network.topology
    if isinstance(topology, Hierarchical):
        return len({device // topology.host_size for device in mesh.device_ids}) == 1
    return isinstance(topology, Switch) and not is_processor(topology)


def pulled(candidate: MatmulCandidate, network: Network) -> MatmulCandidate:
    """Return the candidate with a pulling kernel in place of all movements, with its cost on a
    network."""
    product, cost = candidate.multiplication, candidate.cost
    flows = {side: flows_of(product, side) for side in SIDES}
    received = [_received(flows[side], product) for side in SIDES]
    lhs, rhs, out = (int(each.max(initial=0)) for each in received)
    seconds = [network.seconds(network.load(flows[side])) for side in SIDES]
    pulls = bool(flows["lhs"].weight.size or flows["rhs"].weight.size)
    multiplying = cost.multiplying / (1 - PULLING) if pulls else cost.multiplying
    share = max(multiplying, cost.touching)
    behind = [
        sent + share / _parts(flows[side]) if sent else 0.0
        for sent, side in zip(seconds, SIDES, strict=True)
    ]
    meanwhile = max(share, sum(seconds), *behind)
    copies = [_copied(product, side, bool(flows[side].weight.size), network) for side in SIDES]
    moving = [sent + copied for sent, copied in zip(seconds, copies, strict=True)]
    # One kernel multiplies, one copies shards for peers, and one adds the received sums.
    topology, kernels = network.topology, 1 + pulls + bool(flows["out"].weight.size)
    announcing = ANNOUNCING if topology.kernel else 0.0
    made = replace(
        cost,
        launch=topology.launch + announcing + kernels * topology.kernel,
        received=(lhs, rhs, out),
        received_max=int(np.sum(received, axis=0).max(initial=0)),
        multiplying=multiplying,
        moving=(moving[0], moving[1], moving[2]),
        hidden=share + sum(seconds) - meanwhile,
        apart=cost.seconds,
    )
    return replace(candidate, pulled=True, cost=made)


def flows_of(product: Multiplication, side: Side) -> Flows:
    """Return the transfers between devices for an operand or for the result, in bytes."""
    matmul, whole = product.matmul, product_layout(product).boxes()
    used = whole[:, list(matmul.factors(side))]
    layout = Layout.of(matmul.sharding(side), matmul.shape(side), "flat")
    own = layout.boxes()[:, layout.hidden :]
    positions = np.arange(len(own), dtype=np.int64)
    term, low, high = np.stack(terms_at(product, side, positions))
    works = _volume(whole) > 0
    # An operand moves from its holders to the devices that multiply; the result moves from the
    # devices that multiply to its holders.
    wanted, held = (own, used) if side == "out" else (used, own)
    takes, gives = (works | True, works) if side == "out" else (works, works | True)
    shards = np.unique(np.column_stack([held.reshape(len(held), -1), term]), axis=0,
                       return_inverse=True)[1].ravel()  # fmt: skip
    ids, found = ids_of(matmul.mesh), []
    for taker in positions[takes]:
        near = positions[np.argsort((taker - positions) % len(positions))]
        near = near[gives[near] & (low[taker] <= term[near]) & (term[near] < high[taker])]
        near = near[np.sort(np.unique(shards[near], return_index=True)[1])]
        volume = _volume(_meeting(held[near], wanted[taker]))
        there = (volume > 0) & (near != taker)
        found.append(np.column_stack([near[there], np.full(there.sum(), taker), volume[there]]))
    sender, receiver, weight = np.concatenate(found).T
    size = itemsize(matmul.dtype_of(side))
    return Flows(ids[sender], ids[receiver], (weight * size).astype(float))


def _received(flows: Flows, product: Multiplication) -> Integers:
    """Return the bytes that each device receives, in ascending order of device ids."""
    ids = np.sort(ids_of(product.matmul.mesh))
    places = np.searchsorted(ids, flows.receiver)
    return np.bincount(places, flows.weight, ids.size).astype(np.int64)


def _parts(flows: Flows) -> int:
    """Return the number of parts of an operand on the device that has the fewest parts, its own
    part included."""
    return int(np.unique(flows.receiver, return_counts=True)[1].min()) + 1


def _copied(product: Multiplication, side: Side, moves: bool, network: Network) -> float:
    """Return the time in seconds that a device takes to copy a shard of an operand for its
    peers, or to add the received sums of the result. `moves`: whether anything moves between
    devices."""
    matmul, memory = product.matmul, network.topology.memory
    if not moves or not memory:
        return 0.0
    layout = Layout.of(matmul.sharding(side), matmul.shape(side), "flat")
    size = math.prod(layout.local_shape) * itemsize(matmul.dtype_of(side))
    _, low, high = np.stack(terms_at(product, side, np.arange(matmul.mesh.size, dtype=np.int64)))
    times = 2 if side != "out" else 1 + int((high - low).max())
    return times * size / memory


def _meeting(one: Integers, other: Integers) -> Integers:
    """Return the intersection of each box in `one` with the box `other`."""
    low = np.maximum(one[..., 0], other[..., 0])
    return np.stack([low, np.minimum(one[..., 1], other[..., 1])], axis=-1)


def _volume(boxes: Integers) -> Integers:
    widths = np.maximum(boxes[..., 1] - boxes[..., 0], 0)
    found: Integers = np.prod(widths, axis=-1, dtype=np.int64)
    return found
