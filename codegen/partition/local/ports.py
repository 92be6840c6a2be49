"""Ports: the borders of loops and branches, where tensors enter and leave their bodies.

A port has one layout on both sides. It is modelled as an identity op, so the search chooses its
layout like that of any op. The port of a scan's carry, for example, joins the initial value, the
argument and result of the body, and the final value.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shardwright.codegen.ops.build import Builder, Shape
from shardwright.ir.errors import InternalError
from shardwright.ir.program import Op, Value
from shardwright.ir.sharding import Sharding

PORT = "port"


@dataclass(frozen=True)
class End:
    """One end of a port. `side`: "operands" or "results" of the op, or "arguments" or "results" of
    one of its bodies; `place`: the index on that side."""

    side: str
    place: int
    body: int | None = None

    def of(self, op: Op) -> int:
        owner = op if self.body is None else op.bodies[self.body]
        found: tuple[int, ...] = getattr(owner, self.side)
        return found[self.place]


@dataclass(frozen=True)
class Port:
    """The border of a loop or branch for one tensor. Operands of `op` are moved to the port's
    layout, and its results have that layout. The port of a condition has no results. `ends`: the
    ends of the operands, then those of the results."""

    op: Op
    ends: tuple[End, ...]

    @property
    def home(self) -> int:
        """The index of the tensor whose propagated sharding the port adopts: the first operand if
        the port leads out of a body, otherwise the first result."""
        return 0 if self.op.param("role") in ("gives", "tests") else len(self.op.operands)


def ports_of(op: Op, values: Sequence[Value]) -> tuple[Port, ...]:
    """Return the ports of an op with bodies. Ports that lead into bodies come first."""
    match op.kind:
        case "scan":
            found = _scan(op, values)
        case "while":
            found = _while(op, values)
        case "remat":
            found = _inlined(op, values)
        case "manual":
            found = _manual(op, values)
        case _:
            found = _cond(op, values)
    return tuple(found)


def _scan(op: Op, values: Sequence[Value]) -> Iterator[Port]:
    (body,) = op.bodies
    consts, carries, _ = op.integers("lengths")
    last = consts + carries
    for place in range(len(op.operands)):
        outside, inside = End("operands", place), End("arguments", place, 0)
        if place < consts:
            yield _port(op, values, "takes", (outside,), (inside,))
        elif place < last:
            back, out = End("results", place - consts, 0), End("results", place - consts)
            yield _port(op, values, "carries", (outside, back), (inside, out))
        else:
            yield _port(op, values, "takes", (outside,), (inside,), "takes")
    for place in range(carries, len(body.results)):
        given = (End("results", place, 0),), (End("results", place),)
        yield _port(op, values, "gives", *given, "gives")


def _while(op: Op, values: Sequence[Value]) -> Iterator[Port]:
    first, second = op.integers("lengths")
    for place in range(first + second):
        inside = (0, place) if place < first else (1, place - first)
        ends = (End("operands", place),), (End("arguments", inside[1], inside[0]),)
        yield _port(op, values, "takes", *ends)
    for place in range(len(op.results)):
        takes = End("operands", first + second + place), End("results", place, 1)
        inside_both = End("arguments", second + place, 1), End("arguments", first + place, 0)
        yield _port(op, values, "carries", takes, (*inside_both, End("results", place)))
    yield _port(op, values, "tests", (End("results", 0, 0),), ())


def _inlined(op: Op, values: Sequence[Value]) -> Iterator[Port]:
    for place in range(len(op.operands)):
        ends = (End("operands", place),), (End("arguments", place, 0),)
        yield _port(op, values, "takes", *ends)
    for place in range(len(op.results)):
        yield _port(op, values, "gives", (End("results", place, 0),), (End("results", place),))


def _manual(op: Op, values: Sequence[Value]) -> Iterator[Port]:
    """Yield the ports of a manual computation. On its outer side, a port's dimensions are split by
    the axes that the specs name."""
    for place in range(len(op.operands)):
        ends = (End("operands", place),), (End("arguments", place, 0),)
        yield _split(op, values, "takes", *ends)
    for place in range(len(op.results)):
        yield _split(op, values, "gives", (End("results", place, 0),), (End("results", place),))


def _split(
    op: Op, values: Sequence[Value], role: str, takes: tuple[End], gives: tuple[End]
) -> Port:
    """Return a port of a manual computation. Its parameter `manual` lists the manual axes that
    split each factor, and `axes` all manual axes."""
    (operand,), (result,) = (tuple(end.of(op) for end in side) for side in (takes, gives))
    shapes = values[operand].shape, values[result].shape
    outer = 0 if role == "takes" else 1
    asked = op.param("in_shardings" if role == "takes" else "out_shardings")
    sharding = asked[takes[0].place] if isinstance(asked, tuple) else None
    if not isinstance(sharding, Sharding):
        raise InternalError(f"{role} of a manual computation is {asked!r}")
    build = Builder((shapes[0],), (shapes[1],))
    factors: list[tuple[str, ...]] = []
    for dim, extent in enumerate(shapes[1 - outer]):
        axes = tuple(ref.name for ref in sharding.dims[dim].axes)
        if axes:
            build.factor(shapes[outer][dim] // max(extent, 1), {outer: dim}, kind="blocked")
            factors.append(axes)
        build.factor(extent, {0: dim, 1: dim})
        factors.append(())
    params = (
        *(("axes", op.param("manual_axes")), ("manual", tuple(factors)), ("of", op.kind)),
        *(("role", role), ("stacked", "")),
    )
    made = Op(PORT, (operand,), (result,), params, rule=build.rule(), line=op.line)
    return Port(made, (*takes, *gives))


def _cond(op: Op, values: Sequence[Value]) -> Iterator[Port]:
    yield _port(op, values, "tests", (End("operands", 0),), ())
    branches = range(len(op.bodies))
    for place in range(1, len(op.operands)):
        inside = tuple(End("arguments", place - 1, body) for body in branches)
        yield _port(op, values, "takes", (End("operands", place),), inside)
    for place in range(len(op.results)):
        given = tuple(End("results", place, body) for body in branches)
        yield _port(op, values, "gives", given, (End("results", place),))


def _port(
    op: Op,
    values: Sequence[Value],
    role: str,
    takes: tuple[End, ...],
    gives: tuple[End, ...],
    stacked: str = "",
) -> Port:
    """Return a port. `stacked`: the side, "takes" or "gives", whose tensors have an additional
    first dimension indexed by the iteration, or "" for neither."""
    operands, results = (tuple(end.of(op) for end in side) for side in (takes, gives))
    shapes = [tuple(values[v].shape for v in side) for side in (operands, results)]
    build = Builder(shapes[0], shapes[1])
    every: tuple[Shape, ...] = (*shapes[0], *shapes[1])
    count = len(operands)
    longer = {"takes": range(count), "gives": range(count, len(every))}.get(stacked, range(0))
    if stacked:
        build.factor(every[longer[0]][0], dict.fromkeys(longer, 0), kind="need_replication")
    for dim, extent in enumerate(every[0] if stacked != "takes" else every[-1]):
        build.factor(extent, {t: dim + (t in longer) for t in range(len(every))})
    params = (("of", op.kind), ("role", role), ("stacked", stacked))
    made = Op(PORT, operands, results, params, rule=build.rule(), line=op.line)
    return Port(made, (*takes, *gives))
