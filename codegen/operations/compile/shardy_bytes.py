"""The bytes of the collectives that Shardy's own partitioner inserts, according to its passes in
jaxlib.

They count as the bytes that the busiest device receives with ring algorithms. A pass may abort the
process, so this module runs in a separate process. The passes do not partition every op; the
communication that a compiler would add for other ops, such as shifts, is not included.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
from jaxlib.mlir import ir
from jaxlib.mlir.passmanager import PassManager

from shardwright.codegen.spec.hlo.received import received_by
from shardwright.ir.errors import InternalError

PASSES = (
    "sdy-propagation-pipeline",
    "func.func(sdy-insert-explicit-reshards{enable-full-version=true})",
    "func.func(sdy-reshard-to-collectives)",
    "canonicalize{enable-patterns=sdy-collective}",
)
COLLECTIVES = ("all_gather", "all_reduce", "reduce_scatter", "all_to_all", "collective_permute")
AXIS = re.compile(r'"([^"]+)"(?::\((\d+)\)(\d+))?')


def shardy_received(
    fn: Callable[..., Any],
    avals: Sequence[Any],
    sizes: Mapping[str, int],
    **shardings: Any,
) -> int | None:
    """Return the bytes that the busiest device receives in a function, or None if a loop of unknown
    length communicates. `sizes`: the sizes of mesh axes by name; `shardings`: keyword arguments of
    `jax.jit`."""
    lowered = jax.jit(fn, keep_unused=True, **shardings).lower(*avals)
    module = lowered.compiler_ir("stablehlo")
    total = 0
    with module.context, ir.Location.unknown():
        inline(module)
        for one in PASSES:
            PassManager.parse(f"builtin.module({one})").run(module.operation)
        for op, times in _repeated(module.operation, 1):
            if op.name.removeprefix("sdy.") in COLLECTIVES:
                if times is None:
                    return None
                total += times * _received(op, sizes)
    return total


def inline(module: Any) -> None:
    """Replace every call by the ops of its callee."""
    functions = {
        ir.StringAttr(op.attributes["sym_name"]).value: op
        for op in module.body.operations
        if op.operation.name == "func.func"
    }
    while calls := [op for op in _ops(functions["main"].operation) if op.name == "func.call"]:
        for call in calls:
            _inline(call, functions[ir.FlatSymbolRefAttr(call.attributes["callee"]).value])


def _inline(call: Any, function: Any) -> None:
    block = function.regions[0].blocks[0]
    known = dict(zip(block.arguments, call.operands, strict=True))
    for op in block:
        if op.operation.name == "func.return":
            for result, returned in zip(call.results, op.operands, strict=True):
                result.replace_all_uses_with(known[returned])
            continue
        clone = op.operation.clone(ir.InsertionPoint(call))
        for inner in (clone, *_ops(clone)):
            for place, operand in enumerate(inner.operands):
                if operand in known:
                    inner.operands[place] = known[operand]
        known.update(zip(op.results, clone.results, strict=True))
    call.erase()


def _ops(op: Any) -> Iterator[Any]:
    return (inner for inner, _ in _repeated(op, 1))


def _repeated(op: Any, times: int | None) -> Iterator[tuple[Any, int | None]]:
    for region in op.regions:
        for block in region:
            for inner in block:
                own = inner.operation
                turns = _turns_of(own) if own.name == "stablehlo.while" else 1
                often = None if times is None or turns is None else times * turns
                yield own, times
                yield from _repeated(own, often)


def _turns_of(loop: Any) -> int | None:
    """Return the iteration count of a loop from zero up to a constant, as in scans, or None for any
    other loop."""
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
    owner = value.owner
    owner = owner.operation if isinstance(owner, ir.OpView) else owner
    if isinstance(owner, ir.Block) or not owner.name.endswith(".constant"):
        return None
    (found,) = ir.DenseIntElementsAttr(owner.attributes["value"])
    return int(found)


def _received(op: Any, sizes: Mapping[str, int]) -> int:
    kind, text = op.name.removeprefix("sdy."), str(op)
    sharding = re.search(r"out_sharding=<@\w+, (\[.*?\])", text)
    if sharding is None:
        raise InternalError(f"no sharding in {text}")
    local = _bytes(op.results[0].type) // _parts(sharding[1], sizes)
    given = text.split(f"{op.name} ")[1].split(" %")[0]
    members = 2 if kind == "collective_permute" else _parts(given, sizes)
    ends = [list(range(members))]
    return int(max(received_by(kind.replace("_", "-"), ends, local, members)))


def _parts(text: str, sizes: Mapping[str, int]) -> int:
    return math.prod(int(size or sizes[name]) for name, _, size in AXIS.findall(text))


def _bytes(kind: Any) -> int:
    array = ir.RankedTensorType(kind)
    element = str(array.element_type)
    bits = 8 if element == "i1" else int(re.sub(r"\D", "", element))
    return math.prod(map(int, array.shape)) * bits // 8
