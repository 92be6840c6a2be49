"""Matmuls in which parts go round a ring while devices multiply, as one Pallas kernel.

Either parts of an operand travel, and every device multiplies each of them as it comes by; or parts
of the result do, and every device adds its term to each (`pallas_products`).

A matmul is a[batch, i, j] b[batch, j, k] here, all extents padded to blocks.
"""

import math

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental.pallas import tpu as pltpu

from .jax_matmul import ArrayMatmul
from .pallas_products import DIM_J, DIMS, STRETCH, Memory, RingKernel
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
        parts = [self.size * ways if f == self.factor else 1 for f in range(4)]
        self.exact = [extent // count for extent, count in zip(extents, parts, strict=True)]
        self.counts = [-(-size // block) for size, block in zip(self.exact, blocks, strict=True)]
        # What is of one way: a part, or half of one.
        self.padded = [n * block for n, block in zip(self.counts, blocks, strict=True)]
        self.tiles = math.prod(self.counts) // self.counts[DIM_J]  # blocks of the result
        self.rounds = self.size * ways
        # Parts along j all add to the whole result: to sums in VMEM, or to what is in HBM of it.
        self.keeps_sums = self.factor == DIM_J and keeps
        self.sums_in_hbm = self.factor == DIM_J and not keeps
        self.adds = self.sums_in_hbm or not self.gathers
        # One product makes all of a block's sums, which then need not begin as zero.
        self.is_whole = not self.keeps_sums and self.exact[DIM_J] <= blocks[DIM_J] <= STRETCH

    def pieces(self, side):
        """Return how many halves of parts an array has along the factor."""
        return self.ways if side == self.travels else self.rounds

    def shape(self, side):
        """Return the padded shape of an array."""
        return tuple(
            self.padded[f] * (self.pieces(side) if f == self.factor else 1) for f in DIMS[side]
        )

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
        table = jnp.asarray(at(self.rings(), lax.axis_index(self.axes)))
        c, _ = Call(table, interpret, self.collective_id).run(
            self.kernel,
            self._packed("a", a),
            self._packed("b", b),
            out_shape=[pltpu.HBM(*self.result()), pltpu.HBM(*self.places())],
            out_specs=[HBM, HBM],
            scratch_shapes=self.scratch(),
            compiler_params=pltpu.CompilerParams(
                has_side_effects=True,
                collective_id=self.collective_id,
                vmem_limit_bytes=self.vmem,
            ),
        )
        c = self._resized("c", c, self.padded, self.exact).astype(self.out)
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

    def result(self):
        """Return shape and dtype of the result; sums that are added to there are wide."""
        return self.shape("c"), self.wide if self.sums_in_hbm else self.out

    def places(self):
        """Return shape and dtype of the places for parts that come."""
        dtype = self.dtype if self.gathers else self.out
        return (self.size - 1, *self.shape(self.travels)), dtype

    def scratch(self):
        """Return what the kernel has in VMEM, and its semaphores: see `Memory`."""
        dma, tile, out = pltpu.SemaphoreType.DMA, self.block("c"), self.result()[1]
        sums, terms = self.tiles if self.keeps_sums else 1, tile if self.adds else (8, 128)
        return [
            *(pltpu.VMEM((self.slots(side), *self.block(side)), self.dtype) for side in "ab"),
            pltpu.VMEM((sums, *tile), self.wide),
            *(pltpu.VMEM((2, *shape), out) for shape in (tile, terms)),
            *(dma((self.slots(side),)) for side in "ab"),
            *(dma((2,)), dma((2,)), dma((self.ways,)), dma((self.ways, self.size - 1))),
        ]

    def _packed(self, side, x):
        """Return an operand as the kernel takes it: halves of parts, each padded to blocks."""
        x = jnp.moveaxis(x, self.lead, 0) if x.ndim > 2 else x
        return self._resized(side, x.reshape(-1, *x.shape[-2:]), self.exact, self.padded)

    def _resized(self, side, x, old, new):
        """Return an array with halves of parts of other extents: with zeros, or cut."""
        for axis, f in enumerate(DIMS[side]):
            if old[f] != new[f]:
                count = self.pieces(side) if f == self.factor else 1
                before, after = x.shape[:axis], x.shape[axis + 1 :]
                x = x.reshape(*before, count, old[f], *after)
                x = lax.slice_in_dim(x, 0, min(old[f], new[f]), axis=axis + 1)
                wider = [(0, max(0, new[f] - old[f]) * (n == axis + 1)) for n in range(x.ndim)]
                x = jnp.pad(x, wider).reshape(*before, count * new[f], *after)
        return x

    memory = Memory

    def kernel(self, rings, *memory):
        """Multiply all parts, and pass them on; `rings`: this device's row of the table."""
        RingKernel(self, rings, Memory(*memory)).run()
