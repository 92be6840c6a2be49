"""Reshards float32[50257, 768] over 8 devices: [{"x", "y"}, {}] -> [{"y"}, {"x"}].

Source: [{"x", "y"}, {}] on <["x"=2, "y"=4]>, shards of 6283 x 768.
    d1(x, y)[k0, k1] -> t[x * 25132 + y * 6283 + k0, k1]
    The last shards along dimension 0 are short or empty; they are padded at the end to 6283 x 768.
Target: [{"y"}, {"x"}] on <["x"=2, "y"=4]>, shards of 12565 x 384.
    d2(x, y)[k0, k1] -> t[y * 12565 + k0, x * 384 + k1]
    The last shards along dimension 0 are short or empty; they are padded at the end to 12565 x 384.

Along dimension 0, source shards of 6283 meet target shards of 12565: up to 3 source shards for each
    target shard.
Along dimension 1, source shards of 768 meet target shards of 384: 1 source shard for each target
    shard.
No device receives over 19299840 bytes or sends over 19301376, the least possible.
All devices together receive 135097344.

    device  before                     after
    0       [0, 6283) x [0, 768)       [0, 12565) x [0, 384)
            receives [6283, 12565) x [0, 384) from 1
    1       [6283, 12566) x [0, 768)   [12565, 25130) x [0, 384)
            receives [12566, 18849) x [0, 384) from 2, [18849, 25130) x [0, 384) from 3
    2       [12566, 18849) x [0, 768)  [25130, 37695) x [0, 384)
            receives [25130, 25132) x [0, 384) from 3, [25132, 31415) x [0, 384) from 4,
            [31415, 37695) x [0, 384) from 5
    3       [18849, 25132) x [0, 768)  [37695, 50257) x [0, 384)
            receives [37695, 37698) x [0, 384) from 5, [37698, 43981) x [0, 384) from 6,
            [43981, 50257) x [0, 384) from 7
    4       [25132, 31415) x [0, 768)  [0, 12565) x [384, 768)
            receives [0, 6283) x [384, 768) from 0, [6283, 12565) x [384, 768) from 1
    5       [31415, 37698) x [0, 768)  [12565, 25130) x [384, 768)
            receives [12565, 12566) x [384, 768) from 1, [12566, 18849) x [384, 768) from 2,
            [18849, 25130) x [384, 768) from 3
    6       [37698, 43981) x [0, 768)  [25130, 37695) x [384, 768)
            receives [25130, 25132) x [384, 768) from 3, [25132, 31415) x [384, 768) from 4,
            [31415, 37695) x [384, 768) from 5
    7       [43981, 50257) x [0, 768)  [37695, 50257) x [384, 768)
            receives [37695, 37698) x [384, 768) from 5, [37698, 43981) x [384, 768) from 6

Transport: 14 rounds of lax.ppermute, all boxes of a round of one shape.
The wire carries 1.000 times the bytes of the tiles.
The busiest device receives 19299840 bytes, padding included.

Emitted by
    shardwright emit --mesh x=2,y=4 --shape 50257x768 --dtype float32 --source '[{"x", "y"}, {}]' --target '[{"y"}, {"x"}]' --backends pallas_tpu,triton_gpu,jax_xla --name gpt2_vocab_uneven
"""

import os

if not __package__:
    raise ImportError("run `python -m FOLDER.NAME.jax_xla` in the folder that contains FOLDER")
if __name__ == "__main__":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")

from jax.sharding import PartitionSpec as P

from .._support import require
from .._support.exchanges import Exchange
from .._support.jax_host import OneOrder
from .._support.jax_meshes import Sharded
from .._support.jax_padding import Padding
from .._support.xla_program import XlaProgram
from .._support.xla_rounds import in_rounds, rounds_of

require("jax_xla", "89900a20de0aba33", __name__)

__all__ = ["pad", "reshard", "source_sharding", "target_sharding", "unpad"]
__all__ += ["source_shape", "target_shape"]

SHAPE = (50257, 768)
DTYPE = "float32"
SOURCE_MESH = TARGET_MESH = '<["x"=2, "y"=4]>'
SOURCE = '[{"x", "y"}, {}]'
TARGET = '[{"y"}, {"x"}]'
LOCAL_SOURCE_SHAPE = (6283, 768)
LOCAL_TARGET_SHAPE = (12565, 384)
SOURCE_IDS = TARGET_IDS = range(8)  # by mesh position
PLAN = "7f4b2ea0e22afa50"  # hash of the plan: equal on all processes that exchange
SOURCE_AXES = TARGET_AXES = (("x", 2), ("y", 4))
# The shapes of global arrays, every shard padded at its end to the largest.
PADDED_SOURCE_SHAPE = (50264, 768)
PADDED_TARGET_SHAPE = (50260, 768)
WIRE_BYTES = 19299840  # received by the busiest device, padding included
AXES = ("x", "y")  # mesh axes that number the devices


def source_box(position):
    """Tensor range (low, high), per dimension, of the source shard at a position."""
    lo0 = position * 6283
    return lo0, min(lo0 + 6283, 50257), 0, 768


def target_box(position):
    """Tensor range (low, high), per dimension, of the target shard at a position."""
    lo0 = position % 4 * 12565
    lo1 = position // 4 * 384
    return lo0, min(lo0 + 12565, 50257), lo1, lo1 + 384


def senders(receiver):
    """Positions that the parts of a target shard come from."""
    first0 = receiver % 4 * 12565 // 6283
    last0 = (min(receiver % 4 * 12565 + 12565, 50257) - 1) // 6283
    return range(first0, last0 + 1)


def receivers(sender):
    """Positions that the parts of a source shard go to."""
    first0 = sender * 6283 // 12565
    last0 = (min(sender * 6283 + 6283, 50257) - 1) // 12565
    return [b1 * 4 + b0 for b0 in range(first0, last0 + 1) for b1 in range(2)]


def round_of(sender, receiver, piece):
    """The number of the round in which a box goes from a sender to a receiver."""
    to0 = receiver % 4 - sender * 6283 // 12565
    to1 = receiver // 4
    return to0 * 2 + to1


_SOURCE = Sharded(SOURCE_IDS, source_box, PADDED_SOURCE_SHAPE, SOURCE_AXES, P(("x", "y"), None))
_TARGET = Sharded(TARGET_IDS, target_box, PADDED_TARGET_SHAPE, TARGET_AXES, P("y", "x"))
MOVES = Exchange(_SOURCE, _TARGET, senders, receivers)


def _exchange(x):
    """Return the target shard of a device from its source shard, inside shard_map."""
    rounds = rounds_of(MOVES, round_of, by_shape=True)
    y = in_rounds(x, rounds, AXES, (12565, 384))
    return y


_PROGRAM = XlaProgram(_exchange, AXES, moves=MOVES)
_HOST = OneOrder(__name__, SHAPE, DTYPE, _SOURCE, _TARGET, _PROGRAM, padding=Padding)
reshard, pad, unpad = _HOST.reshard, _HOST.pad, _HOST.unpad
source_shape, target_shape = _SOURCE.shape, _TARGET.shape
source_sharding, target_sharding = _SOURCE.on, _TARGET.on

if __name__ == "__main__":
    print(f"ok: {_HOST.self_check()}")
