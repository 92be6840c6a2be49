"""The Pallas TPU module: one SPMD kernel in which every device pushes its tiles to receivers."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from shardwright.codegen.backends.tpu_checks import check
from shardwright.codegen.backends.tpu_forms import Choice, Form, choose
from shardwright.codegen.backends.tpu_review import form_facts
from shardwright.codegen.backends.tpu_review import review as review
from shardwright.codegen.backends.tpu_traffic import Figures
from shardwright.codegen.backends.widths import refuse_wide
from shardwright.codegen.module import (
    ModuleText,
    as_vectors,
    constant_lines,
    module_text,
    refuse_common,
)
from shardwright.codegen.render import render as render_template
from shardwright.ir.dtypes import DTYPES, is_floating
from shardwright.ir.exchange import Exchange, ids_of, positions_of
from shardwright.ir.layout import Layout
from shardwright.ir.mesh import AxisRef
from shardwright.ir.plan import Plan
from shardwright.ir.printers import PALLAS
from shardwright.ir.sharding import Sharding

# Collective ids are 16-bit signed numbers in the interpreter.
COLLECTIVE_IDS = 2**15
UNSUPPORTED = {"float64": "a TPU has no 64-bit floats"}
# What elements are moved as, where they are not moved as what they are.
MOVED = {"bool": "int8", "float16": "int16"}


@dataclass(frozen=True)
class PallasText(ModuleText):
    """Everything the template prints."""

    devices: int
    axes_lines: tuple[str, ...]
    source_spec: str
    target_spec: str
    padded_source_shape: str
    padded_target_shape: str
    view_target_shape: str
    kernel_axes: str
    replicas: int
    pieces: int
    cut_axis: int
    view: str
    inverse_view: str
    form: Form
    figures: Figures
    moved: str
    some_local: bool
    communicates: bool
    collective_id: int
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
    target_short: tuple[int, ...]
    source_parts: tuple[int, ...]
    self_check_values: int
    jit: bool = False
    tested: str = "Tested with jax 0.10.2 in TPU interpret mode."

    @property
    def has_table(self) -> bool:
        """Whether the kernel takes a table of device orders: ids without a closed form."""
        return not self.same_order and self.offsets is None

    @property
    def order_arg(self) -> str:
        """How a function of the kernel names the table after another parameter."""
        return ", order" if self.has_table else ""

    @property
    def order_parameter(self) -> str:
        """How the kernel names the table before another parameter."""
        return "order, " if self.has_table else ""

    @property
    def order_spec(self) -> str:
        """Where the table stands in memory, before the specs of the shards."""
        return "pl.BlockSpec(memory_space=pltpu.SMEM), " if self.has_table else ""

    @property
    def semaphores(self) -> tuple[str, ...]:
        """The DMA semaphores of a kernel that moves tiles in place or slots."""
        local = ("copied",) if self.some_local else ()
        return (*local, "sent", "received") if self.communicates else local

    @property
    def flat(self) -> bool:
        """Whether the tensor is a vector, which is tiled otherwise than what has rows."""
        return len(self.axes) == 1

    @property
    def transposed(self) -> bool:
        """Whether kernels take the dimensions in another order than the tensor's."""
        return self.form.view != self.axes

    @property
    def word(self) -> str:
        """The integer type through which elements become 32-bit words, "self" if they are some."""
        return {4: "self", 2: "int16", 1: "int8"}[min(DTYPES[self.dtype], 4)]

    @property
    def differentiable(self) -> bool:
        """Whether JAX differentiates with respect to the elements."""
        return is_floating(self.dtype)

    @property
    def unpack_specs(self) -> str:
        """Where the windows' sources stand in memory."""
        return ", ".join("in_hbm" for _ in self.unpack_refs.split(", "))

    @property
    def unpack_refs(self) -> str:
        """Where windows take the parts of the target shard from."""
        local = ("x",) if self.some_local else ()
        return ", ".join((*local, "stage") if self.communicates else local)

    @property
    def sender_rank(self) -> str:
        """The rank of the device at source position `sender`."""
        return "sender" if self.same_order else f"_source_rank(sender{self.order_arg})"

    @property
    def receiver_rank(self) -> str:
        """The rank of the device at target position `receiver`."""
        return "receiver" if self.same_order else f"_target_rank(receiver{self.order_arg})"


def refuse(plan: Plan) -> None:
    """Raises InputError for what this backend does not do."""
    refuse_common(plan, "pallas_tpu", UNSUPPORTED)
    refuse_wide(plan, as_vectors(plan.exchange), "pallas_tpu")


def render(plan: Plan, command: str) -> str:
    """The text of `pallas_tpu.py`."""
    return render_template("pallas_tpu.py.jinja", pallas_text(plan, command, _choice(plan)))


def render_like(plan: Plan, command: str, like: Plan) -> str:
    """The text of `pallas_tpu.py` in the form that another plan's module has, if it can have it."""
    choice = _choice(plan, _choice(like).form)
    return render_template("pallas_tpu.py.jinja", pallas_text(plan, command, choice))


def _choice(plan: Plan, like: Form | None = None) -> Choice:
    exchange = as_vectors(plan.exchange)
    choice = choose(exchange, DTYPES[plan.reshard.dtype], like)
    check(choice.form, exchange)
    return choice


def pallas_text(plan: Plan, command: str, choice: Choice) -> PallasText:
    """The template's context."""
    exchange = as_vectors(plan.exchange)
    source, target = exchange.source, exchange.target
    view = choice.form.view
    axes = _axes(plan.reshard.source), _axes(plan.reshard.target)
    common = module_text(plan, command, PALLAS, choice.form.functions(exchange))
    return PallasText(
        **vars(replace(common, facts=(*common.facts, "", *form_facts(choice)))),
        devices=plan.devices,
        axes_lines=(
            *_axes_line("SOURCE_AXES", axes[0]),
            *_axes_line("TARGET_AXES", axes[1]),
            *_range_lines("SOURCE", source),
            *_range_lines("TARGET", target),
        ),
        source_spec=_spec(plan.reshard.source),
        target_spec=_spec(plan.reshard.target),
        padded_source_shape=repr(_padded_shape(plan.exchange.source)),
        padded_target_shape=repr(_padded_shape(plan.exchange.target)),
        view_target_shape=repr(tuple(target.local_shape[axis] for axis in view)),
        kernel_axes=_tuple_of_names([name for name, _ in axes[0]]),
        replicas=target.replicas,
        pieces=exchange.rule.pieces,
        cut_axis=exchange.rule.cut,
        view=repr(view),
        inverse_view=repr(tuple(view.index(axis) for axis in range(len(view)))),
        form=choice.form,
        figures=choice.figures,
        moved=MOVED.get(plan.reshard.dtype, plan.reshard.dtype),
        some_local=plan.traffic.received_total < plan.target_bytes,
        communicates=plan.traffic.received_total > 0,
        collective_id=collective_id(plan),
        source_size=source.mesh.size,
        target_size=target.mesh.size,
        offsets=_offsets(exchange),
        order_lines=_order_lines(exchange),
        source_sizes=tuple(dim.size for dim in source.dims),
        target_sizes=tuple(dim.size for dim in target.dims),
        source_nested=_nested(source),
        target_nested=_nested(target),
        source_uneven=any(dim.is_flat and not dim.is_even for dim in source.dims),
        target_uneven=any(dim.is_flat and not dim.is_even for dim in target.dims),
        target_short=_short(target) if choice.form.leaves_padding else (),
        source_parts=tuple(dim.parts for dim in source.dims),
        self_check_values=2 if plan.reshard.dtype == "bool" else 5,
    )


def collective_id(plan: Plan) -> int:
    """A number that stays with the description, so that different kernels differ in it."""
    reshard = plan.reshard
    described = (reshard, reshard.source.mesh.device_ids, reshard.target.mesh.device_ids)
    digest = hashlib.sha256(repr(described).encode()).digest()
    return int.from_bytes(digest[:2], "big") % COLLECTIVE_IDS


def _names(sharding: Sharding) -> dict[AxisRef, str]:
    """The axes of the mesh refined for a sharding, with names that JAX takes."""
    refined = sharding.mesh.refine(sharding.used())
    return {
        ref: ref.name if ref.size is None else f"{ref.name}:({ref.pre}){ref.size}"
        for ref in refined
    }


def _axes(sharding: Sharding) -> list[tuple[str, int]]:
    mesh = sharding.mesh
    axes = [(name, mesh.digit(ref).size) for ref, name in _names(sharding).items()]
    return axes or [("device", 1)]


def _axes_line(name: str, axes: list[tuple[str, int]]) -> list[str]:
    return constant_lines(name, [f'("{axis}", {size})' for axis, size in axes])


def _tuple_of_names(names: list[str]) -> str:
    quoted = [f'"{name}"' for name in names]
    return quoted[0] if len(quoted) == 1 else f"({', '.join(quoted)})"


def _spec(sharding: Sharding) -> str:
    names = _names(sharding)
    entries = [
        _tuple_of_names([names[ref] for ref in dim.axes]) if dim.axes else "None"
        for dim in sharding.dims
    ]
    return f"P({', '.join(entries)})"


def _padded_shape(layout: Layout) -> tuple[int, ...]:
    return tuple(dim.parts * dim.size for dim in layout.dims)


def _nested(layout: Layout) -> tuple[int, ...]:
    return tuple(axis for axis, dim in enumerate(layout.dims) if not dim.is_flat)


def _offsets(exchange: Exchange) -> tuple[int, int] | None:
    """Rank minus position on either side; None where device ids are not consecutive."""
    offsets = []
    for mesh in (exchange.source.mesh, exchange.target.mesh):
        if not isinstance(mesh.device_ids, range):
            return None
        offsets.append(int(exchange.ranks.searchsorted(mesh.device_ids.start)))
    return offsets[0], offsets[1]


def _order_lines(exchange: Exchange) -> tuple[str, ...]:
    """ORDER: ranks by source position, by target position; source, target positions by rank."""
    if exchange.same_order or _offsets(exchange) is not None:
        return ()
    meshes = (exchange.source.mesh, exchange.target.mesh)
    ranks = [exchange.ranks.searchsorted(ids_of(mesh)) for mesh in meshes]
    positions = [positions_of(mesh, exchange.ranks) for mesh in meshes]
    table = [number for part in (*ranks, *positions) for number in part.tolist()]
    return tuple(constant_lines("ORDER", [str(number) for number in table]))


def _short(layout: Layout) -> tuple[int, ...]:
    """Dimensions along which some shards are shorter than the largest."""
    return tuple(axis for axis, dim in enumerate(layout.dims) if not dim.is_even)


def _range_lines(side: str, layout: Layout) -> list[str]:
    """The ranges of every shard along the dimensions whose slots a pad cannot fill at the end."""
    lines: list[str] = []
    for axis in _nested(layout):
        low, high = (end.tolist() for end in layout.dims[axis].intervals)
        ranges = [f"({a}, {b})" for a, b in zip(low, high, strict=True)]
        lines += constant_lines(f"{side}_RANGES{axis}", ranges)
    return lines
