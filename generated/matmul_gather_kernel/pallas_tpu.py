"""Multiplies bfloat16[8192, 8192] by [8192, 8192] over 8 devices.

C[i, k] = sum over j of A[i, j] * B[j, k], on <["i"=8]>.
lhs: [{"i"}, {}], shards of 1024 x 8192.
rhs: [{}, {"i"}], shards of 8192 x 1024.
out: [{}, {"i"}], shards of 8192 x 1024.

Along "i", case 4: lhs is split along i, rhs is split along k.

Steps, with the bytes that each brings to the busiest device:
    1. Each device multiplies 8192 x 8192 by 8192 x 1024, 137438953472 flops, while parts travel
        both ways round rings: lhs, all_gather over "i": [{"i"}, {}] -> [{}, {}]; 117440512 bytes

The busiest device receives 117440512 bytes.
A device sums its products in float32.
Parts of A, cut along i, travel round rings of 8 devices, one half in each direction, inside the
    matmul kernel. Blocks of A are 512 x 4096, of B 4096 x 1024; B stays in VMEM. The kernel uses
    28672 KiB of VMEM.

    device  lhs                       rhs                       out
    0       [0, 1024) x [0, 8192)     [0, 8192) x [0, 1024)     [0, 8192) x [0, 1024)
    1       [1024, 2048) x [0, 8192)  [0, 8192) x [1024, 2048)  [0, 8192) x [1024, 2048)
    2       [2048, 3072) x [0, 8192)  [0, 8192) x [2048, 3072)  [0, 8192) x [2048, 3072)
    3       [3072, 4096) x [0, 8192)  [0, 8192) x [3072, 4096)  [0, 8192) x [3072, 4096)
    4       [4096, 5120) x [0, 8192)  [0, 8192) x [4096, 5120)  [0, 8192) x [4096, 5120)
    5       [5120, 6144) x [0, 8192)  [0, 8192) x [5120, 6144)  [0, 8192) x [5120, 6144)
    6       [6144, 7168) x [0, 8192)  [0, 8192) x [6144, 7168)  [0, 8192) x [6144, 7168)
    7       [7168, 8192) x [0, 8192)  [0, 8192) x [7168, 8192)  [0, 8192) x [7168, 8192)

Emitted by
    shardwright emit manifest.json --name matmul_gather_kernel  # in the parent folder
"""

import os

if not __package__:
    raise ImportError("run `python -m FOLDER.NAME.pallas_tpu` in the folder that contains FOLDER")
if __name__ == "__main__":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=9")

import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import PartitionSpec as P

from .._support import require
from .._support.jax_meshes import Sharded
from .._support.pallas_matmul import PallasMatmul, RingMatmul, TiledArray
from .._support.pallas_peers import LOGICAL, div, each, multiple, rem
from .._support.pallas_products import Block, add_product, clear, put_sum

require("pallas_tpu", "24fecbfefb230f2f", __name__)

__all__ = ["lhs_sharding", "matmul", "out_sharding", "pad_lhs", "pad_rhs", "rhs_sharding", "unpad"]

LHS_SHAPE = (8192, 8192)
RHS_SHAPE = (8192, 8192)
OUT_SHAPE = (8192, 8192)
DTYPE = OUT_DTYPE = "bfloat16"
MESH = '<["i"=8]>'
LHS = '[{"i"}, {}]'
RHS = '[{}, {"i"}]'
OUT = '[{}, {"i"}]'
IDS = range(8)  # by mesh position
PADDED_LHS_SHAPE = LHS_SHAPE
PADDED_RHS_SHAPE = RHS_SHAPE
PADDED_OUT_SHAPE = OUT_SHAPE
MESH_AXES = (("i", 8),)
WIRE_BYTES = 117440512  # received by the busiest device
AXES = "i"  # mesh axes that number the devices


def lhs_box(position):
    """Tensor range (low, high), per dimension, of the lhs shard at a position."""
    lo0 = position * 1024
    return lo0, lo0 + 1024, 0, 8192


def rhs_box(position):
    """Tensor range (low, high), per dimension, of the rhs shard at a position."""
    lo1 = position * 1024
    return 0, 8192, lo1, lo1 + 1024


def out_box(position):
    """Tensor range (low, high), per dimension, of the out shard at a position."""
    lo1 = position * 1024
    return 0, 8192, lo1, lo1 + 1024


_LHS = Sharded(IDS, lhs_box, PADDED_LHS_SHAPE, MESH_AXES, P("i", None))
_RHS = Sharded(IDS, rhs_box, PADDED_RHS_SHAPE, MESH_AXES, P(None, "i"))
_OUT = Sharded(IDS, out_box, PADDED_OUT_SHAPE, MESH_AXES, P(None, "i"))


def ring_kernel(
    ring, a, b, c, inbox, a_blocks, b_blocks, sums, made, read_a, read_b, stored, sent, recv
):
    """Multiply a by b in blocks, while parts of a along i travel round the ring.

    Half of each part travels each way: a device sends its own part and forwards all others but the
    last.
    ring: this device's place in its ring, the next and previous devices, the parts.
    In HBM: a, b, c, and `inbox`, the part that arrives in each step; `sent` counts departing
    parts, `recv` arriving ones. In VMEM, 29,360,128 bytes:
    a_blocks: 8,388,608 bytes, blocks of a; `read_a` counts the bytes read into each
    b_blocks: 16,777,216 bytes, blocks of b; `read_b` counts the bytes read into each
    sums: 2,097,152 bytes, sums of products
    made: 2,097,152 bytes, sums that leave for c; `stored` counts them
    """
    place, after, before = ring[0, 0], ring[0, 1], ring[0, 2]
    # From here on the neighbours may write to `inbox`, and signal this device's semaphores.
    barrier = pltpu.get_barrier_semaphore()
    pl.semaphore_signal(barrier, 1, device_id=before, device_id_type=LOGICAL)
    pl.semaphore_signal(barrier, 1, device_id=after, device_id_type=LOGICAL)
    pl.semaphore_wait(barrier, 2)  # 1 from each receiver of this device

    def block_of(number):
        """Return product `number`; its indices, fastest first: j, way, step."""
        return Block(
            number,
            step=div(number, 4),
            way=rem(div(number, 2), 2),
            j=rem(number, 2),
        )

    def part_of(block):
        """Return the number of a product's part."""
        return ring[0, 3 + rem(place + jnp.where(block.way == 0, 8 - block.step, block.step), 8)]

    def downstream(way):
        """Return the receiver of parts in a direction."""
        return jnp.where(way == 0, after, before)

    def half_of(step, way):
        """Return the place of a step's arrivals in a direction, 8,388,608 bytes."""
        return inbox.at[step, :, pl.ds(multiple(way * 512, 8), 512), :]

    def place_of_a(block):
        """Return the place in VMEM of a block of a, 4,194,304 bytes."""
        slot = rem(block.number, 2)
        there = a_blocks.at[slot]
        return there, read_a.at[slot]

    def load_a(block):
        """Start to load a block of a into VMEM."""
        there, loaded = place_of_a(block)

        @pl.when(block.step == 0)
        def of_own_part():
            here = a.at[
                np.int32(0),
                pl.ds(multiple(block.way * 512, 8), 512),
                pl.ds(multiple(block.j * 4096, 128), 4096),
            ]
            pltpu.make_async_copy(here, there, loaded).start()

        @pl.when(block.step > 0)
        def of_arrived_part():
            here = inbox.at[
                block.step - 1,
                np.int32(0),
                pl.ds(multiple(block.way * 512, 8), 512),
                pl.ds(multiple(block.j * 4096, 128), 4096),
            ]
            pltpu.make_async_copy(here, there, loaded).start()

    def take_a(block):
        """Wait until that block is in VMEM."""
        there, loaded = place_of_a(block)
        # From `load_a`: 4,194,304 bytes.
        pltpu.make_async_copy(there, there, loaded).wait()

    def place_of_b(block):
        """Return the place in VMEM of a block of b, 8,388,608 bytes."""
        slot = block.j
        there = b_blocks.at[slot]
        return there, read_b.at[slot]

    def load_b(block):
        """Start to load a block of b into VMEM."""
        there, loaded = place_of_b(block)
        here = b.at[np.int32(0), pl.ds(multiple(block.j * 4096, 8), 4096), pl.ds(0, 1024)]
        pltpu.make_async_copy(here, there, loaded).start()

    def take_b(block):
        """Wait until that block is in VMEM."""
        there, loaded = place_of_b(block)
        # From `load_b`: 8,388,608 bytes.
        pltpu.make_async_copy(there, there, loaded).wait()

    def pass_on(way, step, half):
        """Forward a step's part to the next device in a direction."""
        there, to = half_of(step, way), downstream(way)
        pltpu.make_async_remote_copy(
            half, there, sent.at[way], recv.at[way, step], device_id=to, device_id_type=LOGICAL
        ).start()

    def send_own(way):
        """Send the device's own part in a direction."""
        half = a.at[:, pl.ds(multiple(way * 512, 8), 512), :]
        pass_on(way, np.int32(0), half)

    def load(block):
        """Wait for a product's part, and start to load the product's blocks."""

        @pl.when((block.j == 0) & (block.step > 0))
        def arrive():
            half = half_of(block.step - 1, block.way)
            # From `pass_on` of the upstream device: 8,388,608 bytes.
            pltpu.make_async_copy(half, half, recv.at[block.way, block.step - 1]).wait()
            pl.when(block.step < 7)(lambda: pass_on(block.way, block.step, half))

        load_a(block)
        pl.when((block.step == 0) & (block.way == 0))(lambda: load_b(block))

    def made_of(block):
        """Return the place in VMEM of a block of c, 1,048,576 bytes."""
        slot = rem(div(block.number, 2), 2)
        here = made.at[slot]
        return here, stored.at[slot]

    def leave(block):
        """Wait until a block of c has left its place."""
        here, left = made_of(block)
        # From `store`: 1,048,576 bytes.
        pltpu.make_async_copy(here, here, left).wait()

    def store(block, total):
        """Write sums to c, from a VMEM buffer that is free once the block stored two before has
        left."""
        number = div(block.number, 2)
        slot = rem(number, 2)
        pl.when(number >= 2)(lambda: leave(block_of(block.number - 4)))
        put_sum(made.at[slot], total)
        there = c.at[
            np.int32(0),
            pl.ds(multiple(part_of(block) * 1024 + block.way * 512, 8), 512),
            pl.ds(0, 1024),
        ]
        here, left = made_of(block)
        pltpu.make_async_copy(here, there, left).start()

    def multiply(block):
        """Add a product to its sums; store the sums after the last product."""
        take_a(block)
        pl.when((block.step == 0) & (block.way == 0))(lambda: take_b(block))
        total = sums.at[np.int32(0)]
        operands = a_blocks.at[rem(block.number, 2)], b_blocks.at[block.j]
        is_first = block.j == 0
        pl.when(is_first)(lambda: clear(total))
        add_product(total, *operands, 1024)
        is_last = block.j == 1
        pl.when(is_last)(lambda: store(block, total))

    def advance(number):
        pl.when(number < 31)(lambda: load(block_of(number + 1)))
        multiply(block_of(number))

    each(2, send_own)
    load(block_of(np.int32(0)))
    each(32, advance)
    leave(block_of(np.int32(31)))
    leave(block_of(np.int32(29)))
    for way in map(np.int32, range(2)):
        half = half_of(np.int32(0), way)
        gone = pltpu.make_async_copy(half, half, sent.at[way])
        # From `pass_on`, in each step but the last one: 8,388,608 bytes.
        each(7, lambda _, gone=gone: gone.wait())


_RING = RingMatmul(
    ring_kernel,
    AXES,
    # Positions of the devices in the order of each ring.
    ((1, 3, 5, 7, 6, 4, 2, 0),),
    (1, 3, 5, 7, 6, 4, 2, 0),
    travels="a",
    factor="i",
    extents=(1, 8192, 8192, 1024),
    blocks=(1, 512, 4096, 1024),
    a=TiledArray((1, 1024, 8192), "bfloat16"),
    b=TiledArray((1, 8192, 1024), "bfloat16"),
    c=TiledArray((1, 8192, 1024), "bfloat16"),
    inbox=TiledArray((7, 1, 1024, 8192), "bfloat16"),
    scratch=(
        pltpu.VMEM((2, 512, 4096), jnp.bfloat16),
        pltpu.VMEM((2, 4096, 1024), jnp.bfloat16),
        pltpu.VMEM((1, 512, 1024), jnp.float32),
        pltpu.VMEM((2, 512, 1024), jnp.bfloat16),
        pltpu.SemaphoreType.DMA((2,)),
        pltpu.SemaphoreType.DMA((2,)),
        pltpu.SemaphoreType.DMA((2,)),
        pltpu.SemaphoreType.DMA((2,)),
        pltpu.SemaphoreType.DMA((2, 7)),
    ),
    out="bfloat16",
    vmem=112 << 20,  # the limit in bytes for the blocks and the compiler's own use
    collective_id=19940,
    lead=0,
)


def _multiply(a, b, interpret):
    """Return a device's shard of the product, given its operand shards; called inside shard_map."""
    # 1. Each device multiplies 8192 x 8192 by 8192 x 1024, 137438953472 flops, while parts travel
    #    both ways round rings: lhs, all_gather over "i": [{"i"}, {}] -> [{}, {}]
    c = _RING.product(a, b, interpret)
    return c


_HOST = PallasMatmul(
    __name__,
    (LHS_SHAPE, RHS_SHAPE, OUT_SHAPE),
    (DTYPE, OUT_DTYPE),
    (_LHS, _RHS, _OUT),
    _multiply,
    AXES,
    ring=_RING,
)
matmul, pad_lhs, pad_rhs, unpad = _HOST.matmul, _HOST.pad_lhs, _HOST.pad_rhs, _HOST.unpad
lhs_sharding, rhs_sharding, out_sharding = _LHS.on, _RHS.on, _OUT.on

if __name__ == "__main__":
    print(f"ok: {_HOST.self_check()}")
