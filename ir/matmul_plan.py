"""Plans of matmuls: moves before the product, the product, and moves after it."""

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
    """What a sharded axis requires: one of the four cases, 0 for a pending sum.

    `why`: the role of the axis in both operands, in words.
    """

    axis: AxisRef
    number: int
    why: str


@dataclass(frozen=True)
class Loop:
    """Communication that overlaps with the product: parts travel round a ring of `count` devices.

    For an operand it is the all-gather at the end of its movement: a device multiplies its current
    part while sending it on. For the result it is the reduce-scatter at the start of its movement:
    a device adds its partial sum to each passing part. The `digits` (stride, size) of a device's
    position, major to minor, give its place in the ring; parts are cut along `factor`. With two
    directions, half of every part goes each way. `order`: the order of the places round the ring,
    if not ascending.
    """

    side: Side
    factor: int
    digits: tuple[tuple[int, int], ...]
    count: int
    directions: Literal[1, 2]
    order: tuple[int, ...] = ()

    @property
    def places(self) -> tuple[int, ...]:
        """The places in ring order."""
        return self.order or tuple(range(self.count))


@dataclass(frozen=True)
class MatmulCost:
    """The cost of a candidate on the busiest device: flops, bytes received, memory bytes that the
    product reads and writes, and seconds of each on a topology. `received`: bytes into the device
    that each movement sends most to, so their sum may exceed `received_max`, the most bytes that
    all movements together bring to one device.
    `hidden`: seconds of communication overlapped with the product; `apart`: seconds of the same
    candidate without the loop or pulling kernel; `launch`: all other seconds of a call."""

    flops: int
    received: tuple[int, int, int]  # by the movements of lhs, rhs and the result
    received_max: int
    touched: int
    multiplying: float
    touching: float
    moving: tuple[float, float, float]
    hidden: float = 0.0
    apart: float = 0.0
    launch: float = 0.0

    @property
    def product_seconds(self) -> float:
        """Seconds of the product: its arithmetic or its memory traffic, whichever is longer."""
        return max(self.multiplying, self.touching)

    @property
    def seconds(self) -> float:
        """Seconds in all: the sum of the parts, minus the overlap in a loop."""
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
    the step that overlaps with the product. `pulled`: one kernel replaces all steps, pulling parts
    of operands and pushing sums while devices multiply; the cost is the kernel's."""

    multiplication: Multiplication
    moves: tuple[Plan, Plan, Plan]  # plans for lhs, rhs and the result
    cost: MatmulCost
    loop: Loop | None = None
    pulled: bool = False

    def move(self, side: Side) -> Plan:
        """Return the plan of a side."""
        return self.moves[SIDES.index(side)]


@dataclass(frozen=True, repr=False)
class MatmulPlan(Drawn):
    """The chosen candidate, the next best ones of other kinds, and the measure that compares them:
    seconds on a topology, or bytes without one. `considered`: the number of candidates; `asked`:
    the requested loop."""

    matmul: Matmul
    cases: tuple[AxisCase, ...]
    chosen: MatmulCandidate
    others: tuple[MatmulCandidate, ...]
    considered: int
    topology: str | None
    asked: str = "auto"

    @property
    def case(self) -> int:
        """The hardest case of all axes, 1 without communication."""
        return max((case.number for case in self.cases), default=1) or 1

    def __repr__(self) -> str:
        lhs, rhs = (list(self.matmul.shape(side)) for side in ("lhs", "rhs"))
        received = self.chosen.cost.received_max
        return (
            f"<MatmulPlan: {self.matmul.dtype}{lhs} by {rhs} on {self.matmul.mesh.size} devices, "
            f"case {self.case}, at most {received:,} bytes to a device>"
        )

    def to_dict(self, transfers: bool | None = None) -> dict[str, Any]:
        """Return the object of `plan --json`; `transfers`: whether to list those of steps."""
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
        """Return `to_dict` as JSON text ending in a newline, one line per key and per other
        candidate."""
        found = self.to_dict(transfers)
        lines = []
        for key, value in found.items():
            text = json.dumps(value)
            if key in ("others", "cases") and value:
                text = "[\n    " + ",\n    ".join(map(json.dumps, value)) + "\n  ]"
            lines.append(f"  {json.dumps(key)}: {text}")
        return "{\n" + ",\n".join(lines) + "\n}\n"


def _fields(candidate: MatmulCandidate, transfers: bool) -> dict[str, Any]:
    """Return a candidate for JSON."""
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
    """Round seconds for files: the last digits of float sums differ between versions of Python."""
    return float(f"{seconds:.6g}")


def _steps(plan: Plan, transfers: bool) -> list[dict[str, Any]]:
    return [step_fields(step, plan.reshard, transfers) for step in plan.listed()]
