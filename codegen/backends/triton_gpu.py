"""The Triton module: one pull kernel a device, a program for each block of a tile."""

from __future__ import annotations

import math
from dataclasses import dataclass

from shardwright.codegen.backends.widths import refuse_wide
from shardwright.codegen.module import ModuleText, as_vectors, module_text, refuse_common
from shardwright.codegen.render import render as render_template
from shardwright.codegen.render import unpacked
from shardwright.ir.exchange import Exchange
from shardwright.ir.plan import Plan
from shardwright.ir.printers import TRITON

# Elements a program copies at most, and columns of its block: a row of 1024 elements is long
# enough to be read in full sectors, and 2048 elements leave several blocks a multiprocessor.
BLOCK_ELEMENTS = 2048
BLOCK_COLUMNS = 1024
# From this many bytes in a shard, offsets are computed in 64 bits.
WIDE_BYTES = 2**31


@dataclass(frozen=True)
class DimText:
    """One tensor dimension as the kernel's text needs it; `modulo` picks its digit of a number."""

    axis: int
    block: int
    modulo_count: str
    split: bool
    may_be_empty: bool


@dataclass(frozen=True)
class TritonText(ModuleText):
    """Everything the template prints."""

    dims: tuple[DimText, ...]
    blocks: int
    pieces: int
    cut_axis: int
    replicas: int
    some_local: bool
    wide: bool
    unpack_senders: tuple[str, ...]
    unpack_target: tuple[str, ...]
    unpack_tile: tuple[str, ...]
    unpack_own: tuple[str, ...]
    unpack_from: tuple[str, ...]
    unpack_to: tuple[str, ...]
    shard_args: str
    torch_element: str
    triton_element: str
    elements: int

    jit: bool = True
    tested: str = "Tested with triton 3.9.0 and torch 2.13.0."

    @property
    def piece_arg(self) -> str:
        """How a call names the piece, where tiles are cut."""
        return ", piece" if self.pieces > 1 else ""

    @property
    def block_text(self) -> str:
        """The block's shape as a tuple."""
        return repr(tuple(dim.block for dim in self.dims))

    @property
    def first_read(self) -> str:
        """The start of a block along the first dimension of the source shard."""
        return "(at0 - from0).to(tl.int64)" if self.wide else "at0 - from0"

    @property
    def first_write(self) -> str:
        """The start of a block along the first dimension of the target shard."""
        return "(at0 - to0).to(tl.int64)" if self.wide else "at0 - to0"

    @property
    def row_axis(self) -> int | None:
        """The dimension of a block's rows; None for vectors."""
        return self.dims[-2].axis if len(self.dims) > 1 else None

    @property
    def column_axis(self) -> int:
        """The dimension of a block's columns, contiguous in memory."""
        return self.dims[-1].axis

    @property
    def blocked(self) -> tuple[DimText, ...]:
        """The dimensions a program's block spans: the last two."""
        return self.dims[-2:]

    @property
    def minor_to_major(self) -> tuple[DimText, ...]:
        """The dimensions, the fastest varying first."""
        return tuple(reversed(self.dims))


def refuse(plan: Plan) -> None:
    """Raises InputError for what this backend does not do."""
    refuse_common(plan, "triton_gpu", {})
    refuse_wide(plan, as_vectors(plan.exchange), "triton_gpu")


def render(plan: Plan, command: str) -> str:
    """The text of `triton_gpu.py`."""
    return render_template("triton_gpu.py.jinja", triton_text(plan, command))


def triton_text(plan: Plan, command: str) -> TritonText:
    """The template's context."""
    exchange = as_vectors(plan.exchange)
    common = module_text(plan, command, TRITON)
    axes = range(len(common.axes))
    bits = 8 * common.itemsize
    return TritonText(
        **vars(common),
        dims=_dims(exchange),
        blocks=_blocks(exchange),
        pieces=exchange.rule.pieces,
        cut_axis=exchange.rule.cut,
        replicas=exchange.target.replicas,
        some_local=_some_local(plan),
        wide=_widest_shard(exchange) * common.itemsize >= WIDE_BYTES,
        unpack_senders=unpacked(
            [f"{n}{k}" for k in axes for n in ("first", "count")], "senders(receiver)"
        ),
        unpack_target=unpacked([f"b{k}" for k in axes], "target_shard(receiver)"),
        unpack_tile=unpacked(
            [f"{n}{k}" for k in axes for n in ("lo", "hi")],
            f"tile({', '.join([f'a{k}' for k in axes] + [f'b{k}' for k in axes])})",
        ),
        unpack_own=unpacked([f"own{k}" for k in axes], "source_shard(me)"),
        unpack_from=unpacked(
            [f"{n}{k}" for k in axes for n in ("from", "from_end")],
            f"source_range({', '.join(f'a{k}' for k in axes)})",
        ),
        unpack_to=unpacked(
            [f"{n}{k}" for k in axes for n in ("to", "to_end")], "target_box(receiver)"
        ),
        shard_args=", ".join(f"a{k}" for k in axes),
        torch_element="torch.uint8" if bits == 8 else f"torch.int{bits}",
        triton_element="tl.uint8" if bits == 8 else f"tl.int{bits}",
        elements=math.prod(plan.reshard.shape),
    )


def block_shape(widest: tuple[int, ...]) -> tuple[int, ...]:
    """The block of a program for tiles of at most these extents: powers of two over the last two
    dimensions, as many columns as fit first; one index of every other dimension."""
    columns = min(_power_of_two(widest[-1]), BLOCK_COLUMNS)
    if len(widest) == 1:
        return (columns,)
    rows = min(_power_of_two(widest[-2]), BLOCK_ELEMENTS // columns)
    return (*(1 for _ in widest[:-2]), rows, columns)


def _power_of_two(extent: int) -> int:
    return 1 << (extent - 1).bit_length()


def _widest(exchange: Exchange) -> tuple[int, ...]:
    return tuple(tiles.max_width for tiles in exchange.dims)


def _dims(exchange: Exchange) -> tuple[DimText, ...]:
    block = block_shape(_widest(exchange))
    cut = exchange.rule.cut if exchange.rule.pieces > 1 else None
    return tuple(
        DimText(
            axis=axis,
            block=block[axis],
            modulo_count=f" % count{axis}" if axis else "",
            split=tiles.source.parts > 1,
            may_be_empty=axis == cut or not tiles.is_flat,
        )
        for axis, tiles in enumerate(exchange.dims)
    )


def _blocks(exchange: Exchange) -> int:
    """Blocks of the largest tile that can occur."""
    widest = _widest(exchange)
    return math.prod(-(-w // b) for w, b in zip(widest, block_shape(widest), strict=True))


def _some_local(plan: Plan) -> bool:
    """Whether any device holds part of its own target shard."""
    return plan.traffic.received_total < plan.target_bytes


def _widest_shard(exchange: Exchange) -> int:
    """Elements of the largest shard on either side."""
    sides = (exchange.source, exchange.target)
    return max(math.prod(dim.size for dim in layout.dims) for layout in sides)
