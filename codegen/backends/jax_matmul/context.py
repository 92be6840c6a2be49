"""The template context of a JAX matmul module, for any kind of product."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import dataclass, replace

from shardwright.codegen.backends.jax_host import (
    LIBRARIES,
    PADDINGS,
    axes_of,
    imports_of,
    library_lines,
    padding_of,
    short_dims,
    spec_of,
)
from shardwright.codegen.backends.jax_matmul.docstring import matmul_facts
from shardwright.codegen.backends.jax_matmul.product import ProductText
from shardwright.codegen.backends.jax_matmul.steps import (
    MatmulStep,
    MatmulSteps,
    axis_names,
    matmul_steps,
)
from shardwright.codegen.backends.jax_steps.plan import comment
from shardwright.codegen.backends.jax_steps.statements import called_by_steps
from shardwright.codegen.backends.matmul_facts import layout_of, matmul_title
from shardwright.codegen.text.context import (
    FunctionText,
    constant_lines,
    function_text,
    id_lines,
    quoted,
)
from shardwright.codegen.text.index_functions import box_function
from shardwright.codegen.text.python_text import WIDTH, called
from shardwright.codegen.text.support import version
from shardwright.ir.algebra.printers import PYTHON
from shardwright.ir.axes import axes_text
from shardwright.ir.layout import Layout
from shardwright.ir.matmul import SIDES, Matmul, Side
from shardwright.ir.matmul_plan import MatmulPlan


@dataclass(frozen=True)
class MatmulKind:
    """The differences between kinds of matmul modules.

    `host`: the support module and the class of the host object; `given`: the parameters of the
    function that multiplies; `more`: the number of devices that a self-check needs in addition to
    the mesh; `product`: a function that returns the text of the product.
    """

    backend: str
    host: tuple[str, str]
    given: str
    more: int
    product: Callable[[MatmulPlan, MatmulSteps], ProductText]


@dataclass(frozen=True)
class MatmulText:
    """The context of the matmul template."""

    backend: str
    support: str
    title: str
    facts: tuple[str, ...]
    command: str
    threads: int
    libraries: tuple[str, ...]
    support_lines: tuple[str, ...]
    constants: tuple[str, ...]
    functions: tuple[FunctionText, ...]
    sides: tuple[str, ...]
    given: str
    body: tuple[str, ...]
    host_lines: tuple[str, ...]


def matmul_text(
    plan: MatmulPlan, command: str, backward: tuple[str, ...], kind: MatmulKind
) -> MatmulText:
    matmul, steps = plan.matmul, matmul_steps(plan)
    layouts = {side: layout_of(matmul, side) for side in SIDES}
    product = kind.product(plan, steps)
    steps = replace(steps, carried=product.carried)
    uses = steps.uses | product.uses
    module, host = kind.host
    calls = {"jax_meshes": ["Sharded"], "jax_extents": [*product.calls]}
    calls |= {name: [*names] for name, names in called_by_steps(uses).items()}
    for name, imported in ((module, host), *product.imports):
        calls.setdefault(name, []).append(imported)
    if backward:
        calls["jax_matmul_gradient"] = ["MatmulGradient"]
    is_padded = any(_padded(layouts[side]) != matmul.shape(side) for side in SIDES)
    padding = padding_of(layouts.values()) if is_padded else ""
    if padding:
        calls[PADDINGS[padding]] = [padding]
    short = _short(steps, layouts["out"])
    return MatmulText(
        backend=kind.backend,
        support=version(kind.backend),
        title="\n".join(textwrap.wrap(matmul_title(matmul), WIDTH - 3)),
        facts=(*matmul_facts(plan, steps, layouts, product.facts),),
        command=command,
        threads=matmul.mesh.size + kind.more,
        libraries=library_lines(uses & LIBRARIES.keys()),
        support_lines=imports_of({name: sorted(each) for name, each in calls.items() if each}),
        constants=(*_constants(matmul, steps, layouts), *_box_constants(steps)),
        functions=tuple(function_text(PYTHON, box_function(side, layouts[side])) for side in SIDES),
        sides=(
            *(line for side in SIDES for line in _side_lines(matmul, steps, side)),
            *product.made,
        ),
        given=kind.given,
        body=(*_body(plan, steps, product.lines),),
        host_lines=_host_lines(host, short, padding, backward, product.settings),
    )


def _padded(layout: Layout) -> tuple[int, ...]:
    """Return the shape of a global array in which every shard is padded to the size of the largest
    shard."""
    return tuple(dim.parts * dim.size for dim in layout.dims)


def _short(steps: MatmulSteps, out: Layout) -> tuple[int, ...]:
    """Return the dimensions of the result whose padding the module must still zero."""
    last = steps.after[-1].block if steps.after else None
    if last is not None and last.boxes is not None and last.is_padded:
        return ()
    return short_dims(out)


def _constants(matmul: Matmul, steps: MatmulSteps, layouts: dict[Side, Layout]) -> list[str]:
    lines = [f"{side.upper()}_SHAPE = {matmul.shape(side)}" for side in SIDES]
    same = matmul.dtype == matmul.out_dtype
    lines += [f'DTYPE = {"OUT_DTYPE = " * same}"{matmul.dtype}"']
    lines += [] if same else [f'OUT_DTYPE = "{matmul.out_dtype}"']
    lines += [f"MESH = {quoted(str(matmul.mesh))}"]
    lines += [f"{side.upper()} = {quoted(str(matmul.sharding(side)))}" for side in SIDES]
    lines += [f"{line}  # by mesh position" for line in id_lines("IDS", matmul.mesh)]
    padded = {side: _padded(layouts[side]) for side in SIDES}
    if any(padded[side] != matmul.shape(side) for side in SIDES):
        lines.append("# The shapes of global arrays, every shard padded at its end to the largest.")
    for side in SIDES:
        is_whole = padded[side] == matmul.shape(side)
        text = f"{side.upper()}_SHAPE" if is_whole else repr(padded[side])
        lines.append(f"PADDED_{side.upper()}_SHAPE = {text}")
    lines += _axes_lines(matmul, steps)
    lines.append(f"WIRE_BYTES = {steps.received}  # received by the busiest device")
    names = [name for name, _ in _program_axes(steps)]
    lines.append(f"AXES = {axes_text(names)}  # mesh axes that number the devices")
    return lines


def _program_axes(steps: MatmulSteps) -> list[tuple[str, int]]:
    pairs = zip(steps.axes.names, steps.axes.digits, strict=True)
    return [(name, size) for name, (_, size) in pairs]


def _axes_lines(matmul: Matmul, steps: MatmulSteps) -> list[str]:
    """Return the lines of constants with the names and sizes of mesh axes: a single constant if all
    sides can use the axes of the program, otherwise one per side."""
    about = "# The mesh, its axes refined into the sub-axes in use."
    if steps.named:
        axes = [("", _program_axes(steps))]
    else:
        axes = [(f"{side.upper()}_", _own_axes(matmul, steps, side)) for side in SIDES]
    is_cut = any(":(" in name for _, each in axes for name, _ in each)
    lines = [about] if is_cut else []
    for prefix, each in axes:
        lines += constant_lines(f"{prefix}MESH_AXES", [f'("{n}", {size})' for n, size in each])
    return lines


def _own_axes(matmul: Matmul, steps: MatmulSteps, side: Side) -> list[tuple[str, int]]:
    return _program_axes(steps) if side == "lhs" else axes_of(matmul.sharding(side))


def _side_lines(matmul: Matmul, steps: MatmulSteps, side: Side) -> list[str]:
    upper, sharding = side.upper(), matmul.sharding(side)
    prefix = "" if steps.named else f"{upper}_"
    given = ["IDS", f"{side}_box", f"PADDED_{upper}_SHAPE", f"{prefix}MESH_AXES"]
    given.append(_spec(matmul, steps, side))
    given += ["terms=True"] if sharding.unreduced else []
    return called(f"_{upper} = Sharded", given)


def _spec(matmul: Matmul, steps: MatmulSteps, side: Side) -> str:
    sharding = matmul.sharding(side)
    if not steps.named and side != "lhs":
        return spec_of(sharding)
    entries = [sharding.unreduced] if sharding.unreduced else []
    entries += [dim.axes for dim in sharding.dims]
    names = (axis_names(steps, matmul, refs) if refs else "None" for refs in entries)
    return f"P({', '.join(name or 'None' for name in names)})"


def _box_constants(steps: MatmulSteps) -> list[str]:
    lines: list[str] = []
    for step in steps.every:
        if step.block.boxes is None:
            continue
        lines += [] if lines else ["# Steps by boxes, by their number: see `moved_by_boxes`."]
        for name in ("before", "after", "senders"):
            items = [repr(item) for item in getattr(step.block.boxes, name)]
            lines += constant_lines(f"{name.upper()}_{step.number}", items)
    return lines


def _body(plan: MatmulPlan, steps: MatmulSteps, product: tuple[str, ...]) -> list[str]:
    matmul = plan.matmul
    lines = ["a = a[0]"] if matmul.lhs.sharding.unreduced else []
    lines += ["b = b[0]"] if matmul.rhs.sharding.unreduced else []
    for step in steps.before:
        lines += _step_lines(step)
    lines += product
    for step in steps.after:
        lines += _step_lines(step)
    return [*lines, *(["c = c[None]"] if matmul.out.unreduced else [])]


def _step_lines(step: MatmulStep) -> list[str]:
    return [*comment(f"{step.number}. {step.said}"), *step.lines()]


def _host_lines(
    host: str,
    short: tuple[int, ...],
    padding: str,
    backward: tuple[str, ...],
    settings: tuple[str, ...],
) -> tuple[str, ...]:
    given = [
        "__name__",
        "(LHS_SHAPE, RHS_SHAPE, OUT_SHAPE)",
        "(DTYPE, OUT_DTYPE)",
        "(_LHS, _RHS, _OUT)",
    ]
    given += ["_multiply", "AXES", *([f"short={short!r}"] if short else [])]
    given += [f"padding={padding}"] if padding else []
    if backward:
        modules = f"({', '.join(map(quoted, backward))})"
        given.append(f"backward=MatmulGradient(__name__, {modules})")
    return tuple(called(f"_HOST = {host}", [*given, *settings]))
