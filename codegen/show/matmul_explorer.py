"""The explorer of a matmul: the reshards of the operands and of the result, and the rounds of a
loop.

In a loop an all-gather or a reduce-scatter overlaps with the product: parts move around a ring. The
page has a step for each round, in which each device receives parts from its neighbours.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardwright.codegen.moves.network.links import Flows
from shardwright.codegen.show.explorer import explored, link_rows, page_of
from shardwright.codegen.show.matmul import matmul_words, turns_of
from shardwright.ir.layout import Layout, read_digits
from shardwright.ir.matmul import SIDES
from shardwright.ir.matmul_plan import Loop, MatmulPlan
from shardwright.ir.mesh import Digit

Range = list[list[int]]


@dataclass(frozen=True)
class PartMoved:
    """A part that a neighbour sends in a round. `sender`, `receiver`: positions of devices in the
    mesh. `tensor`, `shard`: the range of the part in the tensor and in both devices' shards."""

    sender: int
    receiver: int
    tensor: Range
    shard: Range


def matmul_explorer(plan: MatmulPlan, name: str, topology: str | None = None) -> str:
    """Return the page of a matmul as deterministic HTML.

    `topology`: hardware; if given, the page also shows the bytes on its links. Raises InputError if
    the topology has too few devices.
    """
    plans = {
        f"{name}: {letter}": plan.chosen.move(side)
        for side, letter in zip(SIDES, "ABC", strict=True)
    }
    found = explored(plans, topology)
    if plan.chosen.loop is not None:
        number = SIDES.index(plan.chosen.loop.side)
        found[number] = _in_rounds(found[number], plan, plan.chosen.loop, topology)
    received = plan.chosen.cost.received_max
    return page_of(
        found,
        name,
        f"{matmul_words(plan.matmul)}: A, B and C bring at most {received:,} bytes to a device",
    )


def rounds_of(plan: MatmulPlan) -> list[list[PartMoved]]:
    """Return the parts sent in each round of a plan's loop; empty without a loop."""
    loop = plan.chosen.loop
    if loop is None:
        return []
    rounds: list[list[PartMoved]] = [[] for _ in range(loop.count - 1)]
    layout = Layout.of(
        plan.chosen.multiplication.shardings[loop.side], plan.matmul.shape(loop.side), "flat"
    )
    boxes = layout.boxes()[:, layout.hidden :].tolist()
    axis = plan.matmul.factors(loop.side).index(loop.factor)
    for position, senders in _neighbours(plan, loop).items():
        turns = list(turns_of(plan, position))[1:]
        for made, parts in zip(rounds, turns, strict=True):
            for sender, part in zip(senders, parts, strict=True):
                made += _moved(sender, position, boxes[position], axis, part)
    return rounds


def _moved(
    sender: int, receiver: int, whole: Range, axis: int, part: tuple[int, int]
) -> Iterator[PartMoved]:
    low, high = whole[axis]
    start, end = (min(low + each, high) for each in part)
    if start < end and all(first < last for first, last in whole):
        tensor = [*whole[:axis], [start, end], *whole[axis + 1 :]]
        shard = [
            [first - origin, last - origin]
            for (first, last), (origin, _) in zip(tensor, whole, strict=True)
        ]
        yield PartMoved(sender, receiver, tensor, shard)


def _neighbours(plan: MatmulPlan, loop: Loop) -> dict[int, tuple[int, ...]]:
    """Return, for each position, the positions that send parts to it: two if parts move both
    ways, otherwise one. Partial sums that move one way go down the ring."""
    digits = tuple(Digit(*pair) for pair in loop.digits)
    rings: dict[int, dict[int, int]] = defaultdict(dict)
    for position in range(plan.matmul.mesh.size):
        place = int(read_digits(digits, position))
        rest = position - sum(position // stride % size * stride for stride, size in loop.digits)
        rings[rest][loop.places.index(place)] = position
    steps = (-1, 1) if loop.directions == 2 else (1,) if loop.side == "out" else (-1,)
    return {
        position: tuple(ring[(place + step) % loop.count] for step in steps)
        for ring in rings.values()
        for place, position in ring.items()
    }


def _in_rounds(
    found: dict[str, Any], plan: MatmulPlan, loop: Loop, topology: str | None
) -> dict[str, Any]:
    steps, at = found["plan"]["steps"], 0 if loop.side == "out" else -1
    if not steps[at]["transfers"]:
        return found
    place = range(len(steps))[at]
    rounds = rounds_of(plan)
    said = [_step(steps[place], plan, loop, number, rounds) for number in range(len(rounds))]
    links = found["links"]
    if links is not None and topology is not None:
        itemsize = found["itemsize"]
        ids = np.array(plan.matmul.mesh.device_ids)
        flows = [[_flows(each, ids, itemsize)] for each in rounds]
        carried = link_rows(plan.chosen.move(loop.side), topology, flows)
        links = {**links, "steps": _replaced(links["steps"], place, carried)}
    return {
        **found,
        "plan": {**found["plan"], "steps": _replaced(steps, place, said)},
        "steps": _replaced(found["steps"], place, [found["steps"][place]] * len(rounds)),
        "links": links,
    }


def _replaced(items: list[Any], place: int, others: list[Any]) -> list[Any]:
    return [*items[:place], *others, *items[place + 1 :]]


def _step(
    step: dict[str, Any], plan: MatmulPlan, loop: Loop, number: int, rounds: list[list[PartMoved]]
) -> dict[str, Any]:
    """Return a round as a step of `plan --json`; the first round of a gather includes the parts
    that devices keep."""
    ids = plan.matmul.mesh.device_ids
    kept = [each for each in step["transfers"] if each["from"] == each["to"]]
    added = {"reduce": "add"} if loop.side == "out" else {}
    sent = [
        {
            "from": ids[each.sender],
            "to": ids[each.receiver],
            "tensor": each.tensor,
            "source": each.shard,
            "target": each.shard,
            **added,
        }
        for each in rounds[number]
    ]
    own = kept if number == 0 and not added else []
    said = f"round {number + 1} of {len(rounds)} of {step['op']}"
    return {**step, "op": said, "transfers": [*own, *sent]}


def _flows(parts: list[PartMoved], ids: np.ndarray, itemsize: int) -> Flows:
    sizes = [math.prod(high - low for low, high in each.tensor) for each in parts]
    senders = ids[[each.sender for each in parts]]
    receivers = ids[[each.receiver for each in parts]]
    return Flows(senders, receivers, np.array(sizes, dtype=np.float64) * itemsize)
