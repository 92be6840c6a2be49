"""Loops and branches: in which layouts they take their operands, and their bodies arguments.

What runs around a loop keeps the layout that was propagated for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from shardwright.codegen.partition.local.layout import LocalLayout
from shardwright.ir.errors import InputError
from shardwright.ir.program import CONTROL, Op

Layouts = tuple[LocalLayout, ...]


@dataclass(frozen=True)
class ControlEnds:
    """The layouts of the operands and results of an op, and for each body of its arguments and
    results."""

    operands: Layouts
    results: Layouts
    bodies: tuple[tuple[Layouts, Layouts], ...]


def is_control(op: Op) -> bool:
    """Return whether an op has bodies."""
    return op.kind in CONTROL or op.kind == "cond"


def control_ends(op: Op, layout: Callable[[int], LocalLayout]) -> ControlEnds:
    """Return the layouts around an op with bodies; `layout` gives that of a value.

    Raises InputError for a manual computation.
    """
    match op.kind:
        case "scan":
            return _scan(op, layout)
        case "while":
            return _while(op, layout)
        case "cond":
            operands, given = (tuple(map(layout, side)) for side in (op.operands, op.results))
            bodies = ((operands[1:], given) for _ in op.bodies)
            return ControlEnds(operands, given, tuple(bodies))
    raise InputError(
        "a program with a shard_map of its own cannot be emitted yet",
        argument="fn",
        got=f"shard_map{f', {op.line}' if op.line else ''}",
        expected="a function of whole arrays",
    )


def _scan(op: Op, layout: Callable[[int], LocalLayout]) -> ControlEnds:
    (body,) = op.bodies
    consts, carries, _ = op.integers("lengths")
    last = consts + carries
    inside = tuple(map(layout, body.arguments))
    given = (*inside[consts:last], *map(layout, body.results[carries:]))
    operands = (*inside[:last], *map(_stacked, inside[last:]))
    results = (*given[:carries], *map(_stacked, given[carries:]))
    return ControlEnds(operands, results, ((inside, given),))


def _while(op: Op, layout: Callable[[int], LocalLayout]) -> ControlEnds:
    cond, body = op.bodies
    first, second = op.integers("lengths")
    carried = tuple(map(layout, op.results))
    tested, looped = (
        tuple(map(layout, inner.arguments[:count]))
        for inner, count in ((cond, first), (body, second))
    )
    bodies = (
        ((*tested, *carried), (LocalLayout(()),)),
        ((*looped, *carried), carried),
    )
    return ControlEnds((*tested, *looped, *carried), carried, bodies)


def _stacked(layout: LocalLayout) -> LocalLayout:
    """Return the layout of what a scan stacks along a dimension of its own."""
    return LocalLayout(((), *layout.dims))
