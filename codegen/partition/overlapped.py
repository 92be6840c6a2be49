"""Matmuls of a program beside which something is gathered or scattered, and whether a kernel does
both at once: where the model of a topology says that it takes less."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from shardwright.codegen.hardware.presets import name_of, topology_of
from shardwright.codegen.partition.local.fold import taken
from shardwright.codegen.partition.local.steps import (
    Compute,
    LocalBody,
    LocalProgram,
    MoveValue,
    item_bytes,
    moves_of,
)
from shardwright.codegen.partition.matrices import PLAIN, AsMatrices, Turn
from shardwright.codegen.planner.matmul.plan import plan_matmul
from shardwright.ir.errors import InputError
from shardwright.ir.matmul import SIDES, Matmul, Side
from shardwright.ir.matmul_plan import MatmulPlan


@dataclass(frozen=True)
class BesideMatmul:
    """A matmul and what is gathered for it or scattered of it; `side`: which tensor that is.

    `plan` is that of a kernel which does both, None where there is none; `reason`: why, in words.
    The kernel multiplies `matrices`, of tensors of which one may be turned before or after;
    `saving`: the seconds that it takes less, each time.
    """

    product: Compute
    move: MoveValue
    side: Side
    name: str
    plan: MatmulPlan | None
    reason: str
    matrices: AsMatrices = PLAIN
    turn: Turn | None = None
    saving: float = 0.0

    def __str__(self) -> str:
        line = f", {self.product.op.line}" if self.product.op.line else ""
        did = {"lhs": "gathered", "rhs": "gathered", "out": "scattered"}[self.side]
        how = "a kernel" if self.plan else "no kernel"
        return f"{self.name}{line}, {self.side} {did}: {how}, {self.reason}"


def beside_matmuls(local: LocalProgram, topology: str) -> tuple[BesideMatmul, ...]:
    """Return the matmuls of a program beside which something is gathered or scattered, in order."""
    found = _Finder(local, topology)
    every = (inner for body in (local.body, *local.functions) for inner in _bodies(body))
    return tuple(pair for body in every for pair in found.pairs(body))


def _bodies(body: LocalBody) -> Iterator[LocalBody]:
    yield body
    for step in body.steps:
        for inner in step.bodies if isinstance(step, Compute) else ():
            yield from _bodies(inner)


class _Finder:
    """Finds the pairs of a matmul and a movement; of a matmul one at most has a kernel."""

    def __init__(self, local: LocalProgram, topology: str) -> None:
        self.local, self.topology = local, topology
        self.on = f"on {name_of(topology_of(topology))}"
        self.times = {move.result: times for move, times in moves_of(local)}

    def pairs(self, body: LocalBody) -> Iterator[BesideMatmul]:
        """Yield those of a body."""
        moves = [each for each in body.steps if isinstance(each, MoveValue) and not each.change.own]
        made = {each.result: each for each in moves}
        used_by = {each.operand: each for each in moves}
        uses = Counter(v for step in body.steps for v in taken(step))
        uses.update(body.results)
        for step in body.steps:
            if not isinstance(step, Compute) or step.op.kind != "dot_general":
                continue
            sides = [(side, made.get(v)) for side, v in zip(SIDES, step.operands, strict=False)]
            sides.append(("out", used_by.get(step.results[0])))
            found = [
                self._choice(step, move, side, uses)
                for side, move in sides
                if move is not None and move.change.kind == MOVES[side]
            ]
            best = max(found, key=lambda each: each.saving, default=None)
            for each in found:
                yield each if each is best or each.plan is None else _other(each)

    def _choice(
        self, step: Compute, move: MoveValue, side: Side, uses: Mapping[int, int]
    ) -> BesideMatmul:
        name = self.local.of(step.results[0]).name
        moved = step.results[0] if side == "out" else move.result
        none = BesideMatmul(step, move, side, name, None, f"apart takes no longer {self.on}")
        if uses[moved] > 1:
            return replace(none, reason="what is gathered is used again")
        try:
            matrices = self._matrices(step)
            plan = self._plan(step, move, side, matrices)
        except InputError as error:
            return replace(none, reason=error.rule)
        if plan is None:
            return none
        (dim,), parts = move.change.dims, self.local.axes.parts_of(move.change.axes)
        turn = matrices.turn(side, dim, parts, self.local.shape(moved))
        cost, turning = plan.chosen.cost, self._turning(step, turn)
        seconds = cost.seconds + turning
        if seconds >= cost.apart:
            return replace(none, reason=f"turning its {turn and turn.side} takes what it saves")
        saving, times = cost.apart - seconds, self.times.get(move.result, 1)
        often = f", {times} times" if times > 1 else ""
        reason = (
            f"{seconds:.3g} seconds {self.on}, apart {cost.apart:.3g}: saves {saving:.2g}{often}"
        )
        return replace(none, plan=plan, reason=reason, matrices=matrices, turn=turn, saving=saving)

    def _matrices(self, step: Compute) -> AsMatrices:
        """Return a matmul as one of matrices. Raises InputError where it is none of a kernel."""
        lhs, rhs, out = (self.local.of(v) for v in (*step.operands, *step.results))
        ranks = len(lhs.shape), len(rhs.shape), len(out.shape)
        found = AsMatrices.of(step.op, ranks)
        if found is None:
            raise InputError(TRANSPOSED, argument="matmul")
        if lhs.dtype != rhs.dtype or not self.local.axes.whole:
            raise InputError(
                "its operands are of two dtypes, or an axis is cut in pieces", argument="matmul"
            )
        return found

    def _plan(
        self, step: Compute, move: MoveValue, side: Side, matrices: AsMatrices
    ) -> MatmulPlan | None:
        """Return the plan of what moves and multiplies at once, None where apart takes less."""
        own = dict(zip(SIDES, (*step.operands, *step.results), strict=True))
        own[side] = move.result if side == "out" else move.operand
        values = {name: self.local.of(v) for name, v in own.items()}
        (dim,), mesh = move.change.dims, self.local.axes.mesh
        found = {
            name: mesh.sharding(
                matrices.sharding(
                    name,
                    self.local.values[own[name]].layout,
                    dim,
                    move.change.axes if name == side else (),
                )
            )
            for name in SIDES
        }
        lhs, rhs = ((matrices.shape(s, values[s].shape), found[s]) for s in SIDES[:2])
        long = {short: name for name, short in _SHORT.items()}
        dtypes = [long.get(values[s].dtype, values[s].dtype) for s in ("lhs", "out")]
        matmul = Matmul(dtypes[0], lhs, rhs, found["out"], dtypes[1])
        plan = plan_matmul(matmul, self.topology)
        chosen = plan.chosen
        others = [chosen.move(s).reshard for s in SIDES if s != side]
        if chosen.loop is None or chosen.loop.side != side or len(chosen.move(side).steps) != 1:
            return None
        if any(each.source != each.target for each in others):
            return None
        return plan

    def _turning(self, step: Compute, turn: Turn | None) -> float:
        """Return the seconds in which a tensor is read and written once more."""
        if turn is None:
            return 0.0
        memory = topology_of(self.topology).memory
        local = dict(zip(SIDES, (*step.operands, *step.results), strict=True))[turn.side]
        size = math.prod(self.local.shape(local)) * item_bytes(self.local.of(local).dtype)
        return 2 * size / memory if memory else 0.0


def _other(choice: BesideMatmul) -> BesideMatmul:
    """Return a choice without its kernel: the matmul has that of another tensor."""
    return replace(choice, plan=None, reason="the kernel with another of its tensors saves more")


MOVES: dict[Side, str] = {"lhs": "all_gather", "rhs": "all_gather", "out": "reduce_scatter"}
"""What happens to a tensor in a kernel."""

TRANSPOSED = "kernels multiply tensors as they lie: no batches, nothing transposed"

_SHORT = {"bfloat16": "bf16", "float32": "f32", "int8": "i8", "int32": "i32", "float16": "f16"}
"""How jaxprs print the types that matmuls have."""
