"""The context of a program module's template."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shardwright.codegen.backends.base import ProgramModule
from shardwright.codegen.backends.jax_spmd.body import Writer
from shardwright.codegen.backends.jax_spmd.constants import (
    IMPORTS,
    array_text,
    constant_lines,
    stored_text,
)
from shardwright.codegen.backends.jax_spmd.functions import Functions
from shardwright.codegen.backends.jax_spmd.legend import legend
from shardwright.codegen.backends.jax_spmd.names import PADDING_NAMES, LocalNames, function_name
from shardwright.codegen.backends.jax_spmd.opaque import blobs, stored_calls
from shardwright.codegen.backends.jax_spmd.ops import check_ops
from shardwright.codegen.backends.jax_spmd.rings import ProgramRings
from shardwright.codegen.backends.jax_spmd.tables import tables
from shardwright.codegen.backends.jax_spmd.trees import (
    Path,
    flat,
    nodes_with_classes,
    paths,
    plain,
    restored,
    tree_lines,
)
from shardwright.codegen.backends.jax_spmd.varying import is_checked
from shardwright.codegen.ops.calls import host_functions
from shardwright.codegen.ops.layout import LocalLayout
from shardwright.codegen.ops.literals import dtype_name, listed
from shardwright.codegen.partition.local.communications import (
    Communication,
    WrittenRows,
    communications,
)
from shardwright.codegen.partition.local.sizes import size_text
from shardwright.codegen.partition.local.steps import (
    CallFunction,
    Compute,
    LocalProgram,
    made,
    taken,
)
from shardwright.codegen.partition.partitioned import Partitioned
from shardwright.codegen.text.python_text import INDENT, fitted
from shardwright.codegen.text.templates import render
from shardwright.ir.program import Value

NO_RINGS = ProgramRings()
EXPORT = ("from jax import export",)
"""The import of modules with calls stored as StableHLO."""
KERNEL_NAMES = ("interpret", "functools", "np", "pl", "pltpu", "export")
"""The names that modules with kernels use in addition to imported functions."""
LIKE = (
    "",
    "",
    "def like(tree, leaves):",
    '    """Return the leaves in a tree like `tree`, of the same classes."""',
    "    return jax.tree.unflatten(jax.tree.structure(tree), jax.tree.leaves(leaves))",
)
TEMPLATE = (
    "template",
    "None",
    (
        "`template`: a tree as the user's function returns, as from `jax.eval_shape`. Without one,",
        "results in classes that no argument has are tuples of what these hold.",
        "",
    ),
)
"""The options of the emitted function `program`: name, default and documentation."""
TABLES = (
    "# A row for each device. SENT: the block that it sends, or those for each device; PLACED: the",
    "# blocks of its new shard, among those that it has and then received, or received at once.",
)
INTERPRET = (
    "interpret",
    "False",
    ("`interpret`: True, or `pltpu.InterpretParams`, to interpret its kernels on CPU devices.", ""),
)


@dataclass(frozen=True)
class SpmdModule:
    """The context of the template, as finished lines."""

    name: str
    mesh: str
    axes: str
    whole_axes: str
    cut: bool
    summary: tuple[str, ...]
    legend: tuple[str, ...]
    shardings: tuple[str, ...]
    moves: tuple[str, ...]  # tables for permutes and direct exchanges
    parameters: str
    names: str  # a tuple of the parameters' names, as strings
    has_keys: bool  # whether the arguments have dicts, whose keys are checked
    functions: tuple[str, ...]
    body: tuple[str, ...]
    checked: bool
    imports: tuple[str, ...]
    library: tuple[str, ...]  # imports that precede jax
    constants: tuple[str, ...]
    restored: tuple[str, ...]  # the statements that run it, and give results the arguments' classes
    helpers: tuple[str, ...]  # the function that restores these classes
    options: str  # parameters of `program` after the mesh
    said_of_options: tuple[str, ...]
    rings: tuple[str, ...] = ()  # the constants that kernels use
    ring_names: str = ""  # a tuple of these constants' names, if there are any
    unpadded: tuple[str, ...] = ()  # types without padding, if arguments or results are padded


@dataclass(frozen=True)
class _Sides:
    """The trees of arguments and results, with texts as leaves."""

    program: Partitioned

    def inputs(self, leaves: Sequence[str]) -> Any:
        return plain(self.program.inputs(tuple(leaves)))

    def outputs(self, leaves: Sequence[str]) -> Any:
        return plain(self.program.outputs(tuple(leaves)))

    def places(self) -> tuple[dict[int, Path], dict[str, list[int]]]:
        """Return the paths of arguments, by local value, and the local values of each parameter
        that must be flattened first because some of its leaves have no expression."""
        arguments = self.program.local.body.arguments
        numbers = tuple(map(str, range(len(arguments))))
        places: dict[int, Path] = {}
        flattened: dict[str, list[int]] = {}
        for tree, name in zip(self.program.inputs(numbers), self.program.parameters, strict=True):
            own = {arguments[int(leaf)]: path for leaf, path in paths(tree, (name,))}
            if all(own.values()):
                places.update(own)
            else:
                flattened[name] = sorted(own)
        return places, flattened

    def restored(self) -> tuple[Any, bool]:
        texts = ("",) * len(self.program.local.body.arguments)
        trees = zip(self.program.inputs(texts), self.program.parameters, strict=True)
        known = [node for tree, name in trees for node in nodes_with_classes(tree, (name,))]
        leaves = ("",) * len(self.program.local.body.results)
        return restored(self.program.outputs(leaves), "results", known)


def program_module(partitioned: Partitioned, rings: ProgramRings = NO_RINGS) -> ProgramModule:
    """Return the module of a program, including its kernels."""
    context, rows = _context(partitioned, rings)
    return ProgramModule(render("jax_spmd/program.py.jinja", context), rows)


def _context(partitioned: Partitioned, rings: ProgramRings) -> tuple[SpmdModule, WrittenRows]:
    """Return the context of the template, and the table of communications, which uses the module's
    names for values."""
    check_ops(partitioned.given.body)
    local, parameters = partitioned.local, partitioned.parameters
    found = communications(local)
    name, sides = function_name(local.program.name), _Sides(partitioned)
    calls = stored_calls(partitioned)
    loaded = {call.name: call.lines for call in calls.values()}
    reserved = (name, *rings.taken, *loaded, *_reserved(partitioned))
    names = LocalNames(local, reserved, parameters, function=name)
    arrays = tuple(array_text(*pair) for pair in enumerate(partitioned.constants))
    stored = stored_text(partitioned.constants, blobs(calls))
    arguments, flattened = sides.places()
    results = _places(sides.outputs, local.body.results)
    given, has_classes = sides.restored()
    having = {n: ("interpret",) for n, f in enumerate(local.functions) if rings.within(f)}
    functions = Functions(local, names, arguments, results, having)
    checked, texts = is_checked(local) and not rings.rings, {k: c.name for k, c in calls.items()}
    writer = Writer(local, functions, names, found, checked, arrays, texts, rings=rings)
    writer.imports.update(dict.fromkeys([*rings.imports, *EXPORT[: len(calls)]]))
    functions.users.find(writer, [*functions.leaves.starts.values()])
    lines = [*_unpacked(writer, arguments, flattened), *writer.body(local.body, 1)]
    lines += _return(writer, sides)
    options = [*([] if has_classes else [TEMPLATE]), *([INTERPRET] if rings.rings else [])]
    module = SpmdModule(
        name,
        str(local.axes.mesh),
        _axes_text(local.axes.pieces),
        _axes_text(local.axes.mesh.axes),
        not local.axes.whole,
        tuple(_summary(list(found.values()))),
        tuple(legend([*functions.lines, *lines], names.shown.suffixes)),
        tuple(_ends(sides)),
        tuple(_moves(writer.tables)),
        ", ".join(parameters),
        listed([_literal(each) for each in parameters]),
        "{" in flat(sides.inputs(("",) * len(local.body.arguments))),
        tuple(functions.lines),
        tuple(lines),
        checked,
        tuple(writer.imports),
        IMPORTS if stored else IMPORTS[-1:] if partitioned.padding else (),
        (*constant_lines(stored), *itertools.chain.from_iterable(loaded.values())),
        tuple(_returned(parameters, given, has_classes)),
        LIKE if not has_classes or "like(" in flat(given) else (),
        "".join(f", {name}={default}" for name, default, _ in options),
        tuple(line for *_, said in options for line in said),
        tuple(line for ring in rings.rings for line in ring.text.lines),
        listed(rings.names) if rings.rings else "",
        tuple(_unpadded(sides)),
    )
    return module, writer.rows


def _reserved(partitioned: Partitioned) -> tuple[str, ...]:
    """Return the names of the module that no value may have, other than its own functions'."""
    called_back = (called for _, called in host_functions(partitioned.local.program.body))
    return (*KERNEL_NAMES, *called_back, *(PADDING_NAMES if partitioned.padding else ()))


def _return(writer: Writer, sides: _Sides) -> list[str]:
    """Return the statement that returns the results."""
    made = sides.outputs([writer.read(result) for result in writer.program.body.results])
    return tree_lines(writer.functions.whole(made), "return ", "", 1)


def _ends(sides: _Sides) -> Iterator[str]:
    """Yield the constants with the types and shardings of arguments and results."""
    local, parameters = sides.program.local, sides.program.parameters
    arguments, results = local.body.arguments, local.body.results
    types = sides.inputs([_type(local.of(v)) for v in arguments])
    shardings = {
        "IN_SHARDINGS": sides.inputs([_spec(local, v) for v in arguments]),
        "OUT_SHARDINGS": sides.outputs([_spec(local, v) for v in results]),
    }
    yield from tables({"IN_TYPES": types}, parameters, "TYPES")
    yield from tables(shardings, parameters, "SHARDINGS")


def _unpadded(sides: _Sides) -> Iterator[str]:
    program = sides.program
    if not program.padding:
        return
    local, given = program.local, program.given
    results = [_type(local.of(v)) for v in local.body.results]
    trees = {
        "UNPADDED_IN_TYPES": sides.inputs([_type(given.values[v]) for v in given.body.arguments]),
        "OUT_TYPES": sides.outputs(results),
        "UNPADDED_OUT_TYPES": sides.outputs([_type(given.values[v]) for v in given.body.results]),
    }
    yield from tables(trees, program.parameters, "UNPADDED")


def _returned(parameters: tuple[str, ...], given: Any, has_classes: bool) -> Iterator[str]:
    """Yield the lines that run the program and return its results. `given`: the expression that
    rebuilds `results` with the arguments' pytree classes; `has_classes`: whether it rebuilds every
    class in the results."""
    call = f"run_on_mesh({listed(parameters)})"
    if given == "results" and has_classes:
        yield from fitted(f"return {call}", 2)
        return
    yield from fitted(f"results = {call}", 2)
    if not has_classes:
        yield "if template is not None:"
        yield f"{INDENT}return like(template, results)"
    yield from tree_lines(given, "return ", "", 2)


def _moves(tables: Mapping[str, Any]) -> Iterator[str]:
    if any(name.startswith(("SENT", "PLACED")) for name in tables):
        yield from TABLES
    for name, tree in tables.items():
        yield from tree_lines(tree, f"{name} = ")


def _places(tree_of: Callable[[Sequence[str]], Any], locals_: tuple[int, ...]) -> dict[int, Path]:
    tree = tree_of([*map(str, range(len(locals_)))])
    return {locals_[int(leaf)]: path for leaf, path in paths(tree, ("",))}


def _unpacked(
    writer: Writer, places: dict[int, Path], flattened: dict[str, list[int]]
) -> list[str]:
    """Return the lines that name the arguments that steps use, except paths that are used only
    once."""
    local = writer.program
    used = Counter(local.body.results)
    starts = writer.functions.leaves.starts
    called = {made(step) for leaf in starts.values() for step in leaf.steps}
    for step in local.body.steps:
        if made(step) in called:  # the call of a leaf's function uses every operand once
            used.update(starts[made(step)].operands if made(step) in starts else ())
            continue
        often = 2 if isinstance(step, Compute) and (step.bodies or step.formed) else 1
        for own in () if isinstance(step, CallFunction) else taken(step):
            used[own] += often
    lines = []
    for parameter, owned in flattened.items():
        writer.text.update((own, writer.names.of(own)) for own in owned)
        items = [writer.text[own] for own in owned]
        lines += tree_lines(tuple(items), "", f" = jax.tree.leaves({parameter})", 1)
    for own, path in places.items():
        if len(path) == 1 or used[own] == 1:
            writer.text[own] = "".join(path)
        elif used[own]:
            writer.text[own] = writer.names.of(own)
            lines += fitted(f"{writer.text[own]} = {''.join(path)}", 1)
    return lines


def _axes_text(axes: tuple[tuple[str, int], ...]) -> str:
    return "{" + ", ".join(f'"{name}": {size}' for name, size in axes) + "}"


def _type(value: Value) -> str:
    """Format the dtype and shape of a whole value as a string literal, such as "float32[8, 4]"."""
    dtype = dtype_name(value.dtype).removesuffix("_")
    return f'"{dtype}{list(value.shape)}"'


def _spec(local: LocalProgram, number: int) -> str:
    return spec_text(local.values[number].layout)


def spec_text(layout: LocalLayout) -> str:
    """Format a layout as a PartitionSpec, without trailing unsplit dimensions."""
    dims = list(layout.dims)
    while dims and not dims[-1]:
        dims.pop()
    return f"P({', '.join(map(_entry, dims))})"


def _entry(names: tuple[str, ...]) -> str:
    if not names:
        return "None"
    quoted = [f'"{name}"' for name in names]
    return quoted[0] if len(quoted) == 1 else f"({', '.join(quoted)})"


def _literal(item: object) -> str:
    if isinstance(item, str):
        escaped = item.replace("\\", "\\\\")
        return f"'{escaped}'" if '"' in escaped else f'"{escaped}"'
    if isinstance(item, tuple):
        inside = ", ".join(map(_literal, item))
        return f"({inside},)" if len(item) == 1 else f"({inside})"
    return str(item)


def _summary(found: list[Communication]) -> list[str]:
    total = sum(each.bytes for each in found)
    if not found:
        return ["No device receives anything."]
    counts: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for each in found:
        counts[each.op] += each.count
        sizes[each.op] += each.bytes
    lines = [f"Received by the busiest device: {size_text(total)}."]
    for op, size in sizes.most_common():
        lines.append(f"{INDENT}{op.replace('_', '-'):14} {counts[op]:4}  {size_text(size):>12}")
    return lines
