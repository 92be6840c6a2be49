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
    halves_of,
    unit_of,
)
from shardwright.codegen.backends.pallas_tpu.memory import LANES, round_up
from shardwright.codegen.emit.python_text import called
from shardwright.codegen.hardware.chips import CHIPS
from shardwright.codegen.hardware.presets import device_of, topology_of
from shardwright.codegen.planner.network.collectives import positions_of_groups
from shardwright.ir.dtypes import itemsize
from shardwright.ir.errors import InputError, InternalError
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
    which parts are along `factor`, with `halves` that go on its ways; `vmem`: bytes that the kernel
    may take."""

    matmul: Matmul
    loop: Loop
    extents: Extents
    factor: int
    halves: tuple[int, ...]
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
        unit, part = unit_of(factor, matmul.dtype, matmul.out_dtype), extents[factor] // loop.count
        first = min(part, round_up(-(-part // loop.directions), unit))
        for largest in (first, part // loop.directions):
            b, i, j, k = (largest if n == factor else size for n, size in enumerate(extents))
            sides = NAMES[loop.side], factor, matmul.dtype, matmul.out_dtype
            blocks = LocalProduct((b, i, j, k), *sides).blocks(vmem)
            halves = halves_of(part, loop.directions, unit, blocks.sizes[factor])
            if halves[0] == largest:
                return MatmulRing(matmul, loop, extents, factor, halves, vmem, blocks)
        raise InternalError(f"no halves of {part} elements")

    @property
    def carried(self) -> int:
        """Bytes that come to a device, in whole tiles of memory."""
        size = itemsize(self.matmul.dtype_of(self.loop.side))
        tiles = 1, 8 if size > 1 else 32, LANES
        part = size
        for f, tile in zip(DIMS[NAMES[self.loop.side]], tiles, strict=True):
            ends = self.halves if f == self.factor else (self.extents[f],)
            part *= sum(round_up(end, tile) for end in ends)
        return (self.loop.count - 1) * part

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
        text += ", fewer at the ends" if self._is_cut() else ""
        kept = [said for said, holds in (("the operand that does not travel", blocks.stays),
                ("all sums", blocks.keeps)) if holds]  # fmt: skip
        stay = f"; {' and '.join(kept)} in VMEM" if kept else ""
        return (f"{text}{stay}. It takes {-(-blocks.nbytes >> 10)} KiB of VMEM.",)

    def _is_cut(self) -> bool:
        """Return whether any block reaches over its extent."""
        return any(
            end % block
            for n, (extent, block) in enumerate(zip(self.extents, self.blocks.sizes, strict=True))
            for end in (self.halves if n == self.factor else (extent,))
        )


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
    name = "" if topology is None else device_of(topology_of(topology))
    found = (chip.vmem_bytes for chip in CHIPS if chip.generation == name)
    # The compiler takes some for itself, of which it does not say how much.
    return max(LEAST_VMEM, next(found, 0) * 7 // 8 >> 20 << 20)
