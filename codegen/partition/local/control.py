"""Loops and branches: the layouts of their operands and results, and of the arguments and results
of their bodies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from shardwright.codegen.ops.layout import LocalLayout
from shardwright.codegen.partition.local.ports import End, Port
from shardwright.ir.errors import InputError
from shardwright.ir.mesh import Mesh
from shardwright.ir.program import CONTROL, Op
from shardwright.ir.sharding import Sharding

Layouts = tuple[LocalLayout, ...]


@dataclass(frozen=True)
class ControlEnds:
    """The layouts of an op's operands and results, and of the arguments and results of each body.
    `at`: the port at each of these ends."""

    operands: Layouts
    results: Layouts
    bodies: tuple[tuple[Layouts, Layouts], ...]
    at: Mapping[End, Port]

    def ports(self, side: str, body: int | None = None) -> tuple[Port, ...]:
        """Return the ports at the operands or results of the op or, if `body` is given, at the
        arguments or results of that body."""
        found = {
            end.place: port for end, port in self.at.items() if (end.side, end.body) == (side, body)
        }
        return tuple(found[place] for place in sorted(found))


def is_control(op: Op) -> bool:
    return op.kind in CONTROL or op.kind == "cond"


def control_ends(
    op: Op, ports: tuple[Port, ...], layouts: Callable[[Port], Layouts]
) -> ControlEnds:
    """Return the layouts around an op with bodies. `layouts`: a function that returns the layouts
    of a port's tensors, operands first."""
    found = {
        end: layout for port in ports for end, layout in zip(port.ends, layouts(port), strict=True)
    }

    def side(name: str, count: int, body: int | None = None) -> Layouts:
        return tuple(found[End(name, place, body)] for place in range(count))

    bodies = tuple(
        (
            side("arguments", len(body.arguments), number),
            side("results", len(body.results), number),
        )
        for number, body in enumerate(op.bodies)
    )
    at = {end: port for port in ports for end in port.ends}
    own = side("operands", len(op.operands)), side("results", len(op.results))
    return ControlEnds(*own, bodies, at)


def check_manual(op: Op, mesh: Mesh) -> None:
    """Raise InputError for a manual computation on another mesh than the program's, or with partial
    sums among its operands or results."""
    if op.kind != "manual":
        return
    given = [op.param("in_shardings"), op.param("out_shardings")]
    for sharding in (s for side in given if isinstance(side, tuple) for s in side):
        if not isinstance(sharding, Sharding):
            continue
        if sharding.mesh != mesh:
            raise InputError(
                "a shard_map in an emitted program must be on the mesh of the program",
                argument=_named(op),
                got=str(sharding.mesh),
                expected=str(mesh),
            )
        if sharding.unreduced:
            raise InputError(
                "a shard_map in an emitted program must not take or return partial sums",
                argument=_named(op),
                got=str(sharding),
                expected="specs without unreduced axes: reduce inside it, with lax.psum",
            )


def _named(op: Op) -> str:
    return f"shard_map, {op.line}" if op.line else "shard_map"
