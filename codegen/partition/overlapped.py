"""Matmuls of a program beside which something is gathered or scattered, and whether a kernel does
both at once: where the model of a topology says that it takes less."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from shardwright.codegen.hardware.presets import name_of, topology_of
from shardwright.codegen.partition.local.fold import taken
from shardwright.codegen.partition.local.layout import LocalLayout
from shardwright.codegen.partition.local.steps import Compute, LocalBody, LocalProgram, MoveValue
from shardwright.codegen.planner.matmul.plan import plan_matmul
from shardwright.ir.errors import InputError
from shardwright.ir.matmul import SIDES, Matmul, Side
from shardwright.ir.matmul_plan import MatmulPlan


@dataclass(frozen=True)
class BesideMatmul:
    """A matmul and what is gathered for it or scattered of it; `side`: which tensor that is.

    `plan` is that of a kernel which does both, None where there is none; `reason`: why, in words.
    """

    product: Compute
    move: MoveValue
    side: Side
    name: str
    plan: MatmulPlan | None
    reason: str

    def __str__(self) -> str:
        line = f", {self.product.op.line}" if self.product.op.line else ""
        did = {"lhs": "gathered", "rhs": "gathered", "out": "scattered"}[self.side]
        how = "a kernel" if self.plan else "no kernel"
        return f"{self.name}{line}, {self.side} {did}: {how}, {self.reason}"


def beside_matmuls(local: LocalProgram, topology: str) -> tuple[BesideMatmul, ...]:
    """Return the matmuls of a program beside which something is gathered or scattered, in order."""
    found = _Finder(local, topology)
    own = [each for body in _bodies(local.body) for each in found.pairs(body, None)]
    shared = "it is in a function of equal layers, which take no kernels yet"
    for function in local.functions:
        own += (each for body in _bodies(function) for each in found.pairs(body, shared))
    return tuple(own)


def _bodies(body: LocalBody) -> Iterator[LocalBody]:
    yield body
    for step in body.steps:
        for inner in step.bodies if isinstance(step, Compute) else ():
            yield from _bodies(inner)


class _Finder:
    """Finds the pairs of a matmul and a movement, each movement once."""

    def __init__(self, local: LocalProgram, topology: str) -> None:
        self.local, self.topology = local, topology
        self.on = f"on {name_of(topology_of(topology))}"

    def pairs(self, body: LocalBody, refused: str | None) -> Iterator[BesideMatmul]:
        """Yield those of a body; `refused`: why none there gets a kernel."""
        made = {step.result: step for step in body.steps if isinstance(step, MoveValue)}
        uses = Counter(v for step in body.steps for v in taken(step))
        uses.update(body.results)
        used_by = {step.operand: step for step in made.values()}
        for step in body.steps:
            if not isinstance(step, Compute) or step.op.kind != "dot_general":
                continue
            sides: list[tuple[Side, MoveValue]] = []
            for side, operand in zip(("lhs", "rhs"), step.operands, strict=True):
                move = made.get(operand)
                if move is not None and move.change.kind == "all_gather":
                    sides.append(("lhs" if side == "lhs" else "rhs", move))
            after = used_by.get(step.results[0])
            if after is not None and after.change.kind == "reduce_scatter":
                sides.append(("out", after))
            for side, move in sides:
                moved = step.results[0] if side == "out" else move.result
                alone = "what is gathered is used again" if uses[moved] > 1 else None
                both = "two of its tensors move" if len(sides) > 1 else None
                yield self._choice(step, move, side, refused or both or alone)

    def _choice(
        self, step: Compute, move: MoveValue, side: Side, refused: str | None
    ) -> BesideMatmul:
        name = self.local.of(step.results[0]).name
        try:
            reason = refused or self._unfit(step)
            plan = None if reason else self._plan(step, move, side)
        except InputError as error:
            reason, plan = str(error).splitlines()[0], None
        if plan is None:
            reason = reason or f"apart takes no longer {self.on}"
            return BesideMatmul(step, move, side, name, None, reason)
        cost = plan.chosen.cost
        reason = f"{cost.seconds:.3g} seconds {self.on}, apart {cost.apart:.3g}"
        return BesideMatmul(step, move, side, name, plan, reason)

    def _unfit(self, step: Compute) -> str | None:
        """Return why a matmul is none of a kernel; None where it is one."""
        op = step.op
        tensors = [self.local.of(v) for v in (*step.operands, *step.results)]
        plain = [op.integers(f"contract_{side}") for side in ("lhs", "rhs")] == [(1,), (0,)]
        if [len(value.shape) for value in tensors] != [2, 2, 2] or not plain:
            return "kernels multiply two matrices as they lie, `x @ w`"
        if tensors[0].dtype != tensors[1].dtype or not self.local.axes.whole:
            return "its operands are of two dtypes, or an axis is cut in pieces"
        return None

    def _plan(self, step: Compute, move: MoveValue, side: Side) -> MatmulPlan | None:
        """Return the plan of what moves and multiplies at once, None where apart takes less."""
        layouts = dict(zip(SIDES, (*step.operands, *step.results), strict=True))
        layouts[side] = move.result if side == "out" else move.operand
        values = {name: self.local.of(v) for name, v in layouts.items()}
        found = {name: self._sharding(self.local.values[v].layout) for name, v in layouts.items()}
        mesh = self.local.axes.mesh
        lhs, rhs = ((values[s].shape, mesh.sharding(found[s])) for s in SIDES[:2])
        long = {short: name for name, short in _SHORT.items()}
        dtypes = [long.get(values[s].dtype, values[s].dtype) for s in ("lhs", "out")]
        matmul = Matmul(dtypes[0], lhs, rhs, mesh.sharding(found["out"]), dtypes[1])
        plan = plan_matmul(matmul, self.topology)
        chosen = plan.chosen
        others = [chosen.move(s).reshard for s in SIDES if s != side]
        if chosen.loop is None or chosen.loop.side != side or len(chosen.move(side).steps) != 1:
            return None
        if any(each.source != each.target for each in others):
            return None
        return plan

    def _sharding(self, layout: LocalLayout) -> str:
        if layout.partial:
            raise InputError("a tensor of it is the terms of a sum", argument="matmul")
        dims = ", ".join("{" + ", ".join(f'"{name}"' for name in dim) + "}" for dim in layout.dims)
        return f"[{dims}]"


_SHORT = {"bfloat16": "bf16", "float32": "f32", "int8": "i8", "int32": "i32", "float16": "f16"}
"""How jaxprs print the types that matmuls have."""
