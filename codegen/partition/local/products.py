"""Rewrite matmuls whose result is transposed: swap the operands instead.

Gradients of weights have this form: `(g.T @ x).T`. A compiler fuses the transposition, but readers
see one step less, and a kernel that also scatters the product needs the matmul directly before the
scatter.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from shardwright.codegen.ops.table import kind_of
from shardwright.codegen.partition.local.steps import (
    Compute,
    LocalBody,
    LocalProgram,
    Step,
    taken,
)
from shardwright.ir.program import Op, Param


def with_transposed_products(program: LocalProgram) -> LocalProgram:
    """Return a program whose matmuls compute transposed results directly."""
    functions = tuple(_rewritten(each, program) for each in program.functions)
    return replace(program, body=_rewritten(program.body, program), functions=functions)


def _rewritten(body: LocalBody, program: LocalProgram) -> LocalBody:
    uses = Counter(v for step in body.steps for v in taken(step))
    uses.update(body.results)
    steps: list[Step] = []
    place: dict[int, int] = {}  # the index of each matmul, by its result
    for step in body.steps:
        if isinstance(step, Compute):
            step = replace(step, bodies=tuple(_rewritten(each, program) for each in step.bodies))
            at = place.get(step.operands[0]) if step.op.kind == "transpose" else None
            product = None if at is None else steps[at]
            if at is not None and isinstance(product, Compute) and uses[step.operands[0]] == 1:
                made = _transposed(product, step, len(program.shape(product.operands[0])))
                if made is not None:
                    steps[at] = made
                    place[made.results[0]] = at
                    continue
            if kind_of(step.op.kind).symbol == "@":
                place[step.results[0]] = len(steps)
        steps.append(step)
    return replace(body, steps=tuple(steps))


def _transposed(product: Compute, after: Compute, rank: int) -> Compute | None:
    """Return a matmul and its transposition as one matmul with swapped operands, or None unless the
    transposition only swaps the dimensions of the two operands. `rank`: the rank of the first
    operand."""
    op = product.op
    order = after.op.integers("permutation")
    batch = len(op.integers("batch_lhs"))
    cut = rank - len(op.integers("contract_lhs"))  # where the second operand's dimensions start
    if order != (*range(batch), *range(cut, len(order)), *range(batch, cut)):
        return None
    made = replace(_swapped(op), results=after.op.results)
    return replace(product, op=made, operands=product.operands[::-1], results=after.results)


def _swapped(op: Op) -> Op:
    known: dict[str, Param] = dict(op.params)
    for name in ("contract", "batch"):
        sides = f"{name}_lhs", f"{name}_rhs"
        known |= {sides[0]: known[sides[1]], sides[1]: known[sides[0]]}
    precision = known.get("precision")
    if isinstance(precision, tuple):
        known["precision"] = precision[::-1]
    return replace(op, operands=op.operands[::-1], params=tuple(sorted(known.items())))
