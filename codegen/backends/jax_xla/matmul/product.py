"""The product in a module of plain JAX: the statements that multiply two shards."""

from __future__ import annotations

from dataclasses import dataclass

from shardwright.codegen.backends.jax_xla.matmul.loop import loop_lines
from shardwright.codegen.backends.jax_xla.matmul.steps import (
    MatmulSteps,
    axis_names,
    comment,
    digits_of,
)
from shardwright.codegen.backends.jax_xla.steps.blocks import quoted
from shardwright.codegen.emit.python_text import INDENT, WIDTH, called
from shardwright.ir.errors import InputError
from shardwright.ir.matmul_plan import MatmulPlan
from shardwright.ir.multiplication import Multiplication


@dataclass(frozen=True)
class ProductText:
    """Statements that make `c` of `a` and `b`, the support functions that they call, and the
    libraries that they use."""

    lines: tuple[str, ...]
    calls: tuple[str, ...]
    libraries: frozenset[str]


def product_lines(plan: MatmulPlan, steps: MatmulSteps) -> ProductText:
    """Return the product: one matmul of two shards, or a loop of such."""
    matmul, product = plan.matmul, plan.chosen.multiplication
    lines = comment(f"{steps.product}. {product_said(plan, steps)}")
    padding, libraries = _padding(product, steps), {"jnp"}
    lines += padding
    if padding or plan.chosen.loop is not None:
        libraries.add("lax")
    if plan.chosen.loop is not None:
        lines += loop_lines(plan.chosen, plan.chosen.loop, ring_of(plan, steps))
    else:
        given = ["a", "b", f"preferred_element_type=jnp.{matmul.sum_dtype}"]
        lines += called("c = jnp.matmul", given, indents=1)
    adds_wide = plan.chosen.loop is None or plan.chosen.loop.side != "out"
    if matmul.out_dtype != matmul.sum_dtype and adds_wide:
        lines.append("c = c.astype(OUT_DTYPE)")
    calls = ("without_padding",) if padding else ()
    return ProductText(tuple(lines), calls, frozenset(libraries))


def product_said(plan: MatmulPlan, steps: MatmulSteps) -> str:
    """Return the product in words, and what moves meanwhile."""
    product = plan.chosen.multiplication
    shapes = " by ".join(_shape(product, side) for side in ("lhs", "rhs"))
    said = f"The product of {shapes} on each device, {product.flops} flops"
    if steps.rotated is None or plan.chosen.loop is None:
        return said
    ways = "one way" if plan.chosen.loop.directions == 1 else "both ways"
    return f"{said}, while parts go {ways} round rings: {steps.rotated.said}"


def ring_of(plan: MatmulPlan, steps: MatmulSteps) -> str:
    """Return the axes of a ring as a Python expression. Raises InputError for none."""
    loop = plan.chosen.loop
    names = None if loop is None else steps.axes.over(loop.digits)
    if names is None:
        raise InputError(
            "a loop goes round axes, and shardings cut these into sub-axes that cannot coexist",
            argument="loop",
            got="sub-axes of one axis in several operands",
            expected='"never"',
        )
    return quoted(names)


def _shape(product: Multiplication, side: str) -> str:
    assert side in ("lhs", "rhs")
    shape = product.local_shape("lhs" if side == "lhs" else "rhs")
    return " x ".join(map(str, shape))


def _padding(product: Multiplication, steps: MatmulSteps) -> list[str]:
    """Return what makes the padding along j zero, which products would add; nothing where shards
    have none."""
    matmul = product.matmul
    j = matmul.batch + 1
    extent, size = matmul.extents[j], product.local_extents[j]
    refs = product.shardings["lhs"].dims[-1].axes
    count = 1
    for ref in refs:
        count *= matmul.mesh.full_size(ref)
    if size * count == extent:
        return []
    names = axis_names(steps, matmul, refs)
    if names is None:
        index = f"number_of({digits_of(matmul, refs)}, lax.axis_index(AXES))"
    else:
        index = f"lax.axis_index({names})"
    line = f"a, b = without_padding(a, b, {extent} - {index} * {size})"
    if len(INDENT + line) <= WIDTH:
        return [line]
    return called("a, b = without_padding", ["a", "b", f"{extent} - {index} * {size}"], indents=1)
