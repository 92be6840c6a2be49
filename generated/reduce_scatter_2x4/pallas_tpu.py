"""Reshards bfloat16[64, 48] over 8 devices: [{}, {"model"}], unreduced={"data"} -> [{"data"},
    {"model"}].

Source: [{}, {"model"}], unreduced={"data"} on <["data"=4, "model"=2]>, shards of 64 x 24.
    d1(data, model)[k0, k1] -> t[k0, model * 24 + k1]
Target: [{"data"}, {"model"}] on <["data"=4, "model"=2]>, shards of 16 x 24.
    d2(data, model)[k0, k1] -> t[data * 16 + k0, model * 24 + k1]

Along dimension 0, shards of 64 meet shards of 16: one of the source for one of the target.
Along dimension 1, shards of 24 meet shards of 24: one of the source for one of the target.
A value has 4 terms, along "data". A receiver adds them up in the order of their coordinates, as
    float32 that is rounded once.
Bytes of the busiest device: 2304 in, 2304 out, the least possible; 18432 in all.

    device  before              after                receives
    0       [0, 64) x [0, 24)   [0, 16) x [0, 24)    [0, 16) x [0, 24) from 2, 4, 6
    1       [0, 64) x [24, 48)  [0, 16) x [24, 48)   [0, 16) x [24, 48) from 3, 5, 7
    2       [0, 64) x [0, 24)   [16, 32) x [0, 24)   [16, 32) x [0, 24) from 0, 4, 6
    3       [0, 64) x [24, 48)  [16, 32) x [24, 48)  [16, 32) x [24, 48) from 1, 5, 7
    4       [0, 64) x [0, 24)   [32, 48) x [0, 24)   [32, 48) x [0, 24) from 0, 2, 6
    5       [0, 64) x [24, 48)  [32, 48) x [24, 48)  [32, 48) x [24, 48) from 1, 3, 7
    6       [0, 64) x [0, 24)   [48, 64) x [0, 24)   [48, 64) x [0, 24) from 0, 2, 4
    7       [0, 64) x [24, 48)  [48, 64) x [24, 48)  [48, 64) x [24, 48) from 1, 3, 5

Form: windows; chunks of tiles are shifted in VMEM, and put together from a staging area.
On the wire 5.333 times the exact bytes, 12,288 into the busiest device.
HBM reads and writes 7.17 times the least possible.
Where shards lie in memory as XLA lays them out by default: 3.67 times more.
Then XLA reduces: it reads 4 terms of a target shard, and writes it.
Staging 16,384 bytes of HBM, 73,728 of VMEM.

Made by
    shardwright emit --mesh data=4,model=2 --shape 64x48 --dtype bfloat16 --source '[{}, {"model"}], unreduced={"data"}' --target '[{"data"}, {"model"}]' --name reduce_scatter_2x4
"""

import os

if not __package__:
    raise ImportError("part of a package: above FOLDER, run `python -m FOLDER.NAME.pallas_tpu`")
if __name__ == "__main__":  # on one device more than there are, for the interpreter
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=9")

from jax.sharding import PartitionSpec as P

from .._support import absent, require
from .._support.jax_host import OneOrder
from .._support.jax_meshes import Sharded
from .._support.jax_program import Terms
from .._support.pallas_peers import div, maximum, minimum, rem
from .._support.pallas_pieces import Forms, Peers
from .._support.pallas_terms import ReducedTerms, Stacked
from .._support.pallas_windows import Tiling, Windows

require("pallas_tpu", "936fbc8de82eccb1", __name__)

__getattr__ = absent(__name__)
__all__ = ["pad", "reshard", "source_sharding", "target_sharding", "unpad"]
__all__ += ["source_shape", "target_shape"]

SHAPE = (64, 48)
DTYPE = "bfloat16"
SOURCE_MESH = TARGET_MESH = '<["data"=4, "model"=2]>'
SOURCE = '[{}, {"model"}], unreduced={"data"}'
TARGET = '[{"data"}, {"model"}]'
LOCAL_SOURCE_SHAPE = (1, 64, 24)
LOCAL_TARGET_SHAPE = (16, 24)
SOURCE_IDS = TARGET_IDS = range(8)  # by mesh position
PLAN = "a5afa9e5d6b5a1a4"  # processes that exchange must have the same
SOURCE_AXES = TARGET_AXES = (("data", 4), ("model", 2))
# Every shard padded at its end to the largest: the shapes of the global arrays.
PADDED_SOURCE_SHAPE = (4, 64, 48)
PADDED_TARGET_SHAPE = SHAPE
WIRE_BYTES = 12288  # that arrive at the busiest device, padding included
COLLECTIVE_ID = 9176


def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    lo0 = div(position, 2)
    lo2 = rem(position, 2) * 24
    return lo0, lo0 + 1, 0, 64, lo2, lo2 + 24


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    lo0 = div(position, 2) * 16
    lo1 = rem(position, 2) * 24
    return lo0, lo0 + 16, lo1, lo1 + 24


def source_shard(position):
    """Index of the source shard, per dimension, at a position of the source mesh."""
    return div(position, 2), 0, rem(position, 2)


def target_shard(position):
    """Index of the target shard, per dimension, at a position of the target mesh."""
    return 0, div(position, 2), rem(position, 2)


def target_terms(position):
    """Ranges (low, high) of terms, then of the tensor, of the target shard at a position."""
    lo1 = div(position, 2) * 16
    lo2 = rem(position, 2) * 24
    return 0, 4, lo1, lo1 + 16, lo2, lo2 + 24


def tile(a0, a1, a2, b0, b1, b2):
    """Tensor range shared by a source shard and a target shard; empty where low >= high."""
    target_lo1 = b1 * 16
    source_lo2 = a2 * 24
    target_lo2 = b2 * 24
    return (
        a0,
        a0 + 1,
        target_lo1,
        target_lo1 + 16,
        maximum(source_lo2, target_lo2),
        minimum(source_lo2 + 24, target_lo2 + 24),
    )


def senders(position):
    """First and count, per dimension, of the source shards that meet a target shard."""
    first2 = rem(position, 2)
    return 0, 4, 0, 1, first2, 1


def receivers(position):
    """First and count, per dimension, of the target shards that meet a source shard."""
    first2 = rem(position, 2)
    return 0, 1, 0, 4, first2, 1


def target_position(b0, b1, b2, replica):
    """Position, in the target mesh, of a replica of a target shard."""
    return b1 * 2 + b2


def holder(a0, a1, a2, receiver):
    """Position, in the source mesh, of the holder that sends a piece of a tile to a receiver."""
    return a0 * 2 + a2


def source_at(i0, i1, i2):
    """Index of the source shard, per dimension, that holds an element of the tensor."""
    return i0, 0, div(i2, 24)


_SOURCE = Sharded(
    SOURCE_IDS, source_box, PADDED_SOURCE_SHAPE, SOURCE_AXES, P("data", None, "model"), terms=True
)
_TARGET = Sharded(TARGET_IDS, target_box, PADDED_TARGET_SHAPE, TARGET_AXES, P("data", "model"))
# As kernels have them: of a value a source shard has a term, a target all.
SOURCE_TERMS = Stacked(SOURCE_IDS, source_box, (1, 64, 24), SOURCE_AXES, 1)
TARGET_TERMS = Stacked(TARGET_IDS, target_terms, (4, 16, 24), TARGET_AXES, 1)
PEERS = Peers(
    SOURCE_TERMS,
    TARGET_TERMS,
    Forms(source_shard, target_shard, tile, senders, receivers, target_position, holder),
)
# Tiles start and end anywhere: they travel in chunks, each shifted, into a staging area.
# From there every block of the target shard is put together.
TILING = Tiling(
    unit=(1, 8, 128),  # as memory is tiled
    chunk=(1, 16, 128),  # in whole units, of the widest tile, 1 x 16 x 24, or a part of it
    window=(1, 16, 128),  # a unit more where a chunk may begin within one
    blocks=(4, 1, 1),  # ceil(target shard, 4 x 16 x 24 / chunk)
    meet=(1, 1, 1),  # source shards that a block meets at most
    chunks=(1, 1, 1),  # ceil(widest tile, 1 x 16 x 24 / chunk)
    stage=(4, 16, 128),  # tiles lie as in the target shard, each from a whole unit on,
    step=(0, 0, 0),  # and so much further for each tile before it: no two share a unit
)
_CARRIER = Windows(PEERS, (0, 1, 2), TILING, source_at, collective_id=COLLECTIVE_ID)
_PROGRAM = ReducedTerms(_CARRIER, SOURCE_TERMS, TARGET_TERMS, Terms("sum", "sum"), reduces=True)
_HOST = OneOrder(__name__, SHAPE, DTYPE, _SOURCE, _TARGET, _PROGRAM)
reshard, pad, unpad = _HOST.reshard, _HOST.pad, _HOST.unpad
source_shape, target_shape = _SOURCE.shape, _TARGET.shape
source_sharding, target_sharding = _SOURCE.on, _TARGET.on

if __name__ == "__main__":
    print(f"ok: {_HOST.self_check()}")
