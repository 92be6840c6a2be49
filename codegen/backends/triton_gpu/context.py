"""The Triton module: what is particular to one reshard; the support modules have the rest."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

from shardwright.codegen.backends.base import Request
from shardwright.codegen.backends.int32 import refuse_wide
from shardwright.codegen.backends.peers import Peers
from shardwright.codegen.backends.triton_gpu.kernel import Kernel
from shardwright.codegen.backends.triton_gpu.rows import Moves
from shardwright.codegen.emit.context import (
    ModuleText,
    Said,
    as_vectors,
    refuse_common,
    text_of,
)
from shardwright.codegen.emit.docstring import senders, side_lines, title, traffic_lines
from shardwright.codegen.emit.index_functions import box_functions
from shardwright.codegen.emit.python_text import called, wrapped
from shardwright.codegen.emit.support import version
from shardwright.codegen.emit.table import transfer_table
from shardwright.codegen.emit.templates import render as render_template
from shardwright.ir.algebra.printers import PYTHON
from shardwright.ir.dtypes import DTYPES
from shardwright.ir.exchange import Exchange
from shardwright.ir.layout import Layout
from shardwright.ir.mesh import AxisRef
from shardwright.ir.plan import DirectPlan, Plan, direct_of
from shardwright.ir.sharding import Sharding

NAME = "triton_gpu"
# The self-check moves no more elements than these: FEW in templates/support/torch_check.py.
MOST_MOVED = 2**18
# From this many bytes in a shard, offsets are computed in 64 bits.
WIDE_BYTES = 2**31


@dataclass(frozen=True)
class DTensorText:
    """A reshard in the words of DTensor: placements of both sides, the shapes of both meshes."""

    before: str
    after: str
    shapes: str
    source: str
    target: str


@dataclass(frozen=True)
class TritonText:
    """Everything the template prints."""

    support: str
    module: ModuleText
    plan: str
    peers: Peers
    kernel: Kernel
    host: tuple[str, ...]
    dtensor: DTensorText | None
    elements: int

    @property
    def self_check(self) -> str:
        """What the self-check of the module sees of it."""
        if self.elements > MOST_MOVED:
            return "of boxes and peers; the tensor is too large for more"
        return "of boxes and peers; then moved"

    @property
    def box_names(self) -> str:
        """What the module imports of boxes."""
        names = ["Exchange", "Side"]
        return ", ".join(["Cut", *names] if self.kernel.exchange.rule.pieces > 1 else names)


def refuse(plan: Plan) -> None:
    """Raise InputError for what this backend does not do."""
    refuse_common(plan, NAME, {})
    refuse_wide(plan, as_vectors(direct_of(plan).exchange), NAME)


def render(request: Request) -> str:
    """Return the text of a module; it and its backward name each other."""
    return render_template("triton_gpu/module.py.jinja", _module(request))


def _module(request: Request) -> TritonText:
    plan, reshard = direct_of(request.plan), request.plan.reshard
    exchange, itemsize = as_vectors(plan.exchange), DTYPES[reshard.dtype]
    kernel = Kernel(
        moves=Moves(exchange, itemsize),
        some_local=plan.traffic.received_total < plan.target_bytes,
        wide=_widest_shard(exchange) * itemsize >= WIDE_BYTES,
    )
    said = Said(title(plan), tuple(_facts(plan, kernel)))
    functions = exchange.once(box_functions)
    module = text_of(plan, request.command, PYTHON, functions, said, plan.exchange)
    return TritonText(
        support=version(NAME),
        module=module,
        plan=plan_hash(plan),
        peers=Peers(kernel),
        kernel=kernel,
        host=_host(request, kernel),
        dtensor=_dtensor(plan),
        elements=math.prod(reshard.shape),
    )


def _facts(plan: DirectPlan, kernel: Kernel) -> list[str]:
    """Return lines that state layouts, tiles, traffic and who sends what to whom."""
    exchange = plan.exchange
    met = [_met(axis, kernel) for axis in range(len(exchange.dims))]
    said = [
        *side_lines("Source", "d1", str(plan.reshard.source), exchange.source, "dense"),
        *side_lines("Target", "d2", str(plan.reshard.target), exchange.target, "dense"),
        "",
        *(line for line in met if line),
        *senders(exchange),
        *traffic_lines(plan),
    ]
    return [*(part for line in said for part in wrapped(line)), *transfer_table(plan)]


def _met(axis: int, kernel: Kernel) -> str:
    """Return how shards meet along a dimension, empty where neither side splits it."""
    dim = kernel.exchange.dims[axis]
    if max(dim.source.parts, dim.target.parts) == 1:
        return ""
    sizes = f"shards of {dim.source.size} meet shards of {dim.target.size}"
    met = f"{kernel.meets(axis)} of the source for one of the target"
    return f"Along dimension {axis}, {sizes}: {met}."


def _host(request: Request, kernel: Kernel) -> tuple[str, ...]:
    """Return the lines that make the object that moves shards."""
    moves, exchange = kernel.moves, kernel.exchange
    rule = exchange.rule
    ends = ["Side(SOURCE_IDS, source_box)", "Side(TARGET_IDS, target_box)", "senders", "receivers"]
    cut = [f"Cut({rule.pieces}, {rule.cut}, {rule.unit})"] if rule.pieces > 1 else []
    rows, columns = moves.block
    tiles = [
        f"number={kernel.tiles}",
        f"width={moves.unit_elements}",
        f"lanes={moves.lanes}",
        f"rows={rows}",
        f"columns={columns}",
        f"largest={_largest(moves)!r}",
        *(["ends=True"] if moves.form == "mixed" else []),
    ]
    back = NAME if request.backward else f"{NAME}_backward"
    host = ["__package__", "SHAPE", "DTYPE", "PLAN", 'f"{SOURCE} -> {TARGET}"']
    host += ["EXCHANGE", "pull_kernel", "TILES"]
    host += [f'backward="{back}"'] if request.derivative else []
    return (
        *called("EXCHANGE = Exchange", [*ends, *cut]),
        *called("TILES = Tiles", tiles),
        *called("_HOST = Reshard", host),
    )


def _largest(moves: Moves) -> tuple[int, ...]:
    """Return the extents of the largest tile along each group of dimensions, with rows."""
    return moves.widest if len(moves.widest) > 1 else (1, *moves.widest)


def _dtensor(plan: DirectPlan) -> DTensorText | None:
    """Return both sides as placements, where DTensor has words for both."""
    reshard, exchange = plan.reshard, plan.exchange
    before = placements(reshard.source, exchange.source)
    after = placements(reshard.target, exchange.target)
    if before is None or after is None:
        return None
    shapes = tuple(
        tuple(size for _, size in side.mesh.axes) for side in (reshard.source, reshard.target)
    )
    return DTensorText(repr(before), repr(after), repr(shapes), _listed(before), _listed(after))


def placements(sharding: Sharding, layout: Layout) -> tuple[int | None, ...] | None:
    """Return, for each mesh axis, the dimension that it splits, None where it replicates; None
    where DTensor has no words.

    It splits a dimension over whole axes, in the order of the mesh, chunk by chunk: what is split
    over several axes and does not divide is split as `nested`.
    """
    names = list(sharding.mesh.names)
    placed: list[int | None] = [None] * len(names)
    for number, (dim, split) in enumerate(zip(sharding.dims, layout.dims, strict=True)):
        order = [names.index(ref.name) for ref in dim.axes if ref == AxisRef(ref.name)]
        if len(order) < len(dim.axes) or order != sorted(order):
            return None
        if len(order) > 1 and split.is_flat and not split.is_even:
            return None
        for axis in order:
            placed[axis] = number
    return tuple(placed) or None


def _listed(placements: tuple[int | None, ...]) -> str:
    """Return `(Shard(0), Replicate())`."""
    placed = ["Replicate()" if dim is None else f"Shard({dim})" for dim in placements]
    return f"({', '.join(placed)})" if len(placed) > 1 else f"({placed[0]},)"


def plan_hash(plan: DirectPlan) -> str:
    """Return a text that two plans share only if they move the same; ranks compare it."""
    reshard = plan.reshard
    ids = tuple(tuple(side.mesh.device_ids) for side in (reshard.source, reshard.target))
    said = repr((reshard, ids, plan.strategy, plan.exchange.rule))
    return hashlib.sha256(said.encode()).hexdigest()[:16]


def _widest_shard(exchange: Exchange) -> int:
    """Return elements of the largest shard on either side."""
    sides = (exchange.source, exchange.target)
    return max(math.prod(dim.size for dim in layout.dims) for layout in sides)
