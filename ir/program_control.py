"""Check ops with bodies, which are control flow and manual computations."""

from __future__ import annotations

from collections.abc import Sequence

from shardwright.ir.errors import InternalError
from shardwright.ir.program import Op, Value
from shardwright.ir.sharding import Sharding


def check_control(op: Op, values: Sequence[Value]) -> None:
    """Raise InternalError if an op with bodies breaks a rule, and state the rule. Ops without
    bodies pass."""
    match op.kind:
        case "scan":
            _scan(op, values)
        case "while":
            _while(op, values)
        case "cond":
            for body in op.bodies:
                _same(
                    "the operands of cond must fit the arguments of each branch",
                    values,
                    op.operands[1:],
                    body.arguments,
                )
                _same(
                    "the results of each branch must fit the results of cond",
                    values,
                    body.results,
                    op.results,
                )
        case "remat":
            (body,) = op.bodies
            _same(
                "the operands of remat must fit the arguments of its body",
                values,
                op.operands,
                body.arguments,
            )
            _same(
                "the results of the body must fit the results of remat",
                values,
                body.results,
                op.results,
            )
        case "manual":
            _manual(op, values)


def need(holds: bool, rule: str) -> None:
    """Raise InternalError, stating `rule`, unless `holds` is true."""
    if not holds:
        raise InternalError(f"the program is not well formed: {rule}")


def _scan(op: Op, values: Sequence[Value]) -> None:
    (body,) = op.bodies
    consts, carries, xs = _lengths(op, 3)
    last = consts + carries
    need(
        last + xs == len(op.operands),
        "the lengths of scan must add up to the number of its operands",
    )
    need(len(body.results) >= carries, "the body of scan must return its carries")
    _same(
        "the constants and carries of scan must fit the arguments of its body",
        values,
        op.operands[:last],
        body.arguments[:last],
    )
    _same(
        "the body of scan must return its carries",
        values,
        body.results[:carries],
        body.arguments[consts:last],
    )
    _same("scan must return its carries", values, op.results[:carries], body.arguments[consts:last])
    _sliced(
        "the body of scan must take slices of the other operands",
        values,
        op.operands[last:],
        body.arguments[last:],
    )
    _sliced(
        "scan must stack the other results of its body",
        values,
        op.results[carries:],
        body.results[carries:],
    )


def _while(op: Op, values: Sequence[Value]) -> None:
    cond, body = op.bodies
    first, second = _lengths(op, 2)
    need(
        first + second <= len(op.operands),
        "the lengths of while must not exceed the number of its operands",
    )
    carried = op.operands[first + second :]
    tested = (*op.operands[:first], *carried)
    looped = (*op.operands[first : first + second], *carried)
    _same(
        "the condition of while must take its constants and the carries",
        values,
        tested,
        cond.arguments,
    )
    _same(
        "the body of while must take its constants and the carries", values, looped, body.arguments
    )
    _same("the body of while must return the carries", values, body.results, carried)
    _same("while must return its carries", values, op.results, carried)


def _manual(op: Op, values: Sequence[Value]) -> None:
    (body,) = op.bodies
    _ranks("in_shardings", op, values, op.operands, body.arguments)
    _ranks("out_shardings", op, values, op.results, body.results)
    axes = op.param("manual_axes")
    known = {name for side in ("in_shardings", "out_shardings") for name in _names(op, side)}
    named = isinstance(axes, tuple) and known.issuperset(axes)
    need(named, "manual_axes of a manual computation must be axes of its mesh")


def _names(op: Op, side: str) -> set[str]:
    return {name for sharding in _shardings(op, side) for name in sharding.mesh.names}


def _shardings(op: Op, side: str) -> tuple[Sharding, ...]:
    given = op.param(side)
    return tuple(s for s in given if isinstance(s, Sharding)) if isinstance(given, tuple) else ()


def _ranks(
    side: str, op: Op, values: Sequence[Value], outer: Sequence[int], inner: Sequence[int]
) -> None:
    ranks = [sharding.rank for sharding in _shardings(op, side)]
    fitting = all(ranks == [len(values[v].shape) for v in ends] for ends in (outer, inner))
    need(fitting, f"{side} of a manual computation must have the ranks of its values")


def _lengths(op: Op, count: int) -> tuple[int, ...]:
    lengths = op.integers("lengths")
    fitting = len(lengths) == count and min(lengths) >= 0
    need(fitting, f"{op.kind} must have {count} lengths, none of them negative")
    return lengths


def _same(rule: str, values: Sequence[Value], a: Sequence[int], b: Sequence[int]) -> None:
    need([values[v].shape for v in a] == [values[v].shape for v in b], rule)


def _sliced(rule: str, values: Sequence[Value], whole: Sequence[int], part: Sequence[int]) -> None:
    wholes, parts = ([values[v].shape for v in side] for side in (whole, part))
    need(all(wholes) and [shape[1:] for shape in wholes] == parts, rule)
