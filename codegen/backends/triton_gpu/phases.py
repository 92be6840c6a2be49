"""The exchanges of a module, with their kernels. A module has either one exchange, or two: the
first reduces terms to parts, the second copies the parts."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from shardwright.codegen.backends.triton_gpu.kernel import Kernel
from shardwright.codegen.backends.triton_gpu.kernel_text import PullText, PushText
from shardwright.codegen.backends.triton_gpu.pushed import PushKernel
from shardwright.codegen.backends.triton_gpu.rows import Moves, together
from shardwright.codegen.moves.holders import Loads
from shardwright.codegen.text.context import as_vectors
from shardwright.codegen.text.python_text import called
from shardwright.ir.dtypes import DTYPES
from shardwright.ir.exchange import Exchange, ids_of
from shardwright.ir.layout import DimLayout
from shardwright.ir.plan import Plan, SteppedPlan, direct_of
from shardwright.ir.steps import MoveStep

BOTH = "BOTH"
"""The module's constant for ("source", "target")."""

# Kernels compute offsets in 64 bits if a shard has at least this many bytes.
WIDE_BYTES = 2**31


@dataclass(frozen=True)
class Names:
    """The module's names for an exchange's functions and constants, and its words for both
    sides."""

    senders: str = "senders"
    receivers: str = "receivers"
    kernel: str = "pull_kernel"
    exchange: str = "EXCHANGE"
    tiles: str = "TILES"
    source: str = "source shard"
    target: str = "target shard"
    title: str = 'f"{SOURCE} -> {TARGET}"'
    sent: str = "the parts of a target shard"
    kept: str = "the parts of a source shard"


NAMES = {
    1: (Names(),),
    2: (
        Names(target="part", title='f"{SOURCE} -> {PARTS}"', sent="the terms of a part"),
        Names(
            "part_senders",
            "part_receivers",
            "gather_kernel",
            "GATHER",
            "GATHER_TILES",
            source="part",
            title='f"{PARTS} -> {TARGET}"',
            kept="a part",
        ),
    ),
}
"""The names for each exchange of a module, by the number of exchanges."""


@dataclass(frozen=True)
class PullPhase:
    """An exchange with its kernel. `ends`: the expressions for its source and target in the module;
    `push`: the pushing kernel for the same tiles, if any."""

    names: Names
    kernel: Kernel
    ends: tuple[str, str]
    push: PushKernel | None = None

    @property
    def kernels(self) -> tuple[tuple[str, PullText | PushText], ...]:
        name = "reduce" if self.kernel.reduces else "pull"
        found: list[tuple[str, PullText | PushText]] = [(name, self.kernel.text)]
        found += [("push", self.push.text)] if self.push else []
        return tuple((f"triton_gpu/{name}.py.jinja", text) for name, text in found)

    @property
    def imported(self) -> set[str]:
        if self.kernel.reduces:
            return {"rows_at", "read_once"}
        return {self.kernel.copy}

    @property
    def exchange(self) -> Exchange:
        return self.kernel.exchange

    @property
    def in_place(self) -> tuple[str, ...]:
        """The sides ("source", "target") on which tiles are not packed. See the function
        `in_place`."""
        return self.exchange.once(in_place)

    @property
    def together(self) -> str:
        """The sides on which tiles are not packed, as an expression."""
        return BOTH if len(self.in_place) == 2 else str(self.in_place).replace("'", '"')

    @property
    def listed(self) -> str:
        """The support class that describes the exchange."""
        return "CutExchange" if self.exchange.rule.pieces > 1 else "Exchange"

    @cached_property
    def constants(self) -> list[str]:
        moves, rule = self.kernel.moves, self.exchange.rule
        given = [*self.ends, self.names.senders, self.names.receivers]
        if rule.pieces > 1:
            given.append(f"Cut({rule.pieces}, {rule.cut}, {rule.unit})")
        if self.kernel.hidden:
            hidden = (dim.target.extent for dim in self.exchange.dims[: self.kernel.hidden])
            given.append(f"hidden={tuple(hidden)}")
        if self.exchange.new:
            given.append(f"new={self.exchange.new}")
        rows, columns = moves.block
        tiles = [
            f"number={self.kernel.tiles}",
            f"width={moves.unit_elements}",
            f"lanes={moves.lanes}",
            f"rows={rows}",
            f"columns={columns}",
            f"largest={_largest(moves)!r}",
            *(["ends=True"] if moves.has_ends else []),
            *([f"together={self.together}"] if self.in_place else []),
        ]
        return [
            *called(f"{self.names.exchange} = {self.listed}", given),
            *called(f"{self.names.tiles} = Tiles", tiles),
        ]

    def host(self, more: list[str]) -> tuple[str, list[str]]:
        """Return the class of the object that moves shards, and its arguments; `more`: additional
        keyword arguments."""
        operator = self.exchange.operator or "sum"
        names = self.names
        given = ["SHAPE", "DTYPE", "PLAN", names.title]
        given += [names.exchange, names.kernel, names.tiles]
        given += [f'operator="{operator}"'] if operator != "sum" else []
        return "Reduction" if self.kernel.reduces else "Reshard", [*given, *more]


def exchanges_of(plan: Plan) -> tuple[Exchange, ...]:
    """Return the exchanges of a plan in order, each with at least one tensor dimension.

    Raises InputError for a plan that is not direct.
    """
    if isinstance(plan, SteppedPlan) and plan.strategy == "direct":
        return tuple(_vectors(step.exchange) for step in plan.steps if isinstance(step, MoveStep))
    return (_vectors(direct_of(plan).exchange),)


def phases_of(plan: Plan) -> tuple[PullPhase, ...]:
    """Return the exchanges of a direct plan in order, with their kernels. Raises InputError for a
    plan that is not direct."""
    exchanges, dtype = exchanges_of(plan), plan.reshard.dtype
    box = f"lambda position: (0, {exchanges[0].terms}, *part_box(position))"
    ends = [("Side(SOURCE_IDS, source_box)", "Side(TARGET_IDS, target_box)")]
    if len(exchanges) > 1:
        ends = [
            ("Side(SOURCE_IDS, source_box)", f"Side(TARGET_IDS, {box})"),
            ("Side(TARGET_IDS, part_box)", "Side(TARGET_IDS, target_box)"),
        ]
    return tuple(
        PullPhase(names, _kernel(exchange, dtype), sides)
        for names, exchange, sides in zip(NAMES[len(exchanges)], exchanges, ends, strict=True)
    )


def in_place(exchange: Exchange) -> tuple[str, ...]:
    """Return the sides ("source", "target") on which an exchange does not pack tiles, because each
    tile is contiguous in its shard.

    Return no side if any device neither sends nor receives. Tiles are then exchanged by
    `all_to_all_single`, in which that device takes part; otherwise it would not learn of another
    device's failure, and NCCL might wait for it.
    """
    loads = Loads(exchange.source, exchange.target, exchange)
    busy = [
        ids_of(layout.mesh)[elements > 0]
        for layout, elements in (
            (exchange.source, loads.sent(exchange.rule)),
            (exchange.target, loads.received()),
        )
    ]
    return together(exchange) if np.isin(exchange.ranks, np.concatenate(busy)).all() else ()


def _kernel(exchange: Exchange, dtype: str) -> Kernel:
    itemsize = DTYPES[dtype]
    return Kernel(
        moves=Moves(exchange, itemsize),
        some_local=exchange.once(_some_local),
        wide=_widest_shard(exchange) * itemsize >= WIDE_BYTES,
        dtype=dtype,
    )


def _some_local(exchange: Exchange) -> bool:
    loads = Loads(exchange.source, exchange.target, exchange)
    return bool((loads.held_widths > 0).all(axis=1).any())


def _vectors(exchange: Exchange) -> Exchange:
    if len(exchange.dims) > exchange.source.hidden:
        return exchange
    return exchange.once(_as_vector_of_terms) if exchange.dims else as_vectors(exchange)


def _as_vector_of_terms(exchange: Exchange) -> Exchange:
    one = (DimLayout(1, ()),)
    sides = exchange.source, exchange.target
    source, target = (replace(side, dims=side.dims + one) for side in sides)
    return replace(exchange, source=source, target=target)


def _widest_shard(exchange: Exchange) -> int:
    hidden = exchange.source.hidden
    sides = (exchange.source, exchange.target)
    return max(math.prod(dim.size for dim in layout.dims[hidden:]) for layout in sides)


def _largest(moves: Moves) -> tuple[int, ...]:
    """Return the extents of the largest tile along each group of dimensions, the last two being the
    number of its rows and their length."""
    return moves.widest if len(moves.widest) > 1 else (1, *moves.widest)
