"""Make the context that the templates of every backend share: one frozen object of finished
text."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from shardwright.codegen.text.index_functions import IndexFunction
from shardwright.codegen.text.python_text import INDENT, WIDTH, exploded, function_lines, wrapped
from shardwright.ir.algebra.printers import Printer
from shardwright.ir.dtypes import DTYPES, is_floating
from shardwright.ir.errors import InputError
from shardwright.ir.exchange import Exchange
from shardwright.ir.layout import DimLayout, Layout
from shardwright.ir.mesh import Mesh
from shardwright.ir.plan import DirectPlan, Plan
from shardwright.ir.reshard import Reshard
from shardwright.ir.steps import ExchangeStep, MoveStep, ReduceStep, Step

# Kernels compute indices in 32-bit integers.
MAX_EXTENT = 2**31 - 1

SIDES = ("SOURCE", "TARGET")


@dataclass(frozen=True)
class FunctionText:
    """A printed index function: its signature, docstring and lines, and the functions it calls."""

    signature: tuple[str, ...]
    doc: str
    lines: tuple[str, ...]
    calls: frozenset[str]


@dataclass(frozen=True)
class SideText:
    """The constants that describe one side of the reshard."""

    mesh: str
    sharding: str
    local_shape: str


@dataclass(frozen=True)
class ModuleText:
    """The text that the modules of all backends have in common.

    `facts`: the lines of the docstring after its title; `command`: the command that emits the
    module; `plan`: a hash of the plan; `id_lines`: the constants with device ids; `axes`: the
    indices of the dimensions, (0,) for a scalar; `scalar`: whether the tensor has no dimensions;
    `same_order`: whether both meshes have the same devices in the same order.
    """

    title: str
    facts: tuple[str, ...]
    command: str
    plan: str
    shape: str
    dtype: str
    itemsize: int
    source: SideText
    target: SideText
    id_lines: tuple[str, ...]
    functions: tuple[FunctionText, ...]
    axes: tuple[int, ...]
    scalar: bool
    same_order: bool

    @property
    def constant_lines(self) -> list[str]:
        """The lines of the constants that describe the reshard. Constants that are equal on both
        sides share a line."""
        sides = self.source, self.target
        return [
            f"SHAPE = {self.shape}",
            f'DTYPE = "{self.dtype}"',
            *both_lines("{}_MESH", [side.mesh for side in sides]),
            *(f"{name} = {side.sharding}" for name, side in zip(SIDES, sides, strict=True)),
            *both_lines("LOCAL_{}_SHAPE", [side.local_shape for side in sides]),
            *self._id_lines,
            f'PLAN = "{self.plan}"  # hash of the plan: equal on all processes that exchange',
        ]

    @property
    def _id_lines(self) -> list[str]:
        about, (source, *more) = "by mesh position", self.id_lines
        if self.same_order and len(more) == 1:
            line = f"SOURCE_IDS = {more[0]}  # {about}"
            return [line] if len(line) <= WIDTH else [line.removesuffix(f"  # {about}")]
        return [f"# Device ids {about}.", source, *more]

    @property
    def calls(self) -> frozenset[str]:
        """The names of the helper functions that index functions call, without leading
        underscores."""
        every = frozenset[str]().union(*(function.calls for function in self.functions))
        return frozenset(name.lstrip("_") for name in every)

    @property
    def floating(self) -> bool:
        """Whether elements are floating-point numbers."""
        return is_floating(self.dtype)


@dataclass(frozen=True)
class Said:
    """The title of a module's docstring, and the lines that follow it."""

    title: str
    facts: tuple[str, ...]


def text_of(
    plan: Plan,
    command: str,
    printer: Printer,
    functions: tuple[IndexFunction, ...],
    said: Said,
    ends: Exchange,
) -> ModuleText:
    """Return the common parts of a module with these index functions. `ends`: an exchange with the
    layouts of both sides."""
    reshard = plan.reshard
    return ModuleText(
        title="\n".join(wrapped('"""' + said.title))[3:],
        facts=said.facts,
        command=command,
        plan=plan_hash(plan),
        shape=repr(reshard.shape),
        dtype=reshard.dtype,
        itemsize=DTYPES[reshard.dtype],
        source=_side_text(ends.source, str(reshard.source)),
        target=_side_text(ends.target, str(reshard.target)),
        id_lines=(
            *id_lines("SOURCE_IDS", ends.source.mesh),
            *id_lines("TARGET_IDS", ends.target.mesh),
        ),
        functions=tuple(function_text(printer, function) for function in functions),
        axes=tuple(range(max(len(ends.target.dims), 1))),
        scalar=not reshard.shape,
        same_order=ends.same_order,
    )


def function_text(printer: Printer, function: IndexFunction) -> FunctionText:
    """Print an index function."""
    return FunctionText(
        tuple(exploded(f"def {function.name}", list(function.parameters), suffix=":")),
        function.doc,
        tuple(function_lines(printer, function)),
        frozenset[str]().union(*map(printer.calls, function.values)),
    )


def plan_hash(plan: Plan) -> str:
    """Return a hash of a plan. Only plans of the same reshard that make the same moves have equal
    hashes."""
    reshard = plan.reshard
    ids = tuple(tuple(side.mesh.device_ids) for side in (reshard.source, reshard.target))
    how = plan.exchange.rule if isinstance(plan, DirectPlan) else tuple(map(_moved, plan.steps))
    back = ("transposed",) if reshard.transposed else ()
    said = repr((reshard, ids, plan.strategy, how, *back))
    return hashlib.sha256(said.encode()).hexdigest()[:16]


def _moved(step: Step) -> tuple[object, ...]:
    """Return a key of a step. Steps with different moves have different keys."""
    match step:
        case ExchangeStep(exchange):
            return (exchange.rule,)
        case MoveStep(op, ends, exchange):
            return op, str(ends.after), ends.after_split, exchange.rule
        case ReduceStep(op, ends):
            return op, str(ends.after), ends.after_split


def as_vectors(exchange: Exchange) -> Exchange:
    """Turn each scalar side of an exchange into a vector of one element, because kernels need at
    least one dimension."""
    has_dims = exchange.source.dims and exchange.target.dims
    return exchange if has_dims else exchange.once(_as_vector)


def _as_vector(exchange: Exchange) -> Exchange:
    source, target = (
        layout if layout.dims else replace(layout, dims=(DimLayout(1, ()),))
        for layout in (exchange.source, exchange.target)
    )
    return replace(exchange, source=source, target=target)


def _side_text(layout: Layout, sharding: str) -> SideText:
    return SideText(quoted(str(layout.mesh)), quoted(sharding), repr(layout.local_shape))


def quoted(text: str) -> str:
    """Return a Python string literal with the quotes that a formatter would choose."""
    single = repr(text)
    if single.startswith("'") and '"' not in text:
        return f'"{single[1:-1]}"'
    return single


def id_lines(name: str, mesh: Mesh) -> list[str]:
    """Return the lines of a constant with the ids of a mesh's devices."""
    ids = mesh.device_ids
    if isinstance(ids, range):
        start = f"{ids.start}, " if ids.start else ""
        return [f"{name} = range({start}{ids.stop})"]
    return constant_lines(name, [str(device_id) for device_id in ids])


def both_lines(pattern: str, values: list[str]) -> list[str]:
    """Return one line per side with the constant of that side, or one line that assigns both if
    they are equal. `pattern`: the name of the constant, with {} for the side."""
    source, target = (pattern.format(side) for side in SIDES)
    if values[0] == values[1]:
        return [f"{source} = {target} = {values[0]}"]
    return [f"{source} = {values[0]}", f"{target} = {values[1]}"]


def constant_lines(name: str, items: list[str]) -> list[str]:
    """Return the assignment `name = (a, b)` in as few lines as possible."""
    if len(items) == 1:
        return [f"{name} = ({items[0]},)"]
    if len(f"{name} = ({', '.join(items)})") <= WIDTH:
        return exploded(f"{name} = ", items)
    return [f"{name} = (", *_filled(items), ")  # fmt: skip"]


def _filled(items: list[str]) -> list[str]:
    lines, line = [], INDENT
    for item in items:
        if len(line) + len(item) + 2 > WIDTH:
            lines.append(line.rstrip())
            line = INDENT
        line += f"{item}, "
    return [*lines, line.rstrip()]


def check_ascii(reshard: Reshard) -> None:
    """Raise InputError for axis names that are not ASCII, because XLA would abort the process on
    them."""
    for argument, mesh in (("mesh", reshard.source.mesh), ("target_mesh", reshard.target.mesh)):
        check_ascii_names(mesh, argument)


def check_ascii_names(mesh: Mesh, argument: str) -> None:
    """Raise InputError for a mesh with axis names that are not ASCII."""
    for name in mesh.names:
        if not name.isascii():
            raise InputError(
                "axis names must be ASCII for a JAX module",
                argument=argument,
                got=f'"{name}"',
                expected="a name of ASCII letters, digits and punctuation",
            )


def refuse_common(plan: Plan, backend: str, unsupported: dict[str, str]) -> None:
    """Raise InputError for a dtype in `unsupported`, which maps dtypes to reasons, and for
    extents that exceed 32 bits."""
    reshard = plan.reshard
    if reshard.dtype in unsupported:
        raise InputError(
            f"{backend} cannot move this dtype: {unsupported[reshard.dtype]}",
            argument="dtype",
            got=reshard.dtype,
            expected="one of " + ", ".join(name for name in DTYPES if name not in unsupported),
        )
    check_extents(plan, backend)


def check_extents(plan: Plan, backend: str) -> None:
    """Raise InputError for extents that exceed 32 bits."""
    reshard = plan.reshard
    if max(reshard.shape, default=1) > MAX_EXTENT:
        raise InputError(
            f"an extent must fit the 32-bit indices of {backend}",
            argument="shape",
            got="x".join(map(str, reshard.shape)),
            expected=f"extents of at most {MAX_EXTENT}",
        )
