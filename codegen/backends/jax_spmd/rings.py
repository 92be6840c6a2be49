"""Kernels in the module of a program: in the place of a matmul and of what moves beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from shardwright.codegen.backends.base import RingText
from shardwright.codegen.backends.jax_spmd.changes import axes_text
from shardwright.codegen.backends.jax_spmd.expressions import Expression
from shardwright.codegen.backends.jax_spmd.literals import integers
from shardwright.codegen.partition.local.fold import made
from shardwright.codegen.partition.local.steps import Compute, LocalBody
from shardwright.codegen.partition.overlapped import BesideMatmul
from shardwright.codegen.partition.partitioned import Partitioned
from shardwright.ir.errors import InputError
from shardwright.ir.matmul import SIDES
from shardwright.ir.matmul_plan import MatmulPlan

RingOf = Callable[[MatmulPlan, str, str, int], RingText]
"""Gives a kernel from its plan, its name, the axes of devices and its collective id."""


@dataclass(frozen=True)
class ProgramRing:
    """A kernel with its name in the module."""

    name: str
    beside: BesideMatmul
    text: RingText

    def operands(self) -> tuple[int, ...]:
        """Return the local values that it multiplies: one that it gathers as it was before."""
        lhs, rhs = self.beside.product.operands
        own = self.beside.move.operand
        return {"lhs": (own, rhs), "rhs": (lhs, own), "out": (lhs, rhs)}[self.beside.side]

    def statements(
        self,
        target: str,
        given: Sequence[str],
        shapes: Sequence[tuple[int, ...]],
        fresh: Callable[[str], str],
    ) -> Iterator[tuple[str, Expression]]:
        """Yield assignments, the last of which is of `target`: tensors become matrices, the kernel
        multiplies them, the product becomes a tensor. `shapes`: of what operands and the result are
        on a device; `fresh` gives names for what is made on the way."""
        matrices, turn, own = self.beside.matrices, self.beside.turn, shapes[-1]
        operands = []
        for side, text, shape in zip(SIDES, given, shapes[:2], strict=False):
            if turn is not None and turn.side == side:
                ends = [f"{text}.reshape({integers(turn.apart(shape))})", *map(str, turn.ends)]
                text = fresh(f"{target}_{side}")
                yield text, ("jnp.moveaxis", ends)
            rows = matrices.shape(side, shape)
            is_matrix = len(shape) == 2 and text in given
            operands.append(text if is_matrix else f"{text}.reshape({integers(rows)})")
        product = f"{self.name}.product", [*operands, "interpret"]
        turns = turn is not None and turn.side == "out"
        if len(own) == 2 and not turns:
            yield target, product
            return
        made = fresh(f"{target}_matrix")
        yield made, product
        if turn is not None and turns:
            ends = [f"{made}.reshape({integers(turn.turned(own))})", *map(str, turn.ends[::-1])]
            made = fresh(f"{target}_parts")
            yield made, ("jnp.moveaxis", ends)
        yield target, (f"{made}.reshape", [integers(own)])

    @property
    def result(self) -> int:
        """The local value that it makes."""
        scattered = self.beside.side == "out"
        return self.beside.move.result if scattered else self.beside.product.results[0]


@dataclass(frozen=True)
class ProgramRings:
    """The kernels of a program; `lines`: which matmuls have one, and why others have none."""

    rings: tuple[ProgramRing, ...] = ()
    by_step: dict[int, ProgramRing] = field(default_factory=dict)  # moves and products
    lines: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(ring.name for ring in self.rings)

    def within(self, body: LocalBody) -> bool:
        """Return whether a body has kernels, or a body inside it."""
        return any(
            (isinstance(step, Compute) and any(map(self.within, step.bodies)))
            or any(local in self.by_step for local in made(step))
            for step in body.steps
        )


def program_rings(program: Partitioned, ring_of: RingOf, first_id: int) -> ProgramRings:
    """Return the kernels of a program; `first_id`: the collective id of the first of them."""
    rings: list[ProgramRing] = []
    lines: list[str] = []
    axes = axes_text(program.local.axes.mesh.names)
    for each in program.kernel_choices:
        if each.plan is None:
            lines.append(str(each))
            continue
        name = f"RING_{len(rings) + 1}"
        try:
            text = ring_of(each.plan, name, axes, first_id + len(rings))
        except InputError as error:
            reason = str(error).splitlines()[0]
            lines.append(str(replace(each, plan=None, reason=reason)))
            continue
        rings.append(ProgramRing(name, each, text))
        lines.append(f"{name}: {each}")
    by_step = {ring.beside.product.results[0]: ring for ring in rings}
    by_step |= {ring.beside.move.result: ring for ring in rings}
    return ProgramRings(tuple(rings), by_step, tuple(lines))
