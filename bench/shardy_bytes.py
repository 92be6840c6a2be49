"""What Shardy's own partitioner moves: the collectives of its passes, as they are in jaxlib.

The bytes are those of the busiest device around rings, as everywhere. A pass may abort the process,
so this is used in one of its own.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import sdy_peer
from jaxlib.mlir import ir

from shardwright.codegen.planner.network.hlo import received_by

PASSES = (
    "sdy-propagation-pipeline",
    "func.func(sdy-insert-explicit-reshards{enable-full-version=true})",
    "func.func(sdy-reshard-to-collectives)",
    "canonicalize{enable-patterns=sdy-collective}",
)
COLLECTIVES = ("all_gather", "all_reduce", "reduce_scatter", "all_to_all", "collective_permute")
AXIS = re.compile(r'"([^"]+)"(?::\((\d+)\)(\d+))?')


def shardy_received(fn: Any, avals: Any, sizes: dict[str, int], **shardings: Any) -> int | None:
    """Return the bytes of a function with shardings as for `jax.jit`; `sizes` of the mesh's axes.
    None where something is moved in a loop of which it is not known how often it turns."""
    module = sdy_peer.module_of(fn, avals, **shardings)
    after = sdy_peer.propagated(module, PASSES)
    total = 0
    for op, times in _ops(after.operation, 1):
        if op.name.removeprefix("sdy.") in COLLECTIVES:
            if times is None:
                return None
            total += times * _received(op, sizes)
    return total


def _ops(op: Any, times: int | None) -> Iterator[tuple[Any, int | None]]:
    """Yield what is inside an operation, with how often it is run."""
    for region in op.regions:
        for block in region:
            for inner in block:
                own = inner.operation
                turns = turns_of(own) if own.name == "stablehlo.while" else 1
                often = None if times is None or turns is None else times * turns
                yield own, times
                yield from _ops(own, often)


def turns_of(loop: Any) -> int | None:
    """Return how often a loop turns that counts from zero up to a constant, as scans do."""
    *_, last = loop.regions[0].blocks[0]
    test = last.operation.operands[0].owner
    if not isinstance(test, ir.Operation | ir.OpView):
        return None
    test = test.operation if isinstance(test, ir.OpView) else test
    if test.name != "stablehlo.compare" or "LT" not in str(test.attributes["comparison_direction"]):
        return None
    counter, end = test.operands
    if not isinstance(counter.owner, ir.Block):
        return None
    start = loop.operands[ir.BlockArgument(counter).arg_number]
    return _number(end) if _number(start) == 0 else None


def _number(value: Any) -> int | None:
    """Return the number that a constant is; None for other values."""
    owner = value.owner
    owner = owner.operation if isinstance(owner, ir.OpView) else owner
    if isinstance(owner, ir.Block) or not owner.name.endswith(".constant"):
        return None
    (found,) = ir.DenseIntElementsAttr(owner.attributes["value"])
    return int(found)


def _received(op: Any, sizes: dict[str, int]) -> int:
    kind, text = op.name.removeprefix("sdy."), str(op)
    sharding = re.search(r"out_sharding=<@\w+, (\[.*?\])", text)
    assert sharding, text
    local = _bytes(op.results[0].type) // _parts(sharding[1], sizes)
    given = text.split(f"{op.name} ")[1].split(" %")[0]
    members = 2 if kind == "collective_permute" else _parts(given, sizes)
    ends = [list(range(members))]
    return max(received_by(kind.replace("_", "-"), ends, local, members))


def _parts(text: str, sizes: dict[str, int]) -> int:
    """Return into how many parts the axes in a text cut."""
    return math.prod(int(size or sizes[name]) for name, _, size in AXIS.findall(text))


def _bytes(kind: Any) -> int:
    array = ir.RankedTensorType(kind)
    element = str(array.element_type)
    bits = 8 if element == "i1" else int(re.sub(r"\D", "", element))
    return math.prod(array.shape) * bits // 8
