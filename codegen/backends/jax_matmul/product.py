"""The statements of a plain JAX module that multiply two shards."""

from __future__ import annotations

from dataclasses import dataclass

from shardwright.codegen.backends.jax_matmul.loop import Ring, loop_lines
from shardwright.codegen.backends.jax_matmul.steps import (
    MatmulSteps,
    axis_names,
    digits_of,
)
from shardwright.codegen.backends.jax_steps.plan import comment
from shardwright.codegen.backends.jax_steps.statements import used_by
from shardwright.codegen.text.python_text import INDENT, WIDTH, called
from shardwright.ir.axes import axes_text
from shardwright.ir.matmul import Matmul
from shardwright.ir.matmul_plan import Loop, MatmulPlan
from shardwright.ir.multiplication import Multiplication


@dataclass(frozen=True)
class ProductText:
    """Statements that compute `c` from `a` and `b`, and what they depend on.

    `calls`: the functions of `jax_extents` that they call; `uses`: the other names that they use;
    `facts`: docstring lines about them; `made`: the lines of the constants that they read;
    `imports`: additional imports as (support module, name); `settings`: additional arguments of the
    host object; `carried`: the bytes that a device receives in a loop that pads parts.
    """

    lines: tuple[str, ...]
    calls: tuple[str, ...]
    uses: frozenset[str]
    facts: tuple[str, ...] = ()
    made: tuple[str, ...] = ()
    imports: tuple[tuple[str, str], ...] = ()
    settings: tuple[str, ...] = ()
    carried: int | None = None


def product_lines(plan: MatmulPlan, steps: MatmulSteps) -> ProductText:
    """Return the statements of the product: one matmul of two shards, or a loop of matmuls."""
    matmul, product = plan.matmul, plan.chosen.multiplication
    lines = comment(f"{steps.product}. {product_said(plan, steps)}")
    padding = padding_lines(product, steps)
    lines += padding
    if plan.chosen.loop is not None:
        ring = ring_of(plan.chosen.loop, steps, matmul)
        lines += loop_lines(plan.chosen, plan.chosen.loop, ring)
    else:
        given = ["a", "b", f"preferred_element_type=jnp.{matmul.sum_dtype}"]
        lines += called("c = jnp.matmul", given, indents=1)
    adds_wide = plan.chosen.loop is None or plan.chosen.loop.side != "out"
    if matmul.out_dtype != matmul.sum_dtype and adds_wide:
        lines.append("c = c.astype(OUT_DTYPE)")
    calls = ("without_padding",) if padding else ()
    return ProductText(tuple(lines), calls, used_by(lines))


def product_said(plan: MatmulPlan, steps: MatmulSteps) -> str:
    """Describe the product, and any movement that overlaps with it."""
    product = plan.chosen.multiplication
    shapes = " by ".join(_shape(product, side) for side in ("lhs", "rhs"))
    said = f"Each device multiplies {shapes}, {product.flops} flops"
    if steps.rotated is None or plan.chosen.loop is None:
        return said
    ways = "one way" if plan.chosen.loop.directions == 1 else "both ways"
    return f"{said}, while parts travel {ways} round rings: {steps.rotated.said}"


def ring_of(loop: Loop, steps: MatmulSteps, matmul: Matmul) -> Ring:
    """Return the rings of a loop. If `loop.order` is set, positions in a ring follow that order of
    devices."""
    ring = _in_order(loop, steps, matmul)
    if not loop.order:
        return ring
    groups = ring.devices or f"[range({loop.count})]"
    return Ring(
        f"jnp.argsort(order)[{ring.place}]",
        ring.axes,
        f"[[group[place] for place in {loop.order}] for group in {groups}]",
        f"jnp.array({loop.order})",
    )


def _in_order(loop: Loop, steps: MatmulSteps, matmul: Matmul) -> Ring:
    names = steps.axes.over(loop.digits)
    place = f"number_of({loop.digits}, lax.axis_index(AXES))"
    if names is not None:
        place = f"lax.axis_index({axes_text(names)})"
        if sorted(names, key=steps.axes.names.index) == list(names):
            return Ring(place, axes_text(names))
    given = ", ".join(map(str, (matmul.mesh.size, *loop.digits)))
    return Ring(place, "AXES", f"groups_along({given})")


def _shape(product: Multiplication, side: str) -> str:
    assert side in ("lhs", "rhs")
    shape = product.local_shape("lhs" if side == "lhs" else "rhs")
    return " x ".join(map(str, shape))


def padding_lines(product: Multiplication, steps: MatmulSteps) -> list[str]:
    """Return the statement that zeroes the padding along j, over which the product sums. Return an
    empty list if shards have no padding along j."""
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
