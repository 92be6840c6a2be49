"""A pull kernel for one fixed reshard: 5x4 float32, rows over two devices to columns."""

from typing import NamedTuple

import torch
import triton
import triton.language as tl

__all__ = ["reshard_local", "source_shape", "target_shape"]

SHAPE = (5, 4)
DTYPE = "float32"
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


class Exchange:
    """What moves, as each end knows it."""

    def incoming(self, receiver):
        """The pieces of a target shard."""
        _, _, low, high = target_box(receiver)
        return [Piece(s, receiver, (*source_box(s)[:2], low, high)) for s in range(2)]

    def outgoing(self, sender):
        """The pieces of a source shard."""
        low, high, _, _ = source_box(sender)
        return [Piece(sender, r, (low, high, *target_box(r)[2:])) for r in range(2)]


class Host:
    """What knows what moves."""

    exchange = Exchange()


_HOST = Host()


@triton.jit
def pull(peers, out, position):
    """Copy the tile that peer `program_id` holds of this device's columns."""
    peer = tl.program_id(0)
    row, row_end = peer * 3, min(peer * 3 + 3, 5)
    column = position * 2
    shard = tl.load(peers + peer).to(tl.pointer_type(tl.float32))
    rows = tl.arange(0, 4)[:, None]
    columns = tl.arange(0, 2)[None, :]
    mask = rows < row_end - row
    tile = tl.load(shard + rows * 4 + column + columns, mask=mask)
    tl.store(out + (row + rows) * 2 + columns, tile, mask=mask)


def reshard_local(shards):
    """All shards in one address space, by device id."""
    peers = torch.tensor([shard.data_ptr() for shard in shards])
    outputs = [torch.empty(5, 2, dtype=torch.float32) for _ in shards]
    for position, out in enumerate(outputs):
        pull[(2,)](peers, out, position)
    return outputs
