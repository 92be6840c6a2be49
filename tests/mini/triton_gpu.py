"""A pull kernel for one fixed reshard: 5x4 float32, rows over two devices to columns."""

from collections.abc import Callable
from typing import ClassVar, NamedTuple

import torch
import triton
import triton.language as tl

__all__ = ["reshard_local", "source_shape", "target_shape"]

SHAPE = (5, 4)
DTYPE = "float32"
PLAN = "0"
SOURCE_MESH = '<["x"=2]>'
TARGET_MESH = '<["x"=2]>'
SOURCE = '[{"x"}, {}]'
TARGET = '[{}, {"x"}]'
LOCAL_SOURCE_SHAPE = (3, 4)
LOCAL_TARGET_SHAPE = (5, 2)


def source_box(position):
    """Tensor ranges of the source shard."""
    return position * 3, min(position * 3 + 3, 5), 0, 4


def target_box(position):
    """Tensor ranges of the target shard."""
    return 0, 5, position * 2, position * 2 + 2


def source_shape(device):
    """The local shape of a device's source shard."""
    return (3, 4) if device == 0 else (2, 4)


def target_shape(device):
    """The local shape of a device's target shard."""
    return (5, 2)


class Piece(NamedTuple):
    """What a device sends to another: their positions, and the tensor ranges."""

    sender: int
    receiver: int
    box: tuple
    number: None = None


class Side(NamedTuple):
    """Device ids by position, and the box of the shard at a position."""

    ids: range
    box: Callable


class Exchange:
    """What moves, as each end knows it."""

    hidden, cut = (), None
    source = Side(range(2), lambda position: source_box(position))
    target = Side(range(2), lambda position: target_box(position))

    def incoming(self, receiver):
        """The pieces of a target shard."""
        _, _, low, high = target_box(receiver)
        return [Piece(s, receiver, (*source_box(s)[:2], low, high)) for s in range(2)]

    def outgoing(self, sender):
        """The pieces of a source shard."""
        low, high, _, _ = source_box(sender)
        return [Piece(sender, r, (low, high, *target_box(r)[2:])) for r in range(2)]


@triton.jit
def shard_at(peers, position, out, block):
    """The source shard at a position."""
    return tl.load(peers + position).to(tl.pointer_type(tl.float32))


@triton.jit
def copy_rows(source, target, read, write, rows, columns, read_row, write_row, block):
    """Copy all rows: the only block."""
    row = tl.arange(0, 4)[:, None]
    column = tl.arange(0, 2)[None, :]
    mask = (row < rows) & (column < columns)
    tile = tl.load(source + read + row * read_row + column, mask=mask)
    tl.store(target + write + row * write_row + column, tile, mask=mask)


@triton.jit
def pull(peers, out, position, BLOCK: tl.constexpr):  # noqa: N803
    """Copy the tile that each peer, this device first, holds of this device's columns."""
    peer = (tl.program_id(0) + position) % 2
    copy_rows(
        shard_at(peers, peer, out, BLOCK),
        out,
        read=position * 2,
        write=peer * 6,
        rows=min(3, 5 - peer * 3),
        columns=2,
        read_row=4,
        write_row=2,
        block=0,
    )


class Block(NamedTuple):
    """What a program copies, in units."""

    width: int
    lanes: int
    number: int


class Tiles:
    """How the kernel is launched."""

    number, largest, ends, together = 2, (3, 2), False, ()

    def block(self, start=None):
        """What else it is given: units of one element, one of them at a time."""
        return Block(width=1, lanes=1, number=2)


class Host:
    """What knows what moves, and how."""

    exchange, kernel, tiles = Exchange(), pull, Tiles()
    reduces = False
    features: ClassVar[dict[str, object]] = {}

    @property
    def phases(self):
        """The exchanges, of which there is one."""
        return (self,)

    def places(self, device):
        """The positions that the kernel is launched with."""
        return [device]


_HOST = Host()


reshard = None  # one address space is all it is for


def reshard_local(shards, programs=None):
    """All shards in one address space, by device id; a program a tile always."""
    peers = torch.tensor([shard.data_ptr() for shard in shards])
    outputs = [torch.empty(5, 2, dtype=torch.float32) for _ in shards]
    for position, out in enumerate(outputs):
        pull[(2,)](peers, out, position, Tiles().block())
    return outputs
