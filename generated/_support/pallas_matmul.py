"""Matmuls in which parts go round a ring while devices multiply, as one Pallas kernel.

Either parts of an operand travel, and every device multiplies each of them as it comes by; or parts
of the result do, and every device adds its term to each (`pallas_products`).

A matmul is a[batch, i, j] b[batch, j, k] here.
"""

import math

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental.pallas import tpu as pltpu

from .jax_matmul import ArrayMatmul
from .pallas_blocks import DIM_J, DIMS, LANES, BlockedArray, halves_of
from .pallas_products import STRETCH, Memory, RingKernel
from .pallas_program import HBM, Call, are_near, is_v5e, refuse_far
from .xla_program import at
from .xla_steps import groups_along

FACTORS = ("batch", "i", "j", "k")


class PallasMatmul(ArrayMatmul):
    """A matmul whose module has a kernel; `ring`: that, None where nothing travels while devices
    multiply."""

    interpreted = pltpu.InterpretParams(detect_races=True)

    def __init__(self, *given, ring=None, **settings):
        super().__init__(*given, **settings)
        self.ring = ring

    def matmul(self, a, b, mesh, *, interpret=False):
        """Return the product of two global arrays, as `ArrayMatmul.matmul`; `interpret`: True, or
        `pltpu.InterpretParams`, to interpret the kernel on CPU devices."""
        return self.multiplied(a, b, mesh, interpret)

    def product(self, a, b, interpret):
        """Return the shard of the result on a device, its padding left as it comes."""
        return self._multiply(a, b, interpret)

    def multiplied(self, a, b, mesh, interpret=False):
        """Return the product. Raises ValueError for devices among which parts cannot travel."""
        self.check_mesh(mesh)
        if self.ring and not interpret:
            self.ring.check_routes(list(np.ravel(mesh.devices)))
        return super().multiplied(a, b, mesh, interpret)


class RingMatmul:
    """A product while parts go round rings. `travels`: "a", "b" or "c", parts along a `factor`.
    `axes`: those over which `devices` are ranked; `digits` of a position: its part; `order`: the
    parts of a ring in the order of its devices; `ways`: 2 where halves of parts go both ways.
    `extents`, `blocks`: of a device's product, and of a block's, (batch, i, j, k); `stays`: whether
    all blocks of the operand that does not travel stay in VMEM, of which a kernel may take `vmem`
    bytes; `keeps`: whether all sums do, where every part adds to all; `dtypes`: of operands, of
    sums, of the result; `lead`: the dimension of the batch that comes first."""

    def __init__(
        self, travels, factor, axes, *, devices, digits, order, ways, extents, blocks, stays, keeps,
        dtypes, vmem, collective_id, lead=0,
    ):  # fmt: skip
        self.travels, self.factor, self.ways = travels, FACTORS.index(factor), ways
        self.axes, self.devices, self.digits, self.order = axes, devices, digits, order
        self.size, self.gathers = len(order), travels != "c"
        self.extents, self.blocks, self.has_stayed = extents, blocks, stays
        self.dtype, self.wide, self.out = map(jnp.dtype, dtypes)
        self.vmem, self.collective_id, self.lead = vmem, collective_id, lead
        own = list(extents)
        own[self.factor] //= self.size
        unit = (1, 32 // min(self.dtype.itemsize, self.out.itemsize), LANES, LANES)[self.factor]
        halves = halves_of(own[self.factor], ways, unit, blocks[self.factor])
        # The largest of what goes on one way of a part.
        self.exact = [halves[0] if f == self.factor else own[f] for f in range(4)]
        self.counts = [-(-size // block) for size, block in zip(self.exact, blocks, strict=True)]
        # Where the last block along j ends, by way, if it is not whole.
        ends = halves if self.factor == DIM_J else (own[DIM_J],)
        before = (self.counts[DIM_J] - 1) * blocks[DIM_J]
        self.ends = tuple(end - before for end in ends)
        if all(end == blocks[DIM_J] for end in self.ends):
            self.ends = ()
        self.tiles = math.prod(self.counts) // self.counts[DIM_J]  # blocks of the result
        self.rounds = self.size * ways
        # Parts along j all add to the whole result: to sums in VMEM, or to what is in HBM of it.
        self.keeps_sums = self.factor == DIM_J and keeps
        self.sums_in_hbm = self.factor == DIM_J and not keeps
        self.adds = self.sums_in_hbm or not self.gathers
        # What is added to in HBM is wide.
        self._stored = self.wide if self.sums_in_hbm else self.out
        self.arrays = {
            side: BlockedArray(
                DIMS[side], own, self.factor, 1 if side == travels else self.size, halves, unit,
                (self._stored if side == "c" else self.dtype).itemsize,
            )
            for side in "abc"
        }  # fmt: skip
        self.come = self.arrays[travels].apart()
        # One product makes all of a block's sums, which then need not begin as zero.
        self.is_whole = not self.keeps_sums and self.exact[DIM_J] <= blocks[DIM_J] <= STRETCH

    def block(self, side):
        """Return the shape of a block in VMEM."""
        return tuple(self.blocks[f] for f in DIMS[side][1:])

    def stays(self, side):
        """Return whether all blocks of an operand stay in VMEM once they are there."""
        return self.has_stayed and side != self.travels and self.factor not in DIMS[side]

    def slots(self, side):
        """Return how many blocks of an operand are in VMEM."""
        return math.prod(self.counts[f] for f in DIMS[side]) if self.stays(side) else 2

    def rings(self):
        """Return, by position, the place in its ring and the positions of the next device and of
        the one before, then the parts in the order of the ring."""
        table = np.zeros((self.devices, 3 + self.size), np.int32)
        table[:, 3:] = self.order
        for group in groups_along(self.devices, *self.digits):
            ring = [group[part] for part in self.order]
            for place, position in enumerate(ring):
                ends = ring[(place + 1) % self.size], ring[place - 1]
                table[position, :3] = (place, *ends)
        return table

    def product(self, a, b, interpret):
        """Return the product of what a device has of a and b, padding of both along j zero."""
        rest = tuple(size for axis, size in enumerate(a.shape[:-2]) if axis != self.lead)
        table = jnp.asarray(at(self.rings(), lax.axis_index(self.axes)))[None]
        a_array, b_array, c_array = self.arrays.values()
        c, _ = Call(table, interpret, self.collective_id).run(
            self.kernel,
            a_array.packed(self._flat(a), interpret),
            b_array.packed(self._flat(b), interpret),
            out_shape=[pltpu.HBM(*each) for each in self.made(interpret)],
            out_specs=[HBM, HBM],
            scratch_shapes=self.scratch(),
            compiler_params=pltpu.CompilerParams(
                has_side_effects=True,
                collective_id=self.collective_id,
                vmem_limit_bytes=self.vmem,
            ),
        )
        c = c_array.unpacked(c).astype(self.out)
        if a.ndim == 2:
            return c[0]
        return jnp.moveaxis(c.reshape(-1, *rest, *c.shape[1:]), 0, self.lead)

    def check_routes(self, devices):
        """Raise ValueError where a device is not a TPU, or a v5e does not send to the next one of
        its ring directly; `devices`: by position."""
        if devices[0].platform != "tpu":
            got = f"mesh: got devices of platform {devices[0].platform}, expected TPUs"
            raise ValueError(f"{got}; interpret=True tries it slowly")
        after = self.rings()[:, 1]
        if is_v5e(devices):
            near = are_near(devices, np.arange(len(devices)), after)
            refuse_far(near, "emit the module with the topology of its devices")

    def made(self, interpret):
        """Return shape and dtype of the result, and of the places for parts that come."""
        c, come = self.arrays["c"].given(interpret), self.come.given(interpret)
        dtype = self.dtype if self.gathers else self.out
        return (c, self._stored), ((self.size - 1, *come), dtype)

    def scratch(self):
        """Return what the kernel has in VMEM, and its semaphores: see `Memory`."""
        dma, tile, out = pltpu.SemaphoreType.DMA, self.block("c"), self._stored
        sums, terms = self.tiles if self.keeps_sums else 1, tile if self.adds else (8, 128)
        return [
            *(pltpu.VMEM((self.slots(side), *self.block(side)), self.dtype) for side in "ab"),
            pltpu.VMEM((sums, *tile), self.wide),
            *(pltpu.VMEM((2, *shape), out) for shape in (tile, terms)),
            *(dma((self.slots(side),)) for side in "ab"),
            *(dma((2,)), dma((2,)), dma((self.ways,)), dma((self.ways, self.size - 1))),
        ]

    def _flat(self, x):
        """Return an operand with one dimension for those of the batch."""
        x = jnp.moveaxis(x, self.lead, 0) if x.ndim > 2 else x
        return x.reshape(-1, *x.shape[-2:])

    memory = Memory

    def kernel(self, rings, *memory):
        """Multiply all parts, and pass them on; `rings`: this device's row of the table."""
        RingKernel(self, rings, Memory(*memory)).run()
