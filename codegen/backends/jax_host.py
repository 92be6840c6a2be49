"""The text of the host side of JAX modules: meshes, shardings, and the host object."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from shardwright.codegen.backends.base import Request
from shardwright.codegen.text.context import (
    SIDES,
    ModuleText,
    as_vectors,
    both_lines,
    constant_lines,
)
from shardwright.codegen.text.docstring import (
    range_table,
    reduced_lines,
    senders,
    side_lines,
    traffic_lines,
)
from shardwright.codegen.text.python_text import INDENT, WIDTH, called, wrapped
from shardwright.codegen.text.table import permutation, transfer_table
from shardwright.ir.axes import axes_text
from shardwright.ir.dtypes import DTYPES
from shardwright.ir.exchange import Exchange
from shardwright.ir.layout import Layout
from shardwright.ir.mesh import AxisRef
from shardwright.ir.plan import DirectPlan, Plan, direct_of
from shardwright.ir.sharding import Sharding
from shardwright.ir.tiles import DimTiles


@dataclass(frozen=True)
class HostText:
    """The host side of a module.

    `axes`, `specs`, `padded`, `terms`: for source and target, the mesh axes with their sizes, the
    PartitionSpec, the padded global shape, and whether the array has a dimension of terms;
    `padding`: the class that pads shards, if they need padding;
    `some_local`: whether any device already has part of its target shard; `starts`: whether a
    program may compute between the start and the end of the reshard; `buffers`: as in `Request`.
    """

    module: ModuleText
    devices: int
    axes: tuple[tuple[tuple[str, int], ...], tuple[tuple[str, int], ...]]
    specs: tuple[str, str]
    padded: tuple[str, str]
    padding: str
    terms: tuple[bool, bool]
    some_local: bool
    communicates: bool
    reduces: bool
    starts: bool = False
    buffers: tuple[str, str] | None = None

    @property
    def is_wide(self) -> bool:
        """Whether elements have 64 bits, which JAX must be told to keep."""
        return DTYPES[self.module.dtype] == 8

    @property
    def class_name(self) -> str:
        if self.starts:
            return "StartedReshard"
        return "OneOrder" if self.module.same_order else "TwoOrders"

    @property
    def host_file(self) -> str:
        if self.starts:
            return "pallas_started"
        return "jax_host" if self.module.same_order else "jax_orders"

    @property
    def program_axes(self) -> str:
        """The Python expression for the axes whose order gives device positions."""
        names = [name for name, _ in self.axes[0]]
        return axes_text(names) if self.module.same_order else '"device"'

    @property
    def constant_lines(self) -> tuple[str, ...]:
        """The lines of constants that describe the reshard; both sides share one line if they are
        equal."""
        padded = ["SHAPE" if each == self.module.shape else each for each in self.padded]
        about = "# The meshes, their axes refined into the sub-axes in use."
        note = "# The shapes of global arrays: dimension 0 numbers terms."
        if self.is_padded:
            note = "# The shapes of global arrays, every shard padded at its end to the largest."
        return (
            *self.module.constant_lines,
            *([about] if any(":(" in name for axes in self.axes for name, _ in axes) else []),
            *self._axes_lines,
            *([note] if any(each != "SHAPE" for each in padded) else []),
            *both_lines("PADDED_{}_SHAPE", padded),
        )

    @property
    def _axes_lines(self) -> list[str]:
        source, target = (
            _axes_line(f"{side}_AXES", axes) for side, axes in zip(SIDES, self.axes, strict=True)
        )
        if self.axes[0] == self.axes[1] and len(source) == 1:
            return [f"SOURCE_AXES = {target[0]}"]
        return [*source, *target]

    @property
    def side_lines(self) -> tuple[str, ...]:
        lines: list[str] = []
        for side, spec, terms in zip(("source", "target"), self.specs, self.terms, strict=True):
            upper = side.upper()
            given = [f"{upper}_IDS", f"{side}_box", f"PADDED_{upper}_SHAPE", f"{upper}_AXES", spec]
            lines += called(f"_{upper} = Sharded", [*given, *(["terms=True"] if terms else [])])
        return tuple(lines)

    def host_lines(self, request: Request, backend: str) -> list[str]:
        """Return the lines that assign the constant _HOST, the host object."""
        given = ["__name__", "SHAPE", "DTYPE", "_SOURCE", "_TARGET", "_PROGRAM"]
        given += [f"padding={self.padding}"] if self.is_padded else []
        if has_operation(request):
            derivative = derivative_of(request, backend)
            named = ["__name__", *([f'"{derivative}"'] if derivative else [])]
            given.append(f"operation=Operation({', '.join(named)})")
        return called(f"_HOST = {self.class_name}", given)

    def calls(self, request: Request) -> dict[str, list[str]]:
        """Return the names that the host side uses, by support module."""
        found = {self.host_file: [self.class_name]}
        found |= {PADDINGS[self.padding]: [self.padding]} if self.is_padded else {}
        found |= {"jax_operation": ["Operation"]} if has_operation(request) else {}
        return found

    @property
    def is_padded(self) -> bool:
        sides = zip(self.padded, self.terms, strict=True)
        shape = ast.literal_eval(self.module.shape)
        return any(ast.literal_eval(each)[terms:] != shape for each, terms in sides)


def has_operation(request: Request) -> bool:
    """Return whether a module defines a JAX primitive: it supports vmap or derivatives, or it
    reduces by maximum or minimum and must explain why it has no derivative."""
    asked = request.derivative or "vmap" in request.features
    return asked or bool(request.plan.reshard.extremum)


def derivative_of(request: Request, backend: str) -> str:
    """Return the name of the module of the reverse reshard. Return "extremum" if the reshard
    reduces by maximum or minimum, and so has no derivative, and "" if no derivative is
    requested."""
    if request.derivative:
        return backend if request.backward else f"{backend}_backward"
    return "extremum" if request.plan.reshard.extremum else ""


def host_text(plan: Plan, module: ModuleText, ends: Exchange | None = None) -> HostText:
    """Return the host side of a plan's module. `ends`: the layouts of both sides, if the plan is
    not a single exchange."""
    given, reshard = direct_of(plan).exchange if ends is None else ends, plan.reshard
    moved = plan.traffic.received_total
    sides = reshard.source, reshard.target
    return HostText(
        module=module,
        devices=plan.devices,
        axes=(tuple(axes_of(sides[0])), tuple(axes_of(sides[1]))),
        specs=(spec_of(sides[0]), spec_of(sides[1])),
        padded=(_padded(given.source), _padded(given.target)),
        padding=padding_of((given.source, given.target)),
        terms=(bool(sides[0].unreduced), bool(sides[1].unreduced)),
        some_local=ends is None and moved < direct_of(plan).target_bytes,
        communicates=moved > 0,
        reduces=reshard.adds,
    )


def _padded(layout: Layout) -> str:
    return repr(tuple(dim.parts * dim.size for dim in layout.dims))


def padding_of(layouts: Iterable[Layout]) -> str:
    """Return the support class that pads the shards of both sides of a module."""
    flat = all(dim.is_flat for layout in layouts for dim in layout.dims)
    return "Padding" if flat else "SlottedPadding"


PADDINGS = {"Padding": "jax_padding", "SlottedPadding": "jax_slotted"}
"""The support modules of the classes that pad shards."""


def facts_of(plan: DirectPlan, *, combines: bool = True) -> tuple[str, ...]:
    """Return docstring lines about layouts, tiles, traffic, and transfers. `combines`: whether
    receivers get and combine all terms."""
    exchange = plan.exchange
    visible = as_vectors(exchange).dims[exchange.source.hidden :]
    met = [_met(axis, tiles) for axis, tiles in enumerate(visible)]
    tiles = [line for line in met if line]
    tiles += senders(exchange) if exchange.source.replicas > 1 else []
    tiles = [*tiles, *reduced_lines(exchange, plan.reshard)] if combines else []
    said = [
        *side_lines("Source", "d1", str(plan.reshard.source), exchange.source, "padded"),
        *side_lines("Target", "d2", str(plan.reshard.target), exchange.target, "padded"),
        "",
        *([] if permutation(plan) else tiles),
        *traffic_lines(plan),
    ]
    table = transfer_table(plan) if combines else range_table(exchange)
    return (*(part for line in said for part in wrapped(line)), *table)


def _met(axis: int, tiles: DimTiles) -> str:
    """Return a sentence on how shards intersect along a dimension, or "" if neither side splits
    it."""
    if max(tiles.source.parts, tiles.target.parts) == 1:
        return ""
    sizes = f"source shards of {tiles.source.size} meet target shards of {tiles.target.size}"
    count = tiles.max_peers_of_target
    low, high = tiles.target.intervals
    first, last = tiles.source.owners(low[low < high], high[low < high])
    most = f"{count}" if np.all(last - first + 1 == count) else f"up to {count}"
    plural = "s" * (count > 1)
    return f"Along dimension {axis}, {sizes}: {most} source shard{plural} for each target shard."


def axis_names(sharding: Sharding) -> dict[AxisRef, str]:
    """Return the names of the axes of a sharding's refined mesh, in a form that JAX allows."""
    refined = sharding.mesh.refine((*sharding.used(), *sharding.unreduced))
    return {ref: axis_name(ref) for ref in refined}


def axis_name(ref: AxisRef) -> str:
    """Return the name of an axis or sub-axis, in a form that JAX allows."""
    return ref.name if ref.size is None else f"{ref.name}:({ref.pre}){ref.size}"


def axes_of(sharding: Sharding) -> list[tuple[str, int]]:
    """Return the names and sizes of the axes of a sharding's refined mesh; for a mesh without axes,
    one axis of size 1."""
    mesh = sharding.mesh
    axes = [(name, mesh.digit(ref).size) for ref, name in axis_names(sharding).items()]
    return axes or [("device", 1)]


def _axes_line(name: str, axes: Iterable[tuple[str, int]]) -> list[str]:
    return constant_lines(name, [f'("{axis}", {size})' for axis, size in axes])


def spec_of(sharding: Sharding) -> str:
    """Format the PartitionSpec of a sharding as a Python expression."""
    names = axis_names(sharding)
    entries = [
        axes_text([names[ref] for ref in dim.axes]) if dim.axes else "None" for dim in sharding.dims
    ]
    if sharding.unreduced:
        entries.insert(0, axes_text([names[ref] for ref in sharding.unreduced]))
    return f"P({', '.join(entries)})"


def short_dims(layout: Layout) -> tuple[int, ...]:
    """Return the dimensions along which some shards are shorter than the largest."""
    return tuple(axis for axis, dim in enumerate(layout.dims) if not dim.is_even)


LIBRARIES = {
    "jnp": "import jax.numpy as jnp",
    "np": "import numpy as np",
    "lax": "from jax import lax",
    "pl": "from jax.experimental import pallas as pl",
    "pltpu": "from jax.experimental.pallas import tpu as pltpu",
}
"""The import statements of libraries, by the name they bind."""


def library_lines(names: Iterable[str]) -> tuple[str, ...]:
    """Return the import statements of the given libraries, and of `P`."""
    used = set(names)
    lines = (line for name, line in LIBRARIES.items() if name in used)
    return (*lines, "from jax.sharding import PartitionSpec as P")


def imports_of(calls: Mapping[str, Iterable[str]]) -> tuple[str, ...]:
    """Return the import statements for names in support modules."""
    lines: list[str] = []
    for module in sorted(calls):
        # ruff's order: constants, then classes, then functions
        names = sorted(
            {*calls[module]}, key=lambda name: (not name.isupper(), name[0].islower(), name)
        )
        lines += _imported(f"from .._support.{module} import ", names)
    return tuple(lines)


def _imported(start: str, names: list[str]) -> list[str]:
    line = start + ", ".join(names)
    if len(line) <= WIDTH:
        return [line]
    return [f"{start}(", *(f"{INDENT}{name}," for name in names), ")"]
