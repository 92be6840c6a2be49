"""Kernels in a program's module: each replaces a matmul and the communication before or after
it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from shardwright.codegen.backends.base import RingText
from shardwright.codegen.backends.jax_host import imports_of
from shardwright.codegen.ops.literals import integers
from shardwright.codegen.ops.text import Expression
from shardwright.codegen.partition.local.steps import (
    Compute,
    LocalBody,
    made,
)
from shardwright.codegen.partition.overlapped import BesideMatmul
from shardwright.codegen.partition.partitioned import Partitioned
from shardwright.ir.axes import axes_text
from shardwright.ir.errors import InputError
from shardwright.ir.matmul import SIDES, Side
from shardwright.ir.matmul_plan import MatmulPlan

Step = Callable[[str], Expression]
"""A function that returns an expression, given the expression of an array."""

RingOf = Callable[[MatmulPlan, str, str, int], RingText]
"""A function that returns a kernel, given its plan, its name, the expression for the axes whose
order gives device positions, and its collective id."""


@dataclass(frozen=True)
class ProgramRing:
    """A kernel and its name in the module."""

    name: str
    beside: BesideMatmul
    text: RingText

    def operands(self) -> tuple[int, ...]:
        """Return the local values that the kernel takes: both operands of the product or, for an
        operand that the kernel gathers, its shard."""
        own = dict(zip(SIDES, self.beside.product.operands, strict=False))
        if self.beside.side != "out":
            own[self.beside.side] = self.beside.move.operand
        return tuple(own[self.beside.matrices.side(side)] for side in SIDES[:2])

    def statements(
        self,
        target: str,
        given: Sequence[str],
        shapes: Sequence[tuple[int, ...]],
        fresh: Callable[[str], str],
    ) -> Iterator[tuple[str, Expression]]:
        """Yield (target, expression) for each statement: operands become matrices, the kernel
        multiplies them, and the product becomes a tensor named `target`.

        `given`: the expressions of the operands; `shapes`: the shapes of operands and result on a
        device; `fresh`: a function that returns names for intermediate values.
        """
        operands = []
        for side, text, shape in zip(SIDES, given, shapes[:2], strict=False):
            for step in self._ordered(side, shape):
                name = fresh(f"{target}_{side}")
                yield name, step(text)
                text = name
            flat = self.beside.matrices.shape(side, shape)
            turn = self.beside.turn
            is_flat = len(flat) == len(shape) and (turn is None or turn.side != side)
            operands.append(text if is_flat else f"{text}.reshape({integers(flat)})")
        product = f"{self.name}.product", [*operands, "interpret"]
        steps = list(self._to_tensor(shapes[-1]))
        made = fresh(f"{target}_matrix") if steps else target
        yield made, product
        for number, step in enumerate(steps, 1):
            name = target if number == len(steps) else fresh(f"{target}_parts")
            yield name, step(made)
            made = name

    def _ordered(self, side: Side, shape: tuple[int, ...]) -> Iterator[Step]:
        matrices, turn = self.beside.matrices, self.beside.turn
        order = matrices.order(side)
        if not matrices.is_in_order(side):
            yield _transposed(order)
        if turn is not None and turn.side == side:
            parts = turn.apart([shape[d] for d in order])
            yield _moved(parts, *turn.ends)

    def _to_tensor(self, shape: tuple[int, ...]) -> Iterator[Step]:
        matrices, turn = self.beside.matrices, self.beside.turn
        order = matrices.order("out")
        lying = tuple(shape[d] for d in order)
        turned = turn is not None and turn.side == "out"
        if turn is not None and turned:
            yield _moved(turn.turned(lying), *turn.ends[::-1])
        if turned or len(matrices.shape("out", shape)) != len(shape):
            yield _reshaped(lying)
        if not matrices.is_in_order("out"):
            yield _transposed(tuple(map(order.index, range(len(order)))))

    @property
    def result(self) -> int:
        """The local value that the kernel produces."""
        scattered = self.beside.side == "out"
        return self.beside.move.result if scattered else self.beside.product.results[0]


def _transposed(order: tuple[int, ...]) -> Step:
    if order == (1, 0):
        return lambda text: f"{text}.T"
    return lambda text: f"{text}.transpose({integers(order)})"


def _reshaped(shape: tuple[int, ...]) -> Step:
    return lambda text: f"{text}.reshape({integers(shape)})"


def _moved(shape: tuple[int, ...], source: int, target: int) -> Step:
    ends = str(source), str(target)
    return lambda text: ("jnp.moveaxis", [f"{text}.reshape({integers(shape)})", *ends])


@dataclass(frozen=True)
class ProgramRings:
    """The kernels of a program. `lines`: which matmuls have a kernel, and why the others have
    none."""

    rings: tuple[ProgramRing, ...] = ()
    by_step: dict[int, ProgramRing] = field(default_factory=dict)  # by result
    lines: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(ring.name for ring in self.rings)

    @property
    def calls(self) -> dict[str, set[str]]:
        """The names that kernels use, by support module."""
        found: dict[str, set[str]] = {}
        for ring in self.rings:
            for module, names in ring.text.calls.items():
                found.setdefault(module, set()).update(names)
        return {module: names for module, names in found.items() if names}

    @property
    def imports(self) -> tuple[str, ...]:
        jax = dict.fromkeys(line for ring in self.rings for line in ring.text.imported)
        return (*jax, *imports_of(self.calls))

    @property
    def taken(self) -> tuple[str, ...]:
        """The names that kernels and their imports use up in the module."""
        defined = (f"{name.lower()}_kernel" for name in self.names)
        return (*self.names, *defined, *(name for names in self.calls.values() for name in names))

    def within(self, body: LocalBody) -> bool:
        """Return whether a body, or a body nested in it, contains a kernel."""
        return any(
            (isinstance(step, Compute) and any(map(self.within, step.bodies)))
            or any(local in self.by_step for local in made(step))
            for step in body.steps
        )


def program_rings(program: Partitioned, ring_of: RingOf, first_id: int) -> ProgramRings:
    """Return the kernels of a program. `ring_of`: a function that returns a kernel; `first_id`: the
    first collective id."""
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
