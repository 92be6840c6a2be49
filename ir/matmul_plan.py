"""Plans of matmuls: the movements of the operands, the product, and the movement of the result."""

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
    """The case of a sharded axis, which depends on its role in both operands.

    `number`: the case, 1 to 4; 0 if an operand is a partial sum along the axis. `why`: the role of
    the axis, in words.
    """

    axis: AxisRef
    number: int
    why: str


@dataclass(frozen=True)
class Loop:
    """Communication that overlaps with the product: devices pass parts around a ring.

    For an operand, the loop replaces the all-gather at the end of the operand's movement: a device
    multiplies a part while it sends the part on. For the result, the loop replaces the
    reduce-scatter at the start of its movement: a device adds its partial sum to each part that it
    receives.

    `factor`: the factor along which parts are cut. `digits`: the stride and size of the digits of a
    device's position, major to minor, that give its place in the ring. `count`: the number of
    devices in the ring. `directions`: if 2, half of every part moves each way. `order`: the places
    in the order of the ring, empty if ascending.
    """

    side: Side
    factor: int
    digits: tuple[tuple[int, int], ...]
    count: int
    directions: Literal[1, 2]
    order: tuple[int, ...] = ()

    @property
    def places(self) -> tuple[int, ...]:
        """The places in the order of the ring."""
        return self.order or tuple(range(self.count))


@dataclass(frozen=True)
class MatmulCost:
    """The cost of a candidate on the busiest device: work and bytes, and their time on a topology.

    The busiest device may differ between the movements of `received`, so their sum may exceed
    `received_max`.
    """

    flops: int
    received: tuple[int, int, int]  # the bytes received by each movement: lhs, rhs, result
    received_max: int  # the maximum bytes that a device receives in all movements
    touched: int  # the bytes of memory that the product reads and writes
    multiplying: float  # the time of the product's arithmetic, in seconds
    touching: float  # the time of the product's memory traffic, in seconds
    moving: tuple[float, float, float]  # the time of each movement, in seconds
    hidden: float = 0.0  # the time of communication that overlaps with the product, in seconds
    apart: float = 0.0  # the seconds of this candidate without its loop or pulling kernel
    launch: float = 0.0  # the time of everything else in a call, in seconds

    @property
    def product_seconds(self) -> float:
        """The time of the product in seconds: its arithmetic or its memory traffic, whichever
        takes longer."""
        return max(self.multiplying, self.touching)

    @property
    def seconds(self) -> float:
        """The time of a call in seconds: the sum of all parts, minus the overlap in a loop."""
        return self.launch + self.product_seconds + sum(self.moving) - self.hidden

    @property
    def limit(self) -> Limit:
        """The resource that takes most of the time."""
        parts: tuple[tuple[float, Limit], ...] = (
            (self.multiplying, "multiplication"),
            (self.touching, "memory"),
            (sum(self.moving), "communication"),
        )
        most, name = max(parts, key=lambda part: part[0])
        return name if most else "nothing"


@dataclass(frozen=True)
class MatmulCandidate:
    """One way to compute a matmul.

    `multiplication`: the shardings during the product. `loop`: the communication that overlaps with
    the product. `pulled`: whether one kernel replaces all steps; it pulls parts of operands and
    pushes sums while it multiplies, and `cost` is its cost.
    """

    multiplication: Multiplication
    moves: tuple[Plan, Plan, Plan]  # the plans that move lhs, rhs and the result
    cost: MatmulCost
    loop: Loop | None = None
    pulled: bool = False

    def move(self, side: Side) -> Plan:
        """Return the plan that moves an operand or the result."""
        return self.moves[SIDES.index(side)]


@dataclass(frozen=True, repr=False)
class MatmulPlan(Drawn):
    """The chosen candidate of a matmul, and the best candidates of other kinds.

    Candidates are compared by seconds on `topology`, or by bytes without one. `considered`: the
    number of candidates that were compared. `asked`: the loop that the caller requested; `among`:
    the loops from which "auto" chooses, which are those that the modules execute.
    """

    matmul: Matmul
    cases: tuple[AxisCase, ...]
    chosen: MatmulCandidate
    others: tuple[MatmulCandidate, ...]
    considered: int
    topology: str | None
    asked: str = "auto"
    among: tuple[str, ...] = ("one", "both")

    @property
    def may_pull(self) -> bool:
        """Whether the chosen candidate may have a pulling kernel."""
        return self.asked == "pulled" or (self.asked == "auto" and "pulled" in self.among)

    @property
    def pulls(self) -> bool:
        """Whether a module with a pulling kernel pulls parts while it multiplies. It does also in
        place of a ring, and if no topology says which way is faster."""
        unknown = self.topology is None and self.asked == "auto"
        return self.chosen.pulled or self.chosen.loop is not None or unknown

    @property
    def case(self) -> int:
        """The highest case number of all axes; 1 if there is no communication."""
        return max((case.number for case in self.cases), default=1) or 1

    def __repr__(self) -> str:
        lhs, rhs = (list(self.matmul.shape(side)) for side in ("lhs", "rhs"))
        received = self.chosen.cost.received_max
        return (
            f"<MatmulPlan: {self.matmul.dtype}{lhs} by {rhs} on {self.matmul.mesh.size} devices, "
            f"case {self.case}, at most {received:,} bytes to a device>"
        )

    def to_dict(self, transfers: bool | None = None) -> dict[str, Any]:
        """Return the plan as plain data, as `plan --json` prints it. `transfers`: whether to list
        the transfers of steps."""
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
        """Return `to_dict` as JSON text that ends in a newline, with one line per key and per other
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
    """Return the plain data of a candidate; `transfers`: whether to list the transfers."""
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
    """Return seconds rounded to six digits, because the last digits of a sum of floats differ
    between versions of Python."""
    return float(f"{seconds:.6g}")


def _steps(plan: Plan, transfers: bool) -> list[dict[str, Any]]:
    return [step_fields(step, plan.reshard, transfers) for step in plan.listed()]
