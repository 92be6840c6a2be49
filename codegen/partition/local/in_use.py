"""Remove ops that a rewritten body no longer uses."""

from __future__ import annotations

from collections.abc import Sequence

from shardwright.ir.program import Body, Op


def in_use(body: Body, ops: Sequence[Op]) -> Sequence[Op]:
    """Return `ops` except those whose results were used in `body` but no longer are."""
    before = {operand for op in body.ops for operand in op.operands} | {*body.results}
    used = set(body.results)
    kept = []
    for op in reversed(ops):
        if used.isdisjoint(op.results) and not before.isdisjoint(op.results):
            continue
        kept.append(op)
        used.update(op.operands)
    return kept[::-1]
