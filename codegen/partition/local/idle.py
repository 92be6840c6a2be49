"""Remove idle constraints: a constrained value that only another constraint uses need not be moved
to the first layout.

The derivative of a constraint is constrained too, so chains of constraints cause such pairs in the
backward pass.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from shardwright.ir.program import Body, Op, Program, ops_of


def without_idle_constraints(program: Program) -> Program:
    """Return a program without constraints whose results are only constrained again."""
    uses: Counter[int] = Counter()
    constrained: Counter[int] = Counter()
    for op in ops_of(program.body):
        uses.update((*op.operands, *(v for body in op.bodies for v in body.results)))
        constrained.update(op.operands if op.kind == "constrain" else ())
    uses.update(program.body.results)
    idle = {
        op.results[0]: op.operands[0]
        for op in ops_of(program.body)
        if op.kind == "constrain" and 0 < uses[op.results[0]] == constrained[op.results[0]]
    }
    return replace(program, body=_without(program.body, idle)) if idle else program


def _without(body: Body, idle: dict[int, int]) -> Body:
    kept = (op for op in body.ops if op.kind != "constrain" or op.results[0] not in idle)
    return replace(body, ops=tuple(_rewired(op, idle) for op in kept))


def _rewired(op: Op, idle: dict[int, int]) -> Op:
    bodies = tuple(_without(body, idle) for body in op.bodies)
    return replace(op, operands=tuple(_source(v, idle) for v in op.operands), bodies=bodies)


def _source(value: int, idle: dict[int, int]) -> int:
    while value in idle:
        value = idle[value]
    return value
