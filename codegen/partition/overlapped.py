"""Matmuls of a program with an adjacent gather or scatter. One kernel performs both if the model of
the topology predicts that it is faster."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from shardwright.codegen.hardware.presets import name_of, topology_of
from shardwright.codegen.moves.matmul.plan import plan_matmul
from shardwright.codegen.ops.table import kind_of
from shardwright.codegen.partition.local.steps import (
    Compute,
    LocalBody,
    LocalProgram,
    MoveValue,
    item_bytes,
    moves_of,
    taken,
)
from shardwright.codegen.partition.matrices import PLAIN, AsMatrices, Turn
from shardwright.ir.errors import InputError
from shardwright.ir.matmul import SIDES, Matmul, Side
from shardwright.ir.matmul_plan import MatmulPlan


@dataclass(frozen=True)
class BesideMatmul:
    """A matmul and the adjacent gather or scatter. `side`: the tensor that is gathered or
    scattered.

    `plan`: the plan of one kernel that performs both, None if separate steps are used; `reason`:
    the reason for this choice; `matrices`: the operands as the kernel multiplies them, possibly
    transposed; `turn`: the transposition of one tensor before or after the kernel, if any;
    `saving`: the seconds that the kernel saves each time.
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
    """Return the matmuls of a program with an adjacent gather or scatter, in order of execution."""
    found = _Finder(local, topology)
    every = (inner for body in (local.body, *local.functions) for inner in _bodies(body))
    return tuple(pair for body in every for pair in found.pairs(body))


def _bodies(body: LocalBody) -> Iterator[LocalBody]:
    yield body
    for step in body.steps:
        for inner in step.bodies if isinstance(step, Compute) else ():
            yield from _bodies(inner)


class _Finder:
    """Find pairs of a matmul and a move. At most one pair of each matmul gets a kernel."""

    def __init__(self, local: LocalProgram, topology: str) -> None:
        self.local, self.topology = local, topology
        self.on = f"on {name_of(topology_of(topology))}"
        self.times = {move.result: times for move, times in moves_of(local)}

    def pairs(self, body: LocalBody) -> Iterator[BesideMatmul]:
        moves = [each for each in body.steps if isinstance(each, MoveValue) and not each.own]
        made = {each.result: each for each in moves}
        used_by = {each.operand: each for each in moves}
        uses = Counter(v for step in body.steps for v in taken(step))
        uses.update(body.results)
        for step in body.steps:
            if not isinstance(step, Compute) or kind_of(step.op.kind).symbol != "@":
                continue
            sides = [(side, made.get(v)) for side, v in zip(SIDES, step.operands, strict=False)]
            sides.append(("out", used_by.get(step.results[0])))
            found = [
                self._choice(step, move, side, uses)
                for side, move in sides
                if move is not None and move.change.op == MOVES[side]
            ]
            best = max(found, key=lambda each: each.saving, default=None)
            for each in found:
                yield each if each is best or each.plan is None else _other(each)

    def _choice(
        self, step: Compute, move: MoveValue, side: Side, uses: Mapping[int, int]
    ) -> BesideMatmul:
        name = self.local.of(step.results[0]).name
        moved = step.results[0] if side == "out" else move.result
        none = BesideMatmul(
            step, move, side, name, None, f"a separate matmul takes no longer {self.on}"
        )
        if uses[moved] > 1:
            return replace(none, reason="the gathered operand is used again")
        try:
            found = _MatricesBeside.of(self.local, step, move, side)
            plan = self._plan(found)
        except InputError as error:
            return replace(none, reason=error.rule)
        if plan is None:
            return none
        cost, turning = plan.chosen.cost, self._turning(found)
        seconds = cost.seconds + turning
        if seconds >= cost.apart:
            names = " and ".join(found.turned)
            return replace(none, reason=f"transposing its {names} costs what it saves")
        matrices, turn = found.matrices, found.turn
        saving, times = cost.apart - seconds, self.times.get(move.result, 1)
        often = f", {times} times" if times > 1 else ""
        reason = (
            f"{seconds:.3g} seconds {self.on}, apart {cost.apart:.3g}: saves {saving:.2g}{often}"
        )
        return replace(none, plan=plan, reason=reason, matrices=matrices, turn=turn, saving=saving)

    def _plan(self, found: _MatricesBeside) -> MatmulPlan | None:
        """Return the plan of one kernel that multiplies and moves, or None if the best plan of the
        matmul moves tensors in another way."""
        matrices, move = found.matrices, found.move
        values = {name: self.local.of(v) for name, v in found.own.items()}
        (dim,), mesh = move.change.dims, self.local.axes.mesh
        laid = {
            name: mesh.sharding(
                matrices.sharding(
                    name,
                    self.local.values[found.own[name]].layout,
                    dim,
                    move.change.axes if name == found.side else (),
                )
            )
            for name in SIDES
        }
        lhs, rhs = ((matrices.shape(s, values[s].shape), laid[s]) for s in SIDES[:2])
        long = {short: name for name, short in _SHORT.items()}
        dtypes = [long.get(values[s].dtype, values[s].dtype) for s in ("lhs", "out")]
        matmul = Matmul(dtypes[0], lhs, rhs, laid["out"], dtypes[1])
        plan = plan_matmul(matmul, self.topology)
        chosen, side = plan.chosen, found.side
        others = [chosen.move(s).reshard for s in SIDES if s != side]
        if chosen.loop is None or chosen.loop.side != side or len(chosen.move(side).steps) != 1:
            return None
        if any(each.source != each.target for each in others):
            return None
        return plan

    def _turning(self, found: _MatricesBeside) -> float:
        memory = topology_of(self.topology).memory
        return 2 * found.turned_bytes / memory if memory else 0.0


@dataclass(frozen=True)
class _MatricesBeside:
    """A matmul of matrices and its move. `side`: the tensor that moves; `own`: for each tensor, the
    local value that the kernel takes or produces."""

    local: LocalProgram
    move: MoveValue
    matrices: AsMatrices
    side: Side
    own: dict[Side, int]
    turn: Turn | None

    @staticmethod
    def of(local: LocalProgram, step: Compute, move: MoveValue, side: Side) -> _MatricesBeside:
        """Return the matmul of matrices that transposes the fewest bytes. Raises InputError for a
        matmul that no kernel supports."""
        lhs, rhs = (local.of(v) for v in step.operands)
        if lhs.dtype != rhs.dtype or not local.axes.whole:
            raise InputError(
                "the operands differ in dtype, or an axis is split into sub-axes", argument="matmul"
            )
        every = AsMatrices.every(step.op, (len(lhs.shape), len(rhs.shape)))
        found = [
            _MatricesBeside._as(local, step, move, matrices, matrices.side(side))
            for matrices in every
        ]
        if not found:
            raise InputError("kernels multiply matrices, not vectors", argument="matmul")
        return min(found, key=lambda each: each.turned_bytes)

    @staticmethod
    def _as(
        local: LocalProgram, step: Compute, move: MoveValue, matrices: AsMatrices, side: Side
    ) -> _MatricesBeside:
        tensors = (*step.operands, *step.results)
        own = {matrices.side(s): v for s, v in zip(SIDES, tensors, strict=True)}
        whole = own[side] if side == "out" else move.result
        own[side] = move.result if side == "out" else move.operand
        (dim,), parts = move.change.dims, local.axes.parts_of(move.change.axes)
        turn = None
        if dim not in matrices.groups(side)[0]:
            turn = matrices.turn(side, dim, parts, local.shape(whole))
        return _MatricesBeside(local, move, matrices, side, own, turn)

    @property
    def turned(self) -> tuple[Side, ...]:
        turned = None if self.turn is None else self.turn.side
        sides = (s for s in SIDES if s == turned or not self.matrices.is_in_order(s))
        return tuple(map(self.matrices.side, sides))

    @property
    def turned_bytes(self) -> int:
        own = (self.own[self.matrices.side(side)] for side in self.turned)
        return sum(math.prod(self.local.shape(v)) * item_bytes(self.local.of(v).dtype) for v in own)


def _other(choice: BesideMatmul) -> BesideMatmul:
    """Return a choice without its kernel, because the matmul has a kernel that moves another
    tensor."""
    return replace(choice, plan=None, reason="the kernel with another of its tensors saves more")


MOVES: dict[Side, str] = {"lhs": "all_gather", "rhs": "all_gather", "out": "reduce_scatter"}
"""The layout change that a kernel performs on each tensor."""

_SHORT = {"bfloat16": "bf16", "float32": "f32", "int8": "i8", "int32": "i32", "float16": "f16"}
"""The dtypes of matmuls in the notation of jaxprs."""
