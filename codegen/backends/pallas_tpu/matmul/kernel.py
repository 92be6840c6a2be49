"""The kernel of a matmul: what travels, round which rings, in which blocks."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from shardwright.codegen.backends.pallas_tpu.matmul.blocks import (
    BATCH,
    DIMS,
    BlockSizes,
    Extents,
    LocalProduct,
)
from shardwright.codegen.backends.pallas_tpu.memory import round_up
from shardwright.codegen.emit.python_text import called
from shardwright.codegen.hardware.chips import CHIPS
from shardwright.codegen.hardware.presets import name_of, topology_of
from shardwright.codegen.planner.network.collectives import positions_of_groups
from shardwright.ir.dtypes import itemsize
from shardwright.ir.errors import InputError
from shardwright.ir.exchange import ids_of
from shardwright.ir.matmul import Matmul, Side
from shardwright.ir.matmul_plan import Loop, MatmulPlan

FACTORS = ("batch", "i", "j", "k")
NAMES: dict[Side, str] = {"lhs": "a", "rhs": "b", "out": "c"}
LEAST_VMEM = 16 * 2**20
"""What a kernel may take on every chip."""
MOST_SEMAPHORES = 192
"""For parts that come, of about 256 that a kernel may have."""


@dataclass(frozen=True)
class MatmulRing:
    """A loop as a kernel carries it out. `extents`: of a device's product, (batch, i, j, k), of
    which parts are along `factor`; `vmem`: bytes that the kernel may take."""

    matmul: Matmul
    loop: Loop
    extents: Extents
    factor: int
    vmem: int
    blocks: BlockSizes

    @staticmethod
    def of(plan: MatmulPlan, loop: Loop) -> MatmulRing:
        """Return the kernel of a plan's loop. Raises InputError for a ring of too many devices."""
        matmul = plan.matmul
        if loop.directions * (loop.count - 1) > MOST_SEMAPHORES:
            raise InputError(
                "a kernel has a semaphore for every part that comes, and there are not so many",
                argument="loop",
                got=f"a ring of {loop.count} devices",
                expected=f"at most {MOST_SEMAPHORES // loop.directions + 1}",
            )
        _check_reach(matmul, loop, plan.topology)
        *batch, i, j, k = plan.chosen.multiplication.local_extents
        extents = math.prod(batch), i, j, k
        factor = max(0, loop.factor - len(batch) + 1)
        vmem = _vmem(plan.topology)
        parts = [loop.count * loop.directions * (n == factor) or 1 for n in range(4)]
        b, i, j, k = (size // count for size, count in zip(extents, parts, strict=True))
        product = LocalProduct(
            (b, i, j, k), NAMES[loop.side], factor, matmul.dtype, matmul.out_dtype
        )
        return MatmulRing(matmul, loop, extents, factor, vmem, product.blocks(vmem))

    @property
    def carried(self) -> int:
        """Bytes that come to a device, padding included."""
        side = NAMES[self.loop.side]
        half = math.prod(self._padded()[f] for f in DIMS[side])
        size = itemsize(self.matmul.dtype_of(self.loop.side))
        return (self.loop.count - 1) * self.loop.directions * half * size

    def lines(self, collective_id: int, name: str = "_RING", axes: str = "AXES") -> tuple[str, ...]:
        """Return the constant of a module, of a name; `axes`: over which devices are ranked."""
        loop, blocks, dtypes = self.loop, self.blocks, self.matmul
        given = [
            f'"{NAMES[loop.side]}"',
            f'"{FACTORS[self.factor]}"',
            axes,
            f"devices={self.matmul.mesh.size}",
            f"digits={loop.digits}",
            f"order={self._order()}",
            f"ways={loop.directions}",
            f"extents={self.extents}",
            f"blocks={blocks.sizes}",
            f"stays={blocks.stays}",
            f"keeps={blocks.keeps}",
            f'dtypes=("{dtypes.dtype}", "{dtypes.sum_dtype}", "{dtypes.out_dtype}")',
            f"vmem={self.vmem >> 20} << 20",
            f"collective_id={collective_id}",
        ]
        given += [f"lead={self.loop.factor}"] if self.factor == BATCH and self.loop.factor else []
        return tuple(called(f"{name} = RingMatmul", given))

    def _order(self) -> str:
        """Return the order of parts in a ring; one way, partial sums go down it."""
        loop = self.loop
        is_down = loop.directions == 1 and loop.side == "out"
        if loop.order:
            return str(loop.order[::-1] if is_down else loop.order)
        return f"range({loop.count})" + ("[::-1]" if is_down else "")

    def facts(self) -> tuple[str, ...]:
        """Return what a module's docstring says of the kernel."""
        loop, blocks = self.loop, self.blocks
        _, i, j, k = blocks.sizes
        what = {"lhs": "Parts of A", "rhs": "Parts of B", "out": "Partial sums of C"}[loop.side]
        halves = ", a half of each up and one down" if loop.directions == 2 else ""
        text = f"{what} along {FACTORS[self.factor]} go round rings of {loop.count} devices{halves}"
        text += f", in one kernel with the product: blocks of A {i} x {j}, of B {j} x {k}"
        text += ", padded to that" if self._own() != self._padded() else ""
        kept = [said for said, holds in (("the operand that does not travel", blocks.stays),
                ("all sums", blocks.keeps)) if holds]  # fmt: skip
        stay = f"; {' and '.join(kept)} in VMEM" if kept else ""
        return (f"{text}{stay}. It takes {-(-blocks.nbytes >> 10)} KiB of VMEM.",)

    def _own(self) -> list[int]:
        """Return the extents of what goes on one way of a part."""
        parts = self.loop.count * self.loop.directions
        return [e // (parts if n == self.factor else 1) for n, e in enumerate(self.extents)]

    def _padded(self) -> list[int]:
        pairs = zip(self._own(), self.blocks.sizes, strict=True)
        return [round_up(size, block) for size, block in pairs]


def _check_reach(matmul: Matmul, loop: Loop, topology: str | None) -> None:
    """Raise InputError for a ring along which devices of a topology do not send directly."""
    if topology is None:
        return
    rings = ids_of(matmul.mesh)[positions_of_groups(loop.digits, matmul.mesh.size)][:, loop.places]
    after = np.roll(rings, -1, axis=1)
    if (topology_of(topology).messages(rings.ravel(), after.ravel()) > 1).any():
        raise InputError(
            "devices of the topology do not send directly to the next one of their ring",
            argument="loop",
            got=f"rings as {rings[0].tolist()}",
            expected='devices in the order of the topology, or "never"',
        )


def _vmem(topology: str | None) -> int:
    """Return what a kernel may take on the chips of a topology, on any chip without one."""
    name = "" if topology is None else name_of(topology_of(topology)).partition(":")[0]
    found = (chip.vmem_bytes for chip in CHIPS if chip.generation == name)
    # The compiler takes some for itself, of which it does not say how much.
    return max(LEAST_VMEM, next(found, 0) * 7 // 8 >> 20 << 20)
