"""Prove, at emission, properties of a kernel that neither the interpreter nor the TPU compiler
checks: both accept false hints and windows that extend beyond the padding.

Every tile of every device is a product of pieces along the dimensions (`pieces.py`), and so are its
DMA windows. So a property that holds for every piece of every dimension holds on all devices:

    hints     starts and sizes declared as multiples of a divisor are such multiples
    windows   DMA reads and writes stay inside their buffer in memory
    places    no two tiles of a target shard overlap
    shifts    no tile needs a shift along a dimension that is not rolled
    routes    the rounds bring each offset's data to its place, and overwrite no data still needed
    ends      in the relayed form, every tile is aligned in both shards and starts at a multiple of
              its extents, tiles fill the target shards, and no place of a shard is used twice
    boxes     in the gathered form, every place is an aligned box of the target shard, the same on
              all devices that send to each other, and the boxes fill the target shard
"""

from __future__ import annotations

import numpy as np

from shardwright.codegen.backends.pallas_tpu.direct import Direct
from shardwright.codegen.backends.pallas_tpu.memory import round_up
from shardwright.codegen.backends.pallas_tpu.pieces import Pieces, Sums, covered, cut
from shardwright.codegen.backends.pallas_tpu.routed.gathered import misplaced
from shardwright.codegen.backends.pallas_tpu.routed.grid import sent_tiles
from shardwright.codegen.backends.pallas_tpu.routed.relayed import is_apart, unplaced
from shardwright.codegen.backends.pallas_tpu.routed.schedule import fault
from shardwright.codegen.backends.pallas_tpu.routed.strategy import Routed
from shardwright.codegen.backends.pallas_tpu.slots import Slots
from shardwright.codegen.backends.pallas_tpu.stages import Form
from shardwright.codegen.backends.pallas_tpu.windows import WindowDim, Windows
from shardwright.ir.algebra.index import Integers
from shardwright.ir.errors import InternalError
from shardwright.ir.exchange import Exchange
from shardwright.ir.tiles import DimTiles

VMEM_BYTES = 16 * 2**20
"""The VMEM that a kernel may use by default, in bytes, on every generation."""


def check(form: Form, exchange: Exchange) -> None:
    """Raise InternalError if a form violates any property listed in the module docstring."""
    sums = exchange.once(Sums)
    if isinstance(form, Windows):
        _expect(form.vmem_bytes <= VMEM_BYTES, f"windows take {form.vmem_bytes} bytes of VMEM")
    if isinstance(form, Routed):
        _check_routed(form, exchange)
    for place, axis in enumerate(form.view):
        pieces, tiles = sums.pieces[axis], exchange.dims[axis]
        about = f"{form.name} form, dimension {axis}"
        match form:
            case Direct():
                _check_direct(form.divisors[place], pieces, tiles, about)
            case Windows():
                _check_windows(form.dims[place], form.stage[place], pieces, tiles, about)
            case Slots() | Routed():
                _check_slots(form, axis, pieces, about)


def _check_routed(form: Routed, exchange: Exchange) -> None:
    wrong = fault(form.schedule, form.digits, spreads=form.spreads)
    _expect(not wrong, f"{form.name} form: {wrong}")
    sender, receiver, widths = exchange.once(sent_tiles)
    offsets = np.array(form.schedule.offsets)
    over = form.numbering.offsets(sender, receiver)
    numbers = np.minimum(np.searchsorted(offsets, over), offsets.size - 1)
    known = bool((offsets[numbers] == over).all())
    _expect(known, f"{form.name} form: a tile goes over an offset that has no slot")
    if form.in_place and not form.spreads:
        wrong = unplaced(exchange, form.view, form.itemsize)
        _expect(not wrong, f"{form.name} form: {wrong}")
        _expect(
            is_apart(form.schedule), f"{form.name} form: two tiles use the same place of a shard"
        )
        whole = (widths == form.slot.held).all()
        _expect(whole, f"{form.name} form: a tile is not sent whole")
    if form.in_place and form.spreads:
        wrong = misplaced(form.schedule, form.digits, exchange, form.view, form.itemsize)
        shape = tuple(exchange.source.local_shape[axis] for axis in form.view)
        _expect(not wrong, f"{form.name} form: {wrong}")
        _expect(form.slot.shape == shape, f"{form.name} form: a source shard is not sent whole")
    if not form.spreads:
        fits = form.slot.holds and bool((widths <= form.slot.held).all())
        _expect(fits, f"{form.name} form: the part of a slot that is sent is smaller than a tile")
    mixes = form.schedule.is_shared and form.schedule.mixes()
    _expect(not mixes, f"{form.name} form: one send mixes halves of two tiles")


def _check_direct(divisor: int, pieces: Pieces, tiles: DimTiles, about: str) -> None:
    read, write = pieces.low - pieces.source_low, pieces.low - pieces.target_low
    for values in (read, write, pieces.width):
        _expect(not (values % divisor).any(), f"{about}: not all multiples of {divisor}")
    _inside(read, pieces.width, tiles.source.size, f"{about}, source")
    _inside(write, pieces.width, tiles.target.size, f"{about}, target")
    _apart(pieces.target, write, pieces.width, about)


def _check_windows(dim: WindowDim, stage: int, pieces: Pieces, tiles: DimTiles, about: str) -> None:
    whole = (dim.chunk % dim.unit, dim.window % dim.unit, dim.step % dim.unit, stage % dim.unit)
    _expect(not any(whole), f"{about}: not all multiples of {dim.unit}")
    _expect(dim.chunks * dim.chunk >= int(pieces.width.max()), f"{about}: too few chunks")
    _expect(dim.blocks * dim.chunk >= tiles.target.size, f"{about}: too few blocks")
    into = pieces.low - pieces.target_low
    place = into // dim.unit * dim.unit + pieces.band * dim.step
    taken = covered(0 * place, pieces.width, dim.unit)
    _inside(place, taken, stage, f"{about}, staging area")
    _apart(pieces.target, place, taken, about)
    room = round_up(tiles.source.size, dim.unit)
    _check_cuts(dim, pieces, pieces.low, pieces.source_low, room, f"{about}, sender")
    _check_cuts(dim, pieces, pieces.target_low, pieces.source_low, room, f"{about}, own")
    _check_cuts(dim, pieces, pieces.target_low, pieces.low - place, stage, f"{about}, unpacking")
    _check_meetings(dim, tiles, about)


def _check_cuts(
    dim: WindowDim, pieces: Pieces, origin: Integers, start: Integers, room: int, about: str
) -> None:
    """Check that each part of a piece, cut into chunks from `origin`, fits in the window that
    fetches it, and that the fetch stays inside its buffer of extent `room`; `start`: where in the
    tensor the buffer starts."""
    number, low, high = cut(pieces.low, pieces.high, origin, dim.chunk)
    first = (low - start[number]) // dim.unit * dim.unit
    size = covered(low - start[number], high - start[number], dim.unit)
    _inside(first, size, room, about)
    # Along an untiled dimension, a part is fetched to its final position in the block.
    at = (low - origin[number]) % dim.chunk
    _inside(at if dim.unit == 1 else 0 * at, size, dim.window, f"{about}, window")
    if dim.unit > 1 and not dim.rolled:
        phase = (low - start[number]) % dim.unit
        _expect(bool((phase == at).all()), f"{about}: a tile that must be shifted is not")


def _check_meetings(dim: WindowDim, tiles: DimTiles, about: str) -> None:
    """Check that no block of a target shard overlaps more source shards than the kernel visits."""
    low, high = (
        end[tiles.target.intervals[1] > tiles.target.intervals[0]] for end in tiles.target.intervals
    )
    _, start, end = cut(low, high, low, dim.chunk)
    met = tiles.source.owner(end - 1) - tiles.source.owner(start) + 1
    _expect(
        int(np.max(met)) <= dim.meet,
        f"{about}: a block needs more source shards than the kernel visits",
    )


def _check_slots(form: Slots | Routed, axis: int, pieces: Pieces, about: str) -> None:
    _expect(int(pieces.width.max()) <= form.window[axis], f"{about}: a tile is wider than a slot")
    room = form.target_reach[axis]
    widest = np.full_like(pieces.low, form.window[axis])
    _inside(pieces.low - pieces.target_low, widest, room, f"{about}, unpacking")


def _inside(start: Integers, size: Integers, extent: int, about: str) -> None:
    within = (start >= 0).all() and (size >= 0).all() and (start + size <= extent).all()
    _expect(bool(within), f"{about}: a window reaches beyond {extent}")


def _apart(shard: Integers, start: Integers, size: Integers, about: str) -> None:
    same = shard[1:] == shard[:-1]
    _expect(not (same & (start[:-1] + size[:-1] > start[1:])).any(), f"{about}: two tiles overlap")


def _expect(holds: bool, message: str) -> None:
    if not holds:
        raise InternalError(message)
