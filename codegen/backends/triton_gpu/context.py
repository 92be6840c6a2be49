"""The Triton module: kernels that copy tiles, a program a block, and the code around them."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

import sympy

from shardwright.codegen.backends.base import Request
from shardwright.codegen.backends.int32 import refuse_wide
from shardwright.codegen.backends.triton_gpu.dtensor import Placements, placements
from shardwright.codegen.backends.triton_gpu.row_text import FIELDS, Rows
from shardwright.codegen.backends.triton_gpu.rows import Moves
from shardwright.codegen.emit.context import ModuleText, as_vectors, module_text, refuse_common
from shardwright.codegen.emit.index_functions import index_functions
from shardwright.codegen.emit.python_text import unpacked
from shardwright.codegen.emit.templates import render as render_template
from shardwright.ir.algebra.printers import TRITON
from shardwright.ir.exchange import Exchange
from shardwright.ir.plan import DirectPlan, Plan, direct_of

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
class Unpackings:
    """Lines that take apart what index functions return, named by these."""

    senders: tuple[str, ...]
    target: tuple[str, ...]
    tile: tuple[str, ...]
    source_range: tuple[str, ...]
    target_box: tuple[str, ...]

    @staticmethod
    def of(rank: int) -> Unpackings:
        """Return the lines for a tensor of so many dimensions."""
        axes = range(rank)

        def ends(low: str, high: str, call: str) -> tuple[str, ...]:
            return unpacked([f"{name}{k}" for k in axes for name in (low, high)], call)

        source = ", ".join(f"a{k}" for k in axes)
        target = ", ".join(f"b{k}" for k in axes)
        return Unpackings(
            senders=ends("first", "count", "senders(receiver)"),
            target=unpacked([f"b{k}" for k in axes], "target_shard(receiver)"),
            tile=ends("lo", "hi", f"tile({source}, {target})"),
            source_range=ends("from", "from_end", f"source_range({source})"),
            target_box=ends("to", "to_end", "target_box(receiver)"),
        )


@dataclass(frozen=True)
class TritonKernel:
    """The kernels, and the host's functions that know of tiles."""

    dims: tuple[DimText, ...]
    groups: tuple[GroupText, ...]
    groups_text: str
    moves: Moves
    rows: Rows
    block: str
    aligned: str
    unaligned: str
    pieces: int
    cut_axis: int
    replicas: int
    some_local: bool
    entry: int
    unpack_pull_program: tuple[str, ...]
    choose_comment: tuple[str, ...]
    unpack: Unpackings
    unpack_own: tuple[str, ...]
    choose_shard: tuple[str, ...]
    shard_args: str
    source_multiple: str

    @property
    def piece_arg(self) -> str:
        """How a call names the piece, where tiles are cut."""
        return ", piece" if self.pieces > 1 else ""


@dataclass(frozen=True)
class TorchHost:
    """What host functions know of the plan as a whole, its reverse, and DTensor's words for it."""

    plan: str
    reverse: str
    source_placements: Placements | None
    target_placements: Placements | None
    source_mesh_shape: str
    target_mesh_shape: str

    @property
    def placement_names(self) -> str:
        """What a module imports to name placements."""
        sides = (self.source_placements, self.target_placements)
        names = {name for side in sides if side is not None for name in side.names}
        return ", ".join(sorted({"DTensor", *names}))

    @property
    def has_placements(self) -> bool:
        """Whether both sides can be said as placements of a DTensor."""
        return self.source_placements is not None and self.target_placements is not None


@dataclass(frozen=True)
class TritonText:
    """Everything the template prints."""

    module: ModuleText
    kernel: TritonKernel
    host: TorchHost


def refuse(plan: Plan) -> None:
    """Raise InputError for what this backend does not do."""
    refuse_common(plan, NAME, {})
    refuse_wide(plan, as_vectors(direct_of(plan).exchange), NAME)


def render(request: Request) -> str:
    """Return the text of a module; it and its backward name each other."""
    context = triton_text(direct_of(request.plan), request.command, backward=request.backward)
    return render_template("triton_gpu/module.py.jinja", context)


def triton_text(plan: DirectPlan, command: str, *, backward: bool = False) -> TritonText:
    """Return the template's context."""
    reshard = plan.reshard
    host = TorchHost(
        plan=plan_hash(plan),
        reverse=f"{NAME}.py" if backward else f"{NAME}_backward.py",
        source_placements=placements(reshard.source, plan.exchange.source),
        target_placements=placements(reshard.target, plan.exchange.target),
        source_mesh_shape=repr(tuple(size for _, size in reshard.source.mesh.axes)),
        target_mesh_shape=repr(tuple(size for _, size in reshard.target.mesh.axes)),
    )
    module = module_text(plan, command, TRITON, TESTED, jit=True)
    return TritonText(module, _kernel_text(plan, module), host)


def _kernel_text(plan: DirectPlan, module: ModuleText) -> TritonKernel:
    exchange, itemsize = as_vectors(plan.exchange), module.itemsize
    axes = range(len(module.axes))
    moves = Moves(exchange, itemsize)
    rows = Rows(moves, _widest_shard(exchange) * itemsize >= WIDE_BYTES)
    counted = any(count != 1 for _, count in _met(exchange))
    numbered = counted or exchange.rule.pieces > 1
    return TritonKernel(
        dims=tuple(DimText(axis, exchange.dims[axis].source.parts > 1) for axis in axes),
        groups=tuple(GroupText(group[0], repr(group)) for group in moves.groups),
        groups_text=repr(moves.groups),
        moves=moves,
        rows=rows,
        block=repr(moves.block),
        aligned=repr((moves.unit_elements, moves.lanes, *moves.blocks(moves.unit_elements))),
        unaligned=repr((1, 1, *moves.blocks(1))),
        pieces=exchange.rule.pieces,
        cut_axis=exchange.rule.cut,
        replicas=exchange.target.replicas,
        some_local=_some_local(plan),
        entry=FIELDS + 3 * len(rows.outer),
        unpack_pull_program=rows.program if numbered else rows.program[:1],
        choose_comment=TURNS if counted else ("# The one source shard that it meets.",),
        unpack=Unpackings.of(len(axes)),
        unpack_own=_unpack_own(exchange, _some_local(plan)),
        choose_shard=_choose_shard(exchange),
        shard_args=", ".join(f"a{k}" for k in axes),
        source_multiple="LANES * UNIT" + (f" * {itemsize}" if itemsize > 1 else ""),
    )


def plan_hash(plan: DirectPlan) -> str:
    """Return a text that two plans share only if they move the same; ranks compare it."""
    reshard = plan.reshard
    ids = tuple(tuple(side.mesh.device_ids) for side in (reshard.source, reshard.target))
    said = repr((reshard, ids, plan.strategy, plan.exchange.rule))
    return hashlib.sha256(said.encode()).hexdigest()[:16]


def _unpack_own(exchange: Exchange, some_local: bool) -> tuple[str, ...]:
    """Return lines that find the source shard of this device; none where nothing needs it."""
    counted = any(count != 1 for _, count in _met(exchange))
    if not counted and not some_local:
        return ()
    names = [f"own{axis}" for axis in range(len(exchange.dims))]
    return unpacked(names, "source_shard(tl.where(me >= 0, me, receiver))")


def _choose_shard(exchange: Exchange) -> tuple[str, ...]:
    """Return lines that take the index of the source shard off the number of a tile, minor to
    major.

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
    """Return, for each dimension, the first and the count that `senders` returns."""
    (senders,) = (f for f in exchange.once(index_functions) if f.name == "senders")
    return tuple(zip(senders.results[::2], senders.results[1::2], strict=True))


def _some_local(plan: DirectPlan) -> bool:
    """Return whether any device holds part of its own target shard."""
    return plan.traffic.received_total < plan.target_bytes


def _widest_shard(exchange: Exchange) -> int:
    """Return elements of the largest shard on either side."""
    sides = (exchange.source, exchange.target)
    return max(math.prod(dim.size for dim in layout.dims) for layout in sides)
