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
    None where loops hide how often something is moved."""
    module = sdy_peer.module_of(fn, avals, **shardings)
    after = sdy_peer.propagated(module, PASSES)
    total = 0
    for op in _ops(after.operation):
        if op.name == "stablehlo.while":
            return None
        if op.name.removeprefix("sdy.") in COLLECTIVES:
            total += _received(op, sizes)
    return total


def _ops(op: Any) -> Iterator[Any]:
    for region in op.regions:
        for block in region:
            for inner in block:
                yield inner.operation
                yield from _ops(inner.operation)


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
