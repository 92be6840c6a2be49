"""Plans of matmuls: what moves before devices multiply, the product, what moves after it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Literal

from shardwright.ir.axes import AxisRef
from shardwright.ir.drawn import Drawn
from shardwright.ir.matmul import SIDES, Matmul, Side
from shardwright.ir.multiplication import Multiplication
from shardwright.ir.plan import Plan
from shardwright.ir.plan_json import step_fields

Limit = Literal["communication", "memory", "multiplication", "nothing"]


@dataclass(frozen=True)
class AxisCase:
    """What sharding along some axis asks for: one of the four cases, 0 for a sum still to be made.

    `why`: in words, where the axis stands in both operands.
    """

    axis: AxisRef
    number: int
    why: str


@dataclass(frozen=True)
class Loop:
    """A movement that goes on while devices multiply: parts go round a ring of `count` devices.

    Of an operand it is the all-gather that ends its movement: a device multiplies the part that it
    has while that part is on its way to the next one. Of the result it is the reduce-scatter that
    begins its movement: a device adds its term to a part that comes by. `digits` (stride, size) of
    a device's position, major to minor, are its place in the ring; `factor` is what parts are of.
    With two directions one half of every part goes each way. `order`: the places in the order in
    which parts go round, where that is another than theirs.
    """

    side: Side
    factor: int
    digits: tuple[tuple[int, int], ...]
    count: int
    directions: Literal[1, 2]
    order: tuple[int, ...] = ()

    @property
    def places(self) -> tuple[int, ...]:
        """The places in the order in which parts go round."""
        return self.order or tuple(range(self.count))


@dataclass(frozen=True)
class MatmulCost:
    """What a candidate takes: of the busiest device the flops, the bytes that arrive at it before
    the product and after it, and the bytes of memory that the product reads and writes; seconds of
    each on a topology. `hidden`: seconds of moving while devices multiply; `apart`: what a
    candidate with a loop, or a kernel that pulls, would take without it; `launch`: what a call
    takes besides."""

    flops: int
    received: tuple[int, int, int]  # with lhs, with rhs, with the result
    touched: int
    multiplying: float
    touching: float
    moving: tuple[float, float, float]
    hidden: float = 0.0
    apart: float = 0.0
    launch: float = 0.0

    @property
    def received_max(self) -> int:
        """Bytes that arrive at the busiest device in all."""
        return sum(self.received)

    @property
    def product_seconds(self) -> float:
        """What the product takes: its arithmetic or its memory, whichever is more."""
        return max(self.multiplying, self.touching)

    @property
    def seconds(self) -> float:
        """What all of it takes: one part after another, but for what a loop does at once."""
        return self.launch + self.product_seconds + sum(self.moving) - self.hidden

    @property
    def limit(self) -> Limit:
        """The resource that bounds the time."""
        parts: tuple[tuple[float, Limit], ...] = (
            (self.multiplying, "multiplication"),
            (self.touching, "memory"),
            (sum(self.moving), "communication"),
        )
        most, name = max(parts, key=lambda part: part[0])
        return name if most else "nothing"


@dataclass(frozen=True)
class MatmulCandidate:
    """One way to compute a matmul: the shardings during the product, the plans of the moves, and
    the step that overlaps with the product. `pulled`: whether one kernel replaces all steps; it
    pulls parts of operands and pushes sums while devices multiply, and the cost is its cost."""

    multiplication: Multiplication
    moves: tuple[Plan, Plan, Plan]  # of lhs, rhs and the result
    cost: MatmulCost
    loop: Loop | None = None
    pulled: bool = False

    def move(self, side: Side) -> Plan:
        """Return the plan of a side."""
        return self.moves[SIDES.index(side)]


@dataclass(frozen=True, repr=False)
class MatmulPlan(Drawn):
    """The candidate that was chosen, the next best of other kinds, and what they are compared by:
    seconds on a topology, or bytes where none is given. `considered`: how many there were;
    `asked`: the loop that was asked for."""

    matmul: Matmul
    cases: tuple[AxisCase, ...]
    chosen: MatmulCandidate
    others: tuple[MatmulCandidate, ...]
    considered: int
    topology: str | None
    asked: str = "auto"

    @property
    def case(self) -> int:
        """The hardest case of all axes, 1 if nothing is in the way."""
        return max((case.number for case in self.cases), default=1) or 1

    def __repr__(self) -> str:
        lhs, rhs = (list(self.matmul.shape(side)) for side in ("lhs", "rhs"))
        received = self.chosen.cost.received_max
        return (
            f"<MatmulPlan: {self.matmul.dtype}{lhs} by {rhs} on {self.matmul.mesh.size} devices, "
            f"case {self.case}, at most {received:,} bytes to a device>"
        )

    def to_dict(self, transfers: bool | None = None) -> dict[str, Any]:
        """Return the object of `plan --json`; `transfers`: whether those of steps are listed."""
        matmul = self.matmul
        return {
            "dtype": matmul.dtype,
            "out_dtype": matmul.out_dtype,
            "mesh": str(matmul.mesh),
            **{
                side: {"shape": list(matmul.shape(side)), "sharding": str(matmul.sharding(side))}
                for side in SIDES
            },
            "case": self.case,
            "cases": [
                {"axis": str(case.axis), "case": case.number, "why": case.why}
                for case in self.cases
            ],
            "chosen": _fields(self.chosen, bool(transfers)),
            "others": [_fields(other, False) for other in self.others],
            "considered": self.considered,
            "topology": self.topology,
        }

    def to_json(self, transfers: bool | None = None) -> str:
        """Return `to_dict` as JSON text, a line for each of its keys and of the other candidates,
        ending in a newline."""
        found = self.to_dict(transfers)
        lines = []
        for key, value in found.items():
            text = json.dumps(value)
            if key in ("others", "cases") and value:
                text = "[\n    " + ",\n    ".join(map(json.dumps, value)) + "\n  ]"
            lines.append(f"  {json.dumps(key)}: {text}")
        return "{\n" + ",\n".join(lines) + "\n}\n"


def _fields(candidate: MatmulCandidate, transfers: bool) -> dict[str, Any]:
    """Return a candidate as JSON has it."""
    cost, product = candidate.cost, candidate.multiplication
    return {
        "moves": {side: _steps(candidate.move(side), transfers) for side in SIDES},
        "product": {side: str(product.shardings[side]) for side in SIDES},
        "loop": None if candidate.loop is None else asdict(candidate.loop),
        **({"pulled": True, "apart_seconds": _rounded(cost.apart)} if candidate.pulled else {}),
        "flops": cost.flops,
        "received_max": cost.received_max,
        "seconds": _rounded(cost.seconds),
        "bounded_by": cost.limit,
    }


def _rounded(seconds: float) -> float:
    """Return what is written of a time: sums of floats differ in the last digits between versions
    of Python, and files must not."""
    return float(f"{seconds:.6g}")


def _steps(plan: Plan, transfers: bool) -> list[dict[str, Any]]:
    return [step_fields(step, plan.reshard, transfers) for step in plan.listed()]
