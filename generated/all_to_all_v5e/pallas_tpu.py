"""Reshards float32[200, 200] over 8 devices: [{"x", "y"}, {}] -> [{}, {"x", "y"}].

Source: [{"x", "y"}, {}] on <["x"=2, "y"=4]>, shards of 25 x 200.
    d1(x, y)[k0, k1] -> t[x * 100 + y * 25 + k0, k1]
Target: [{}, {"x", "y"}] on <["x"=2, "y"=4]>, shards of 200 x 25.
    d2(x, y)[k0, k1] -> t[k0, x * 100 + y * 25 + k1]

Along dimension 0, shards of 25 meet shards of 200: 8 of the source for one of the target.
Along dimension 1, shards of 200 meet shards of 25: one of the source for one of the target.
Bytes of the busiest device: 17500 in, 17500 out, the least possible; 140000 in all.

What comes from a device is what its range before shares with the receiver's after.

    device  before                 after                  receives
    0       [0, 25) x [0, 200)     [0, 200) x [0, 25)     from 1, 2, 3, 4, 5, 6, 7
    1       [25, 50) x [0, 200)    [0, 200) x [25, 50)    from 0, 2, 3, 4, 5, 6, 7
    2       [50, 75) x [0, 200)    [0, 200) x [50, 75)    from 0, 1, 3, 4, 5, 6, 7
    3       [75, 100) x [0, 200)   [0, 200) x [75, 100)   from 0, 1, 2, 4, 5, 6, 7
    4       [100, 125) x [0, 200)  [0, 200) x [100, 125)  from 0, 1, 2, 3, 5, 6, 7
    5       [125, 150) x [0, 200)  [0, 200) x [125, 150)  from 0, 1, 2, 3, 4, 6, 7
    6       [150, 175) x [0, 200)  [0, 200) x [150, 175)  from 0, 1, 2, 3, 4, 5, 7
    7       [175, 200) x [0, 200)  [0, 200) x [175, 200)  from 0, 1, 2, 3, 4, 5, 6

Form: routed; tiles go from device to device, in slots that XLA packs and unpacks.
On the wire 1.609 times the exact bytes, every hop counted, 33,280 into the busiest device.
HBM reads and writes 14.32 times the least possible.
Not all receivers are in reach of a sender: in 3 rounds a device sends on 23 slots,
of at most 2,560 bytes, and gets of 13 devices what it wants.
Digit of stride 2: a line of 4 devices; 1 to 3 go up it, 7 to 5 down.
What goes to the device 7 farther on, digit by digit:
    from slot 6 to slot 8 of the device whose digit of stride 1 is 1 higher
    from slot 8 to slot 6 of the device whose digit of stride 2 is 2 higher
    from slot 6 to slot 6 of the device whose digit of stride 2 is 1 higher
Staging 35,840 bytes of HBM, 0 of VMEM.

Made by
    shardwright emit --mesh x=2,y=4 --shape 200x200 --dtype float32 --source '[{"x", "y"}, {}]' --target '[{}, {"x", "y"}]' --topology torus:2x4,wrap=0x0,bandwidth=5e+10,latency=1e-06,powers_of_two=1,ragged=512,memory=8.19e+11 --name all_to_all_v5e
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
from .._support.pallas_pieces import Forms, Peers
from .._support.pallas_routed import Routed
from .._support.pallas_schedules import of_tiles
from .._support.pallas_slots import Slot

require("pallas_tpu", "f893524f707357fc", __name__)

__getattr__ = absent(__name__)
__all__ = ["pad", "reshard", "source_sharding", "target_sharding", "unpad"]
__all__ += ["source_shape", "target_shape"]

SHAPE = (200, 200)
DTYPE = "float32"
SOURCE_MESH = TARGET_MESH = '<["x"=2, "y"=4]>'
SOURCE = '[{"x", "y"}, {}]'
TARGET = '[{}, {"x", "y"}]'
LOCAL_SOURCE_SHAPE = (25, 200)
LOCAL_TARGET_SHAPE = (200, 25)
SOURCE_IDS = TARGET_IDS = range(8)  # by mesh position
PLAN = "085a4ed719b2fbc4"  # processes that exchange must have the same
SOURCE_AXES = TARGET_AXES = (("x", 2), ("y", 4))
PADDED_SOURCE_SHAPE = PADDED_TARGET_SHAPE = SHAPE
WIRE_BYTES = 33280  # that arrive at the busiest device, padding included
COLLECTIVE_ID = 7488


def source_shard(position):
    """Index of the source shard, per dimension, at a position of the source mesh."""
    return position, 0


def target_shard(position):
    """Index of the target shard, per dimension, at a position of the target mesh."""
    return 0, position


def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    lo0 = position * 25
    return lo0, lo0 + 25, 0, 200


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    lo1 = position * 25
    return 0, 200, lo1, lo1 + 25


def tile(a0, a1, b0, b1):
    """Tensor range shared by a source shard and a target shard; empty where low >= high."""
    source_lo0 = a0 * 25
    target_lo1 = b1 * 25
    return source_lo0, source_lo0 + 25, target_lo1, target_lo1 + 25


def senders(position):
    """First and count, per dimension, of the source shards that meet a target shard."""
    return 0, 8, 0, 1


def receivers(position):
    """First and count, per dimension, of the target shards that meet a source shard."""
    return 0, 1, 0, 8


def target_position(b0, b1, replica):
    """Position, in the target mesh, of a replica of a target shard."""
    return b1


def holder(a0, a1, receiver):
    """Position, in the source mesh, of the holder that sends a piece of a tile to a receiver."""
    return a0


_SOURCE = Sharded(SOURCE_IDS, source_box, PADDED_SOURCE_SHAPE, SOURCE_AXES, P(("x", "y"), None))
_TARGET = Sharded(TARGET_IDS, target_box, PADDED_TARGET_SHAPE, TARGET_AXES, P(None, ("x", "y")))
PEERS = Peers(
    _SOURCE,
    _TARGET,
    Forms(source_shard, target_shard, tile, senders, receivers, target_position, holder),
)
SLOT = Slot((5, 1, 128), (25, 25), dense=True)  # granules of 512 bytes: ceil(625 / 128)
DIGITS = ((1, 2), (2, 8))
# Hops a, b, ...: to the device whose digit (stride, extent) is so much higher.
HOPS = ((1, 2, 1), (2, 8, 1), (2, 8, 2), (2, 8, 6), (2, 8, 7))
# A row is for the receiver so much farther on, digit by digit: "3 0a1b 4 2" goes over hop a
# in round 0, into slot 4, and over b in round 1, into slot 2. See `of_tiles`.
# A number before the way is the slot that the tile is in at first.
WAYS = """
    1 2a 5; 2 2b 7; 3 0a1b 7 2; 4 2c 8; 5 0c1a 8 4; 6 0b1c 8 1; 7 0a1c2b 8 6 6; 10 1 0e1d 9 2;
    11 2 0a1e2d 7 11 6; 12 3 2d 8; 13 4 0d1a 9 4; 14 5 1e 12; 15 6 0a1e 10 13
"""
SCHEDULE = of_tiles(DIGITS, HOPS, WAYS, SLOT, lines=(2,), shared=True)
_PROGRAM = Routed(
    PEERS,
    SCHEDULE,
    SLOT,
    window=(25, 25),  # the largest tile
    collective_id=COLLECTIVE_ID,
)
_HOST = OneOrder(__name__, SHAPE, DTYPE, _SOURCE, _TARGET, _PROGRAM)
reshard, pad, unpad = _HOST.reshard, _HOST.pad, _HOST.unpad
source_shape, target_shape = _SOURCE.shape, _TARGET.shape
source_sharding, target_sharding = _SOURCE.on, _TARGET.on

if __name__ == "__main__":
    print(f"ok: {_HOST.self_check()}")
