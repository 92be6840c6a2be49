"""Matmuls whose operand parts or sums move around rings during the product: the code around the
module's kernel."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental.pallas import tpu as pltpu

from .jax_matmul import ArrayMatmul
from .pallas_call import HBM, Call


class PallasMatmul(ArrayMatmul):
    """A matmul whose module has a kernel; `ring`: a `RingMatmul`, None if no parts move during
    the product."""

    def __init__(self, *given, ring=None, **settings):
        super().__init__(*given, **settings)
        self.ring = ring

    def matmul(self, a, b, mesh, *, interpret=False):
        """Return the product of two global arrays, like `ArrayMatmul.matmul`. `interpret`: True or
        `pltpu.InterpretParams` to interpret the kernel on CPU devices."""
        return self.multiplied(a, b, mesh, interpret)

    def product(self, a, b, interpret):
        """Return the shard of the result on a device, with arbitrary padding."""
        return self._multiply(a, b, interpret)

    def watched(self, multiply):
        """Return a product in a self-check; exit if its kernel races."""
        from .pallas_watched import watched  # only if the product takes few flops

        return watched(multiply)

    def multiplied(self, a, b, mesh, interpret=False):
        """Return the product. Raises ValueError for devices that cannot send to their ring
        neighbours."""
        self.meshes(mesh)
        if self.ring and not interpret:
            self.ring.check_routes(list(np.ravel(mesh.devices)))
        return super().multiplied(a, b, mesh, interpret)


class TiledArray(NamedTuple):
    """An array of whole memory tiles, which a kernel takes as it is."""

    shape: tuple
    dtype: str

    def in_hbm(self, _interpret):
        """Return the array's type in HBM."""
        return pltpu.HBM(self.shape, jnp.dtype(self.dtype))

    def packed(self, x, _interpret):
        """Return the array in the kernel's form."""
        return x

    def unpacked(self, x):
        """Invert `packed`."""
        return x


class RingMatmul:
    """A matmul that multiplies while parts move around rings. `axes`: the mesh axes that number the
    devices; `rings`: for each ring, its positions in order; `parts`: the index of the part by place
    in a ring; `a`, `b`, `c`, `inbox`: the operands, the result and the array for arriving parts,
    each a `TiledArray` or `BlockedArray`; `scratch`: the kernel's VMEM arrays and semaphores;
    `vmem`: its VMEM limit in bytes; `out`: the dtype of the result; `lead`: the batch dimension
    that comes first in the kernel.

    Only checks read the following: `travels`, the array whose parts move; `factor`, the index
    along which it is cut; `extents`, the (batch, i, j, k) of a device's product; `blocks`, its
    blocks."""

    def __init__(
        self, kernel, axes, rings, parts, *, travels, factor, extents, blocks, a, b, c, inbox,
        scratch, out, vmem, collective_id, lead=0,
    ):  # fmt: skip
        self.kernel, self.axes, self.rings, self.parts = kernel, axes, rings, parts
        self.travels, self.factor, self.extents, self.blocks = travels, factor, extents, blocks
        self.a, self.b, self.c, self.inbox = a, b, c, inbox
        self.scratch, self.out, self.vmem = scratch, out, vmem
        self.collective_id, self.lead = collective_id, lead

    def check_routes(self, devices):
        """Raise ValueError for devices that are not TPUs, or cannot reach their ring neighbours."""
        from .pallas_order import check_ring  # only on TPUs

        check_ring(self, devices)

    def table(self):
        """Return the kernel's table, one row per position: the place in the ring, the next and
        the previous position, and the indices of the parts."""
        rows = np.zeros((np.size(self.rings), 3 + len(self.parts)), np.int32)
        for ring in self.rings:
            ends = zip(ring, np.roll(ring, -1), np.roll(ring, 1), strict=True)
            for place, (position, after, before) in enumerate(ends):
                rows[position] = place, after, before, *self.parts
        return rows

    def product(self, a, b, interpret):
        """Return the product of a device's operands, whose padding along j must be zero."""
        a, b = (jnp.moveaxis(x, self.lead, 0) for x in (a, b))
        row = lax.dynamic_slice_in_dim(jnp.asarray(self.table()), lax.axis_index(self.axes), 1)
        c, _ = Call(row, interpret, self.collective_id).run(
            self.kernel,
            self.a.packed(a.reshape(-1, *a.shape[-2:]), interpret),
            self.b.packed(b.reshape(-1, *b.shape[-2:]), interpret),
            out_shape=[each.in_hbm(interpret) for each in (self.c, self.inbox)],
            out_specs=[HBM, HBM],
            scratch_shapes=self.scratch,
            compiler_params=pltpu.CompilerParams(
                has_side_effects=True,
                collective_id=self.collective_id,
                vmem_limit_bytes=self.vmem,
            ),
        )
        c = self.c.unpacked(c).astype(self.out)
        return jnp.moveaxis(c.reshape(*a.shape[:-2], *c.shape[1:]), 0, self.lead)
