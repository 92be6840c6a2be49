"""Permuted rows: gathers and scatters whose indices are a constant permutation of the rows of a
split dimension.

Such an op becomes a `take_rows`, whose result consists of stretches of its operand. On shards,
every device sends the rows that others need, as in other ops that move rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from shardwright.codegen.ops.forms.boxes import (
    MOST_ROUNDS,
    SpacedRows,
    box_rounds,
)
from shardwright.codegen.ops.table import kind_of
from shardwright.codegen.partition.local.in_use import in_use
from shardwright.ir.program import Body, Op, Param, Program, Value

Array = Any  # a numpy array


def with_permuted_rows(program: Program, constants: Sequence[Array], mode: str) -> Program:
    """Return a program in which constant permutations of the rows of split dimensions are single
    ops. `constants`: the arrays that the function closes over; `mode`: the mode of the
    partition."""
    body = _Permuted(program.values, constants, mode).rewritten(program.body)
    return replace(program, body=body)


class _Permuted:
    def __init__(self, values: Sequence[Value], constants: Sequence[Array], mode: str) -> None:
        self.values, self.constants, self.mode = values, constants, mode

    def rewritten(self, body: Body) -> Body:
        made_by = {result: op for op in body.ops for result in op.results}
        ops = []
        for op in body.ops:
            inner = tuple(map(self.rewritten, op.bodies))
            ops.append(self._taken(op, made_by) or (replace(op, bodies=inner) if inner else op))
        return replace(body, ops=tuple(in_use(body, ops)))

    def _taken(self, op: Op, made_by: Mapping[int, Op]) -> Op | None:
        """Convert an op that permutes rows to a `take_rows`. Return None for any other op, if the
        rows do not move between equal shards, or if more than `MOST_ROUNDS` rounds would be
        needed."""
        found = self._source(op, made_by)
        if found is None:
            return None
        source, dim = found
        extent, parts = self.values[source].shape[dim], self._parts(op, source, dim)
        if parts == 1 or extent % parts:
            return None
        rows = self._number(op.operands[1], made_by)
        if rows is None:
            return None
        order = np.ravel(rows)
        if not np.array_equal(np.sort(order), np.arange(extent)):
            return None
        stretches = stretches_of_order(order if op.kind == "gather" else np.argsort(order))
        own = extent // parts
        if len(stretches) > parts * MOST_ROUNDS:
            return None
        rounds = box_rounds(stretches, (own,), own, parts)
        if sum(bool(each.pairs) for each in rounds) > MOST_ROUNDS:
            return None
        numbers = tuple(n for s in stretches for n in (s.start, s.to, s.length, s.step))
        params: tuple[tuple[str, Param], ...] = (("dimensions", (dim,)), ("stretches", numbers))
        return Op("take_rows", (source,), op.results, params, line=op.line)

    def _parts(self, op: Op, source: int, dim: int) -> int:
        """Return the number of shards between which rows move, 1 if none move.

        Rows of an unsplit table can be indexed where they are needed. In the mode `as_shardy`, rows
        move only if propagation splits them equally before and after the op.
        """
        given = [self.values[value].sharding for value in (source, op.results[0])]
        before, after = (1 if each is None else each.parts(dim) for each in given)
        if self.mode == "as_shardy":
            return before if before == after else 1
        return before if op.kind == "gather" else max(before, after)

    def _source(self, op: Op, made_by: Mapping[int, Op]) -> tuple[int, int] | None:
        """Return the value whose rows an op may permute, and the dimension of the rows, or None for
        other ops."""
        match op.kind:
            case "gather":
                names, source = ("start_index_map", "collapsed_slice_dims", "offset_dims"), 0
            case "scatter" | "scatter-add":
                names = "scatter_dims_to_operand_dims", "inserted_window_dims", "update_window_dims"
                source = 2
            case _:
                return None
        shapes = [self.values[value].shape for value in (*op.operands, *op.results)]
        indexed, gone, kept = map(op.integers, names)
        dim = indexed[0] if len(indexed) == 1 else -1
        others = tuple(d for d in range(len(shapes[0])) if d != dim)
        alike = shapes[0] == shapes[source] == shapes[-1] and gone == indexed and kept == others
        if not alike or len(shapes[1]) != 2:
            return None
        if op.kind == "scatter-add" and not np.all(self._number(op.operands[0], made_by) == 0):
            return None
        return op.operands[source], dim

    def _number(self, value: int, made_by: Mapping[int, Op]) -> Array | None:
        """Return the elements of a value that is computed from constants alone, or None for other
        values."""
        op, shape = made_by.get(value), self.values[value].shape
        if op is None:
            return None
        if op.kind == "constant":
            is_array = "array" in dict(op.params)
            return self.constants[op.integers("array")[0]] if is_array else op.param("value")
        given = [self._number(operand, made_by) for operand in op.operands]
        if any(each is None for each in given):
            return None
        evaluate = kind_of(op.kind).evaluate
        return None if evaluate is None else evaluate(op, given, shape)


def stretches_of_order(order: Array) -> tuple[SpacedRows, ...]:
    """Return rows in this order as the fewest stretches with one common step.

    >>> [(s.start, s.to, s.length) for s in stretches_of_order(np.array([0, 1, 6, 7, 2, 3, 4, 5]))]
    [(0, 0, 2), (6, 2, 2), (2, 4, 4)]
    """
    steps = np.diff(order)
    (common, _), *_ = Counter(steps.tolist()).most_common(1) or [(1, 0)]
    ends = {step: np.flatnonzero(steps != step) + 1 for step in (1, -1, common)}
    step = min(ends, key=lambda each: len(ends[each]))
    starts = [0, *ends[step].tolist()]
    return tuple(
        SpacedRows(0, int(order[to]), to, stop - to, step)
        for to, stop in zip(starts, [*starts[1:], len(order)], strict=True)
    )
