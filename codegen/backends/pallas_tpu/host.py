"""What the templates of JAX modules print of the host side: meshes, shardings, padding, ranks."""

from __future__ import annotations

import math
from dataclasses import dataclass

from shardwright.codegen.emit.context import ModuleText, as_vectors, constant_lines
from shardwright.ir.dtypes import DTYPES
from shardwright.ir.exchange import Exchange, ids_of, positions_of
from shardwright.ir.layout import Layout
from shardwright.ir.mesh import AxisRef
from shardwright.ir.plan import Plan, direct_of
from shardwright.ir.sharding import Operator, Sharding


@dataclass(frozen=True)
class PallasHost:
    """The host side of a module: what `common/jax_host.py.jinja` prints.

    `has_table`: whether the program takes a table of device orders: ids without a closed form.
    """

    module: ModuleText
    has_table: bool
    devices: int
    axes_lines: tuple[str, ...]
    source_spec: str
    target_spec: str
    padded_source_shape: str
    padded_target_shape: str
    kernel_axes: str
    replicas: int
    pieces: int
    cut_axis: int
    source_size: int
    target_size: int
    offsets: tuple[int, int] | None
    order_lines: tuple[str, ...]
    source_sizes: tuple[int, ...]
    target_sizes: tuple[int, ...]
    source_nested: tuple[int, ...]
    target_nested: tuple[int, ...]
    source_uneven: bool
    target_uneven: bool
    source_changed: tuple[int, ...]  # dimensions that `pad` changes, of the array that it takes
    target_changed: tuple[int, ...]  # those that `unpad` changes
    some_local: bool
    communicates: bool
    self_check_values: int
    source_terms: int  # extents of the dimensions of terms; 0 where an array has none
    target_terms: int
    operator: Operator  # what makes one value of the terms of the source
    target_operator: Operator
    reduces: bool
    is_transposed: bool  # whether it moves cotangents, where there are terms
    extremum: str  # the operator, "max" or "min", for which there is no derivative; "" for none

    @property
    def pads(self) -> bool:
        """Whether `pad` does anything."""
        return self.source_uneven or bool(self.source_nested)

    @property
    def unpads(self) -> bool:
        """Whether `unpad` does anything."""
        return self.target_uneven or bool(self.target_nested)

    @property
    def given_shape(self) -> str:
        """The shape that `pad` takes."""
        return f"({self.source_terms}, *SHAPE)" if self.source_terms else "SHAPE"

    @property
    def result_shape(self) -> str:
        """The shape that `unpad` gives."""
        return f"({self.target_terms}, *SHAPE)" if self.target_terms else "SHAPE"

    @property
    def scalar_source(self) -> str:
        """What a source shard's shape takes where a scalar is a vector of one element."""
        return "[:0]" if self.module.scalar and not self.source_terms else ""

    @property
    def scalar_target(self) -> str:
        """As `scalar_source`."""
        return "[:0]" if self.module.scalar and not self.target_terms else ""

    @property
    def order_arg(self) -> str:
        """How a function names the table after another parameter."""
        return ", order" if self.has_table else ""

    @property
    def order_parameter(self) -> str:
        """How a function names the table before another parameter."""
        return "order, " if self.has_table else ""

    @property
    def as_bits(self) -> bool:
        """Whether elements move as integers of their width: floats that are not reduced."""
        return self.module.floating and not self.reduces

    @property
    def bits(self) -> str:
        """The integer type of an element's width."""
        return f"int{8 * DTYPES[self.module.dtype]}"

    @property
    def changes_nans(self) -> bool:
        """Whether XLA on CPU computes with the elements as float32, which changes NaNs."""
        return self.module.dtype in ("bfloat16", "float8_e5m2")

    @property
    def on_cpu(self) -> str:
        """The rest of the docstring of `pad`, where XLA does not keep all that it moves."""
        if not self.changes_nans:
            return ""
        return (
            "\n\n    In a jit that moves elements between devices XLA on CPU does so in float32,"
            " which\n    changes payloads of NaNs. Outside of jit every bit stays.\n    "
        )

    @property
    def names_axis_types(self) -> bool:
        """Whether the module asks if the axes of a mesh are Explicit."""
        return self.module.same_order or self.pads or self.unpads or self.differentiable

    @property
    def differentiable(self) -> bool:
        """Whether JAX differentiates with respect to the elements."""
        return self.module.floating and not self.extremum

    @property
    def refuses_derivative(self) -> bool:
        """Whether elements are floating and there is no derivative nevertheless."""
        return self.module.floating and bool(self.extremum)

    @property
    def no_term(self) -> int:
        """What the self-check puts where a term counts for nothing."""
        return self.self_check_values - 1 if self.operator == "min" else 0


def host_text(
    plan: Plan, module: ModuleText, ends: Exchange | None = None, *, by_table: bool = False
) -> PallasHost:
    """Return the host side of a plan's module.

    `ends`: both sides' layouts, for a plan that is not one exchange. `by_table`: its program finds
    ranks by a table where it has to.
    """
    given = direct_of(plan).exchange if ends is None else ends
    wanted = plan.reshard.target
    exchange = as_vectors(given)
    source, target = exchange.source, exchange.target
    axes = axes_of(plan.reshard.source), axes_of(wanted)
    offsets = _offsets(exchange)
    return PallasHost(
        module=module,
        has_table=by_table and not module.same_order and offsets is None,
        devices=plan.devices,
        axes_lines=(
            *axes_line("SOURCE_AXES", axes[0]),
            *axes_line("TARGET_AXES", axes[1]),
            *_range_lines("SOURCE", source),
            *_range_lines("TARGET", target),
        ),
        source_spec=_spec(plan.reshard.source),
        target_spec=_spec(wanted),
        padded_source_shape=repr(_padded_shape(given.source)),
        padded_target_shape=repr(_padded_shape(given.target)),
        kernel_axes=quoted_names([name for name, _ in axes[0]]),
        replicas=target.replicas,
        pieces=exchange.rule.pieces,
        cut_axis=exchange.rule.cut,
        source_size=source.mesh.size,
        target_size=target.mesh.size,
        offsets=offsets,
        order_lines=_order_lines(exchange),
        source_sizes=tuple(dim.size for dim in source.dims),
        target_sizes=tuple(dim.size for dim in target.dims),
        source_nested=_nested(source),
        target_nested=_nested(target),
        source_uneven=any(dim.is_flat and not dim.is_even for dim in source.dims),
        target_uneven=any(dim.is_flat and not dim.is_even for dim in target.dims),
        source_changed=_slotted(source),
        target_changed=_slotted(target),
        some_local=ends is None and plan.traffic.received_total < direct_of(plan).target_bytes,
        communicates=plan.traffic.received_total > 0,
        self_check_values=2 if plan.reshard.dtype == "bool" else 5,
        source_terms=_terms(plan.reshard.source),
        target_terms=_terms(wanted),
        operator=plan.reshard.source.operator,
        target_operator=wanted.operator,
        reduces=plan.reshard.adds,
        is_transposed=plan.reshard.transposed,
        extremum=plan.reshard.extremum,
    )


def _terms(sharding: Sharding) -> int:
    """Return how many terms an array of partial sums has; 0 where it holds values."""
    sizes = (sharding.mesh.full_size(ref) for ref in sharding.unreduced)
    return math.prod(sizes) if sharding.unreduced else 0


def axis_names(sharding: Sharding) -> dict[AxisRef, str]:
    """Return the axes of the mesh refined for a sharding, with names that JAX takes."""
    refined = sharding.mesh.refine((*sharding.used(), *sharding.unreduced))
    return {ref: axis_name(ref) for ref in refined}


def axis_name(ref: AxisRef) -> str:
    """Return an axis or sub-axis as JAX may name an axis."""
    return ref.name if ref.size is None else f"{ref.name}:({ref.pre}){ref.size}"


def axes_of(sharding: Sharding) -> list[tuple[str, int]]:
    """Return names and sizes of the axes of the mesh refined for a sharding; one axis at least."""
    mesh = sharding.mesh
    axes = [(name, mesh.digit(ref).size) for ref, name in axis_names(sharding).items()]
    return axes or [("device", 1)]


def axes_line(name: str, axes: list[tuple[str, int]]) -> list[str]:
    """Return the names and sizes of axes as a constant of the module."""
    return constant_lines(name, [f'("{axis}", {size})' for axis, size in axes])


def quoted_names(names: list[str]) -> str:
    """Return axis names as a Python expression: one text, or a tuple of several."""
    quoted = [f'"{name}"' for name in names]
    return quoted[0] if len(quoted) == 1 else f"({', '.join(quoted)})"


def _spec(sharding: Sharding) -> str:
    names = axis_names(sharding)
    entries = [
        quoted_names([names[ref] for ref in dim.axes]) if dim.axes else "None"
        for dim in sharding.dims
    ]
    if sharding.unreduced:
        entries.insert(0, quoted_names([names[ref] for ref in sharding.unreduced]))
    return f"P({', '.join(entries)})"


def _padded_shape(layout: Layout) -> tuple[int, ...]:
    return tuple(dim.parts * dim.size for dim in layout.dims)


def _slotted(layout: Layout) -> tuple[int, ...]:
    """Return the dimensions along which shards do not fill slots of one size."""
    return tuple(axis for axis, dim in enumerate(layout.dims) if not (dim.is_flat and dim.is_even))


def _nested(layout: Layout) -> tuple[int, ...]:
    return tuple(axis for axis, dim in enumerate(layout.dims) if not dim.is_flat)


def _offsets(exchange: Exchange) -> tuple[int, int] | None:
    """Return rank minus position on either side; None where device ids are not consecutive."""
    offsets = []
    for mesh in (exchange.source.mesh, exchange.target.mesh):
        if not isinstance(mesh.device_ids, range):
            return None
        offsets.append(int(exchange.ranks.searchsorted(mesh.device_ids.start)))
    return offsets[0], offsets[1]


def _order_lines(exchange: Exchange) -> tuple[str, ...]:
    """Return the constant ORDER: ranks by source position, by target position; source, target
    positions by rank."""
    if exchange.same_order or _offsets(exchange) is not None:
        return ()
    meshes = (exchange.source.mesh, exchange.target.mesh)
    ranks = [exchange.ranks.searchsorted(ids_of(mesh)) for mesh in meshes]
    positions = [positions_of(mesh, exchange.ranks) for mesh in meshes]
    table = [number for part in (*ranks, *positions) for number in part.tolist()]
    return tuple(constant_lines("ORDER", [str(number) for number in table]))


def short_dims(layout: Layout) -> tuple[int, ...]:
    """Return dimensions along which some shards are shorter than the largest."""
    return tuple(axis for axis, dim in enumerate(layout.dims) if not dim.is_even)


def _range_lines(side: str, layout: Layout) -> list[str]:
    """Return the ranges of every shard along the dimensions whose slots a pad cannot fill at the
    end."""
    lines: list[str] = []
    for axis in _nested(layout):
        low, high = (end.tolist() for end in layout.dims[axis].intervals)
        ranges = [f"({a}, {b})" for a, b in zip(low, high, strict=True)]
        lines += constant_lines(f"{side}_RANGES{axis}", ranges)
    return lines
