"""The steps of a matmul module: operands move, devices multiply, and the result moves.

The statements of a movement are those of a reshard's module (`jax_steps/blocks.py`), applied to the
variables `a` and `b` of the operands and `c` of the result. All steps of a module, including the
product, are numbered in order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from shardwright.codegen.backends.jax_steps.axes import ProgramAxes
from shardwright.codegen.backends.jax_steps.blocks import Blocks, Collectives
from shardwright.codegen.backends.jax_steps.boxes import pairs_of
from shardwright.codegen.backends.jax_steps.plan import identity, said_of
from shardwright.codegen.hardware.presets import is_processor, topology_of
from shardwright.codegen.moves.basis.boxed import layouts_of
from shardwright.codegen.moves.basis.digits import Digits
from shardwright.ir.axes import AxisRef, axes_text
from shardwright.ir.exchange import ids_of
from shardwright.ir.matmul import SIDES, Matmul, Side
from shardwright.ir.matmul_plan import MatmulCandidate, MatmulPlan

VARIABLES: dict[Side, str] = {"lhs": "a", "rhs": "b", "out": "c"}


@dataclass(frozen=True)
class MatmulStep:
    """One movement of an operand or the result: its number among the steps, its description, and
    its statements."""

    number: int
    side: Side
    said: str
    block: Collectives

    @property
    def received(self) -> int:
        return int(self.block.received.max())

    def lines(self) -> Iterator[str]:
        """Yield the statements, applied to the variable of the side."""
        name = VARIABLES[self.side]
        for statement in self.block.statements:
            if statement.function:
                yield from statement.of(name).lines(name)


@dataclass(frozen=True)
class MatmulSteps:
    """The movements before and after the product, which is step `product`.

    `axes`: the axes of the program; `named`: whether they can express all shardings, so that
    operands and result share one mesh; `rotated`: the movement that a loop performs while
    multiplying; `carried`: the bytes that a device receives in the loop, if they differ from the
    bytes of that movement.
    """

    before: tuple[MatmulStep, ...]
    after: tuple[MatmulStep, ...]
    axes: ProgramAxes
    named: bool
    rotated: MatmulStep | None = None
    carried: int | None = None

    @property
    def product(self) -> int:
        """The number of the product among the steps."""
        return len(self.before) + 1

    @property
    def every(self) -> tuple[MatmulStep, ...]:
        return self.before + self.after

    @property
    def uses(self) -> frozenset[str]:
        """The names that the statements of all movements use."""
        return frozenset[str]().union(*(step.block.uses for step in self.every))

    @property
    def received(self) -> int:
        """The bytes, including padding, that the busiest device receives in all movements."""
        received = [step.block.received for step in self.every]
        if self.rotated is not None:
            carried = self.carried
            own = self.rotated.block.received if carried is None else np.array([carried])
            received.append(own)
        return int(np.max(sum(received, np.zeros(1, dtype=np.int64))))


def matmul_steps(plan: MatmulPlan) -> MatmulSteps:
    """Return the movements of a plan. They are numbered together with its product."""
    matmul, chosen = plan.matmul, plan.chosen
    axes = _axes(matmul, chosen)
    moves: dict[Side, list[MatmulStep]] = {"lhs": [], "rhs": [], "out": []}
    rotated: MatmulStep | None = None
    number = 1
    for side in SIDES:
        rotates = chosen.loop is not None and chosen.loop.side == side
        # The product has its own step number, unless a loop also moves the result: they then share
        # one number.
        number += side == "out" and not rotates
        found = list(_steps(plan, side, axes, number))
        number += side == "out" and rotates
        if rotates:
            rotated = found.pop(0 if side == "out" else -1)
        moves[side] = found
        number += len(found)
    named = all(axes.over(digits) is not None for digits in _shardings(matmul))
    before = (*moves["lhs"], *moves["rhs"])
    return MatmulSteps(before, tuple(moves["out"]), axes, named, rotated)


def _axes(matmul: Matmul, chosen: MatmulCandidate) -> ProgramAxes:
    """Return the axes of the program: if possible, axes that can name the axes of all shardings, of
    the product, and of all steps."""
    steps = (step for plan in chosen.moves for step in plan.listed())
    cuts = [*_shardings(matmul), *_product(chosen)]
    for step in steps:
        dims = (dim for layout in layouts_of(step) for dim in layout.dims)
        cuts.append(tuple(pair for dim in dims for pair in pairs_of(dim.digits)))
    return ProgramAxes.of(matmul.lhs.sharding, cuts)


def _shardings(matmul: Matmul) -> Iterator[Digits]:
    for side in SIDES:
        sharding = matmul.sharding(side)
        for ref in (*sharding.used(), *sharding.unreduced):
            yield digits_of(matmul, (ref,))


def _product(chosen: MatmulCandidate) -> Iterator[Digits]:
    product = chosen.multiplication
    for refs in (*product.axes, *product.terms):
        for ref in refs:
            yield digits_of(product.matmul, (ref,))


def digits_of(matmul: Matmul, refs: tuple[AxisRef, ...]) -> Digits:
    """Return axes as digits (stride, size) of a device's position."""
    return pairs_of(tuple(map(matmul.mesh.digit, refs)))


def _steps(chosen: MatmulPlan, side: Side, axes: ProgramAxes, first: int) -> Iterator[MatmulStep]:
    matmul, plan = chosen.matmul, chosen.chosen.move(side)
    reshard, on = plan.reshard, chosen.topology
    outermost = on is not None and is_processor(topology_of(on))
    operators = reshard.source.operator, reshard.target.operator
    started, empty = (identity(operator, reshard.dtype, as_bits=False) for operator in operators)
    ids = np.sort(ids_of(matmul.mesh))
    make = Blocks(matmul.mesh, reshard.dtype, ids, axes, started, empty, outermost)
    for number, step in enumerate(plan.listed(), first):
        yield MatmulStep(number, side, f"{side}, {said_of(plan, step)}", make.of(number, step))


def axis_names(steps: MatmulSteps, matmul: Matmul, refs: tuple[AxisRef, ...]) -> str | None:
    """Return the Python expression that names axes, or None if the program has no such axes."""
    names = steps.axes.over(digits_of(matmul, refs))
    return None if names is None else axes_text(names)
