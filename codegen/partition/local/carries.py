"""What scans carry: a sum over iterations may be carried as terms, and made once after the loop."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

from shardwright.codegen.partition.local.axes import CutAxes
from shardwright.codegen.partition.local.layout import LocalLayout
from shardwright.ir.program import Body, Op, Program, ops_of

ADDING = frozenset({"add", "add_any"})
MOST = 7
"""Most sets of axes that are tried."""


def carryings(program: Program, axes: CutAxes) -> Iterator[dict[int, LocalLayout]]:
    """Yield what loops may carry, by the argument of their body: first as it was propagated, then
    every sum as terms along some axes."""
    yield {}
    sums = [argument for op in ops_of(program.body) for argument in _sums(op)]
    names = [name for name, size in axes.pieces if size > 1]
    sets = (
        chosen
        for count in range(1, len(names) + 1)
        for chosen in itertools.combinations(names, count)
    )
    for chosen in itertools.islice(sets if sums else (), MOST):
        yield {argument: _as_terms(program, axes, argument, chosen) for argument in sums}


def _as_terms(
    program: Program, axes: CutAxes, argument: int, names: tuple[str, ...]
) -> LocalLayout:
    """Return the layout of a carried sum as terms along axes, which then split no dimension."""
    value = program.values[argument]
    layout = axes.layout(value.sharding, value.shape)
    dims = tuple(
        tuple(itertools.takewhile(lambda name: name not in names, dim)) for dim in layout.dims
    )
    return replace(layout, dims=dims, partial=axes.ordered(names))


def _sums(op: Op) -> Iterator[int]:
    """Yield the arguments of a scan's body that are only ever added to."""
    if op.kind != "scan":
        return
    (body,) = op.bodies
    consts, carries, _ = op.integers("lengths")
    carried = body.arguments[consts : consts + carries]
    for argument, result in zip(carried, body.results, strict=False):
        makers = [each for each in body.ops if result in each.results]
        uses = [each for each in body.ops if argument in each.operands]
        once = _uses_in_results(body, argument) == 0
        if once and makers == uses and len(makers) == 1 and makers[0].kind in ADDING:
            yield argument


def _uses_in_results(body: Body, value: int) -> int:
    return body.results.count(value)
