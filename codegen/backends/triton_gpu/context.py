"""The Triton module: kernels that copy tiles, a program a block, and the code around them."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import Any

import sympy

from shardwright.codegen.backends.base import Request
from shardwright.codegen.backends.int32 import refuse_wide
from shardwright.codegen.backends.triton_gpu.dtensor import placements
from shardwright.codegen.backends.triton_gpu.row_text import FIELDS, Rows
from shardwright.codegen.backends.triton_gpu.rows import Form, Moves
from shardwright.codegen.emit.context import ModuleText, as_vectors, module_text, refuse_common
from shardwright.codegen.emit.index_functions import index_functions
from shardwright.codegen.emit.python_text import unpacked
from shardwright.codegen.emit.templates import render as render_template
from shardwright.ir.algebra.printers import TRITON
from shardwright.ir.exchange import Exchange
from shardwright.ir.plan import Plan

NAME = "triton_gpu"
TESTED = "Tested with triton 3.7.1 and 3.9.0, and torch 2.13.0."
TURNS = (
    "# The source shard to read: the device's own first, and on from there, so that devices that",
    "# start together do not all read from one.",
)
# From this many bytes in a shard, offsets are computed in 64 bits.
WIDE_BYTES = 2**31


@dataclass(frozen=True)
class DimText:
    """One tensor dimension as the kernel's text needs it."""

    axis: int
    split: bool


@dataclass(frozen=True)
class GroupText:
    """Neighbouring dimensions that are contiguous on both sides, named by the first."""

    axis: int
    axes: str


@dataclass(frozen=True)
class TritonText(ModuleText):
    """Everything the template prints."""

    plan: str
    dims: tuple[DimText, ...]
    groups: tuple[GroupText, ...]
    groups_text: str
    form: Form
    block: str
    aligned: str
    unaligned: str
    unit_bytes: int
    pieces: int
    cut_axis: int
    replicas: int
    some_local: bool
    entry: int
    unpack_program: tuple[str, ...]
    unpack_pull_program: tuple[str, ...]
    choose_comment: tuple[str, ...]
    unpack_senders: tuple[str, ...]
    unpack_own: tuple[str, ...]
    choose_shard: tuple[str, ...]
    unpack_target: tuple[str, ...]
    unpack_tile: tuple[str, ...]
    unpack_from: tuple[str, ...]
    unpack_to: tuple[str, ...]
    measure: tuple[str, ...]
    load_outer: tuple[str, ...]
    outer_lines: tuple[str, ...]
    hints: tuple[str, ...]
    all_hints: tuple[str, ...]
    copy_call: tuple[str, ...]
    shard_args: str
    source_multiple: str
    differentiable: bool
    reverse: str
    source_placements: str | None
    target_placements: str | None
    source_mesh_shape: str
    target_mesh_shape: str

    jit: bool = True
    tested: str = TESTED

    @property
    def piece_arg(self) -> str:
        """How a call names the piece, where tiles are cut."""
        return ", piece" if self.pieces > 1 else ""

    @property
    def placement_names(self) -> str:
        """What a module imports to name placements."""
        said = f"{self.source_placements} {self.target_placements}"
        return ", ".join(
            name for name in ("DTensor", "Replicate", "Shard") if name in said + "DTensor"
        )

    @property
    def has_placements(self) -> bool:
        """Whether both sides can be said as placements of a DTensor."""
        return self.source_placements is not None and self.target_placements is not None


def refuse(plan: Plan) -> None:
    """Raises InputError for what this backend does not do."""
    refuse_common(plan, NAME, {})
    refuse_wide(plan, as_vectors(plan.exchange), NAME)


def render(request: Request) -> str:
    """Return the text of a module; it and its backward name each other."""
    context = triton_text(request.plan, request.command, backward=request.backward)
    return render_template("triton_gpu/module.py.jinja", context)


def triton_text(plan: Plan, command: str, *, backward: bool = False) -> TritonText:
    """The template's context."""
    exchange = as_vectors(plan.exchange)
    common = module_text(plan, command, TRITON)
    axes = range(len(common.axes))
    moves = Moves(exchange, common.itemsize)
    rows = Rows(moves, _widest_shard(exchange) * common.itemsize >= WIDE_BYTES)
    counted = any(count != 1 for _, count in _met(exchange))
    return TritonText(
        **vars(common),
        plan=plan_hash(plan),
        dims=tuple(DimText(axis, exchange.dims[axis].source.parts > 1) for axis in axes),
        groups=tuple(GroupText(group[0], repr(group)) for group in moves.groups),
        groups_text=repr(moves.groups),
        form=moves.form,
        block=repr(moves.block),
        aligned=repr((moves.unit_elements, moves.lanes, *moves.blocks(moves.unit_elements))),
        unaligned=repr((1, 1, *moves.blocks(1))),
        unit_bytes=moves.unit,
        pieces=exchange.rule.pieces,
        cut_axis=exchange.rule.cut,
        replicas=exchange.target.replicas,
        some_local=_some_local(plan),
        entry=FIELDS + 3 * len(rows.outer),
        unpack_program=rows.program,
        unpack_pull_program=rows.program
        if counted or exchange.rule.pieces > 1
        else rows.program[:1],
        choose_comment=TURNS if counted else ("# The one source shard that it meets.",),
        **_unpackings(exchange, _some_local(plan)),
        measure=rows.measure,
        load_outer=rows.load_outer,
        outer_lines=rows.outer_lines,
        hints=rows.hints,
        all_hints=rows.all_hints,
        copy_call=rows.copy_call,
        shard_args=", ".join(f"a{k}" for k in axes),
        source_multiple="LANES * UNIT" + (f" * {common.itemsize}" if common.itemsize > 1 else ""),
        differentiable=common.dtype.startswith(("float", "bfloat")),
        reverse=f"{NAME}.py" if backward else f"{NAME}_backward.py",
        source_placements=placements(plan.reshard.source, plan.exchange.source),
        target_placements=placements(plan.reshard.target, plan.exchange.target),
        source_mesh_shape=repr(tuple(size for _, size in plan.reshard.source.mesh.axes)),
        target_mesh_shape=repr(tuple(size for _, size in plan.reshard.target.mesh.axes)),
    )


def _unpackings(exchange: Exchange, some_local: bool) -> dict[str, Any]:
    """The lines that take apart what index functions return, by their names in the template."""
    axes = range(len(exchange.dims))

    def ends(low: str, high: str, call: str) -> tuple[str, ...]:
        return unpacked([f"{name}{k}" for k in axes for name in (low, high)], call)

    source = ", ".join(f"a{k}" for k in axes)
    target = ", ".join(f"b{k}" for k in axes)
    return {
        "unpack_senders": ends("first", "count", "senders(receiver)"),
        "unpack_own": _unpack_own(exchange, some_local),
        "choose_shard": _choose_shard(exchange),
        "unpack_target": unpacked([f"b{k}" for k in axes], "target_shard(receiver)"),
        "unpack_tile": ends("lo", "hi", f"tile({source}, {target})"),
        "unpack_from": ends("from", "from_end", f"source_range({source})"),
        "unpack_to": ends("to", "to_end", "target_box(receiver)"),
    }


def plan_hash(plan: Plan) -> str:
    """A text that two plans share only if they move the same; ranks compare it."""
    reshard = plan.reshard
    ids = tuple(tuple(side.mesh.device_ids) for side in (reshard.source, reshard.target))
    said = repr((reshard, ids, plan.strategy, plan.exchange.rule))
    return hashlib.sha256(said.encode()).hexdigest()[:16]


def _unpack_own(exchange: Exchange, some_local: bool) -> tuple[str, ...]:
    """Lines that find the source shard of this device; none where nothing needs it."""
    counted = any(count != 1 for _, count in _met(exchange))
    if not counted and not some_local:
        return ()
    names = [f"own{axis}" for axis in range(len(exchange.dims))]
    return unpacked(names, "source_shard(tl.where(me >= 0, me, receiver))")


def _choose_shard(exchange: Exchange) -> tuple[str, ...]:
    """Lines that take the index of the source shard off the number of a tile, minor to major.

    Along each dimension the first of `count` is the own one, modulo `count`: the remainder of
    `own - first`, with `first * (count - 1)` for `-first` so that nothing is negative.
    """
    lines = []
    for axis, (first, count) in reversed(tuple(enumerate(_met(exchange)))):
        if count == 1:
            lines.append(f"a{axis} = first{axis}")
            continue
        turn = f"number % count{axis} + own{axis}" if axis else "number + own0"
        turn += "" if first == 0 else f" + first{axis} * (count{axis} - 1)"
        lines.append(f"a{axis} = first{axis} + ({turn}) % count{axis}")
        if axis:
            lines.append(f"number = number // count{axis}")
    return tuple(lines)


def _met(exchange: Exchange) -> tuple[tuple[sympy.Expr, sympy.Expr], ...]:
    """Per dimension the first and the count that `senders` returns."""
    (senders,) = (f for f in exchange.once(index_functions) if f.name == "senders")
    return tuple(zip(senders.results[::2], senders.results[1::2], strict=True))


def _some_local(plan: Plan) -> bool:
    """Whether any device holds part of its own target shard."""
    return plan.traffic.received_total < plan.target_bytes


def _widest_shard(exchange: Exchange) -> int:
    """Elements of the largest shard on either side."""
    sides = (exchange.source, exchange.target)
    return max(math.prod(dim.size for dim in layout.dims) for layout in sides)
