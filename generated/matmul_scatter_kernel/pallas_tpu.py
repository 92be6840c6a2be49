"""Multiplies bfloat16[8192, 8192] by [8192, 8192] over 8 devices.

C[i, k] = sum over j of A[i, j] * B[j, k], on <["i"=8]>.
lhs: [{}, {"i"}], shards of 8192 x 1024.
rhs: [{"i"}, {}], shards of 1024 x 8192.
out: [{"i"}, {}], shards of 1024 x 8192.

Along "i", case 3: lhs is split along its contracting dimension j, rhs is split along its
    contracting dimension j.

Steps, with the bytes that each brings to the busiest device:
    1. Each device multiplies 8192 x 1024 by 1024 x 8192, 137438953472 flops, while parts travel
        both ways round rings: out, reduce_scatter over "i": [{}, {}], unreduced={"i"} -> [{"i"},
        {}]; 117440512 bytes

The busiest device receives 117440512 bytes.
A device sums its products in float32. Partial sums sent between devices are bfloat16; a part is
    rounded to bfloat16 at every hop.
Partial sums of C, cut along i, travel round rings of 8 devices, one half in each direction, inside
    the matmul kernel. Blocks of A are 512 x 1024, of B 1024 x 1024; B stays in VMEM. The kernel
    uses 24576 KiB of VMEM.

    device  lhs                       rhs                       out
    0       [0, 8192) x [0, 1024)     [0, 1024) x [0, 8192)     [0, 1024) x [0, 8192)
    1       [0, 8192) x [1024, 2048)  [1024, 2048) x [0, 8192)  [1024, 2048) x [0, 8192)
    2       [0, 8192) x [2048, 3072)  [2048, 3072) x [0, 8192)  [2048, 3072) x [0, 8192)
    3       [0, 8192) x [3072, 4096)  [3072, 4096) x [0, 8192)  [3072, 4096) x [0, 8192)
    4       [0, 8192) x [4096, 5120)  [4096, 5120) x [0, 8192)  [4096, 5120) x [0, 8192)
    5       [0, 8192) x [5120, 6144)  [5120, 6144) x [0, 8192)  [5120, 6144) x [0, 8192)
    6       [0, 8192) x [6144, 7168)  [6144, 7168) x [0, 8192)  [6144, 7168) x [0, 8192)
    7       [0, 8192) x [7168, 8192)  [7168, 8192) x [0, 8192)  [7168, 8192) x [0, 8192)

Emitted by
    shardwright emit manifest.json --name matmul_scatter_kernel  # in the parent folder
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
from .._support.pallas_products import Block, put_product, put_sum

require("pallas_tpu", "24fecbfefb230f2f", __name__)

__all__ = ["lhs_sharding", "matmul", "out_sharding", "pad_lhs", "pad_rhs", "rhs_sharding", "unpad"]

LHS_SHAPE = (8192, 8192)
RHS_SHAPE = (8192, 8192)
OUT_SHAPE = (8192, 8192)
DTYPE = OUT_DTYPE = "bfloat16"
MESH = '<["i"=8]>'
LHS = '[{}, {"i"}]'
RHS = '[{"i"}, {}]'
OUT = '[{"i"}, {}]'
IDS = range(8)  # by mesh position
PADDED_LHS_SHAPE = LHS_SHAPE
PADDED_RHS_SHAPE = RHS_SHAPE
PADDED_OUT_SHAPE = OUT_SHAPE
MESH_AXES = (("i", 8),)
WIRE_BYTES = 117440512  # received by the busiest device
AXES = "i"  # mesh axes that number the devices


def lhs_box(position):
    """Tensor range (low, high), per dimension, of the lhs shard at a position."""
    lo1 = position * 1024
    return 0, 8192, lo1, lo1 + 1024


def rhs_box(position):
    """Tensor range (low, high), per dimension, of the rhs shard at a position."""
    lo0 = position * 1024
    return lo0, lo0 + 1024, 0, 8192


def out_box(position):
    """Tensor range (low, high), per dimension, of the out shard at a position."""
    lo0 = position * 1024
    return lo0, lo0 + 1024, 0, 8192


_LHS = Sharded(IDS, lhs_box, PADDED_LHS_SHAPE, MESH_AXES, P(None, "i"))
_RHS = Sharded(IDS, rhs_box, PADDED_RHS_SHAPE, MESH_AXES, P("i", None))
_OUT = Sharded(IDS, out_box, PADDED_OUT_SHAPE, MESH_AXES, P("i", None))


def ring_kernel(
    ring, a, b, c, inbox, a_blocks, b_blocks, sums, made, terms, read_a, read_b, added, stored, recv
):
    """Multiply a by b in blocks, while parts of c along i travel round the ring.

    Half of each part travels each way: in each step a device adds its products to the arrived
    sums of a part and forwards them; in the last step the part is its own, and is written to c.
    ring: this device's place in its ring, the next and previous devices, the parts.
    In HBM: a, b, c, and `inbox`, the sums that arrive in each step; `recv` counts them. In VMEM,
    25,165,824 bytes:
    a_blocks: 2,097,152 bytes, blocks of a; `read_a` counts the bytes read into each
    b_blocks: 16,777,216 bytes, blocks of b; `read_b` counts the bytes read into each
    sums: 2,097,152 bytes, sums of products
    made: 2,097,152 bytes, sums that leave for c or the next device; `stored` counts them
    terms: 2,097,152 bytes, earlier sums, to be added; `added` counts their bytes read
    """
    place, after, before = ring[0, 0], ring[0, 1], ring[0, 2]
    # From here on the neighbours may write to `inbox`, and signal this device's semaphores.
    barrier = pltpu.get_barrier_semaphore()
    pl.semaphore_signal(barrier, 1, device_id=before, device_id_type=LOGICAL)
    pl.semaphore_signal(barrier, 1, device_id=after, device_id_type=LOGICAL)
    pl.semaphore_wait(barrier, 2)  # 1 from each receiver of this device

    def block_of(number):
        """Return product `number`; its indices, fastest first: way, k, step."""
        return Block(
            number,
            step=div(number, 16),
            k=rem(div(number, 2), 8),
            way=rem(number, 2),
        )

    def part_of(block):
        """Return the number of a product's part."""
        return ring[
            0, 3 + rem(place + jnp.where(block.way == 0, 7 - block.step, block.step + 1), 8)
        ]

    def downstream(way):
        """Return the receiver of parts in a direction."""
        return jnp.where(way == 0, after, before)

    def half_of(step, way):
        """Return the place of a step's arrivals in a direction, 8,388,608 bytes."""
        return inbox.at[step, :, pl.ds(multiple(way * 512, 8), 512), :]

    def place_of_a(block):
        """Return the place in VMEM of a block of a, 1,048,576 bytes."""
        slot = rem(block.number, 2)
        there = a_blocks.at[slot]
        return there, read_a.at[slot]

    def load_a(block):
        """Start to load a block of a into VMEM."""
        there, loaded = place_of_a(block)
        here = a.at[
            np.int32(0),
            pl.ds(multiple(part_of(block) * 1024 + block.way * 512, 8), 512),
            pl.ds(0, 1024),
        ]
        pltpu.make_async_copy(here, there, loaded).start()

    def take_a(block):
        """Wait until that block is in VMEM."""
        there, loaded = place_of_a(block)
        # From `load_a`: 1,048,576 bytes.
        pltpu.make_async_copy(there, there, loaded).wait()

    def place_of_b(block):
        """Return the place in VMEM of a block of b, 2,097,152 bytes."""
        slot = block.k
        there = b_blocks.at[slot]
        return there, read_b.at[slot]

    def load_b(block):
        """Start to load a block of b into VMEM."""
        there, loaded = place_of_b(block)
        here = b.at[np.int32(0), pl.ds(0, 1024), pl.ds(multiple(block.k * 1024, 128), 1024)]
        pltpu.make_async_copy(here, there, loaded).start()

    def take_b(block):
        """Wait until that block is in VMEM."""
        there, loaded = place_of_b(block)
        # From `load_b`: 2,097,152 bytes.
        pltpu.make_async_copy(there, there, loaded).wait()

    def load(block):
        """Start to load a product's blocks."""
        load_a(block)
        pl.when((block.step == 0) & (block.way == 0))(lambda: load_b(block))

    def made_of(block):
        """Return the place in VMEM of a block of sums, 1,048,576 bytes."""
        slot = rem(block.number, 2)
        here = made.at[slot]
        return here, stored.at[slot]

    def leave(block):
        """Wait until a block of sums has left its place."""
        here, left = made_of(block)
        # From `keep` or `send`: 1,048,576 bytes.
        pltpu.make_async_copy(here, here, left).wait()

    def terms_of(block):
        """Return the copy of a block's arrived sums, 1,048,576 bytes."""
        slot = rem(block.number, 2)
        there = terms.at[slot]
        here = inbox.at[
            block.step - 1,
            np.int32(0),
            pl.ds(multiple(block.way * 512, 8), 512),
            pl.ds(multiple(block.k * 1024, 128), 1024),
        ]
        return pltpu.make_async_copy(here, there, added.at[slot])

    def store(block, total):
        """Add sums to the arrived ones, and write them to c or forward them, from a buffer that is
        free once the block stored two before this one has left."""
        number = block.number
        slot, way = rem(number, 2), block.way
        pl.when(number >= 2)(lambda: leave(block_of(block.number - 2)))

        @pl.when(block.step > 0)
        def add():
            terms_of(block).wait()  # started in `multiply`
            put_sum(made.at[slot], total, terms.at[slot])

        pl.when(block.step == 0)(lambda: put_sum(made.at[slot], total))
        here, left = made_of(block)

        @pl.when(block.step == 7)
        def keep():
            there = c.at[
                np.int32(0),
                pl.ds(multiple(block.way * 512, 8), 512),
                pl.ds(multiple(block.k * 1024, 128), 1024),
            ]
            pltpu.make_async_copy(here, there, left).start()

        @pl.when(block.step < 7)
        def send():
            there = inbox.at[
                block.step,
                np.int32(0),
                pl.ds(multiple(block.way * 512, 8), 512),
                pl.ds(multiple(block.k * 1024, 128), 1024),
            ]
            arrived, to = recv.at[way, block.step], downstream(way)
            pltpu.make_async_remote_copy(
                here, there, left, arrived, device_id=to, device_id_type=LOGICAL
            ).start()

    def multiply(block):
        """Add a product to its sums; store the sums after the last product."""
        take_a(block)
        pl.when((block.step == 0) & (block.way == 0))(lambda: take_b(block))
        total = sums.at[np.int32(0)]

        # Wait no sooner, so that blocks awaited by the next device leave first.
        @pl.when((block.k == 0) & (block.step > 0))
        def arrive():
            half = half_of(block.step - 1, block.way)
            # All blocks from `send` of the upstream device: 8,388,608 bytes.
            pltpu.make_async_copy(half, half, recv.at[block.way, block.step - 1]).wait()

        pl.when((block.j == 0) & (block.step > 0))(lambda: terms_of(block).start())
        operands = a_blocks.at[rem(block.number, 2)], b_blocks.at[block.k]
        put_product(total, *operands)
        is_last = block.j == 0
        pl.when(is_last)(lambda: store(block, total))

    def advance(number):
        pl.when(number < 127)(lambda: load(block_of(number + 1)))
        multiply(block_of(number))

    load(block_of(np.int32(0)))
    each(128, advance)
    leave(block_of(np.int32(127)))
    leave(block_of(np.int32(126)))


_RING = RingMatmul(
    ring_kernel,
    AXES,
    # Positions of the devices in the order of each ring.
    ((1, 3, 5, 7, 6, 4, 2, 0),),
    (1, 3, 5, 7, 6, 4, 2, 0),
    travels="c",
    factor="i",
    extents=(1, 8192, 1024, 8192),
    blocks=(1, 512, 1024, 1024),
    a=TiledArray((1, 8192, 1024), "bfloat16"),
    b=TiledArray((1, 1024, 8192), "bfloat16"),
    c=TiledArray((1, 1024, 8192), "bfloat16"),
    inbox=TiledArray((7, 1, 1024, 8192), "bfloat16"),
    scratch=(
        pltpu.VMEM((2, 512, 1024), jnp.bfloat16),
        pltpu.VMEM((8, 1024, 1024), jnp.bfloat16),
        pltpu.VMEM((1, 512, 1024), jnp.float32),
        pltpu.VMEM((2, 512, 1024), jnp.bfloat16),
        pltpu.VMEM((2, 512, 1024), jnp.bfloat16),
        pltpu.SemaphoreType.DMA((2,)),
        pltpu.SemaphoreType.DMA((8,)),
        pltpu.SemaphoreType.DMA((2,)),
        pltpu.SemaphoreType.DMA((2,)),
        pltpu.SemaphoreType.DMA((2, 7)),
    ),
    out="bfloat16",
    vmem=112 << 20,  # the limit in bytes for the blocks and the compiler's own use
    collective_id=27588,
    lead=0,
)


def _multiply(a, b, interpret):
    """Return a device's shard of the product, given its operand shards; called inside shard_map."""
    # 1. Each device multiplies 8192 x 1024 by 1024 x 8192, 137438953472 flops, while parts travel
    #    both ways round rings: out, reduce_scatter over "i": [{}, {}], unreduced={"i"} -> [{"i"},
    #    {}]
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
