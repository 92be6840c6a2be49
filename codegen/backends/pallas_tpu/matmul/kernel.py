"""The geometry of a matmul kernel: the side that travels, its rings, and its blocks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from shardwright.codegen.backends.pallas_tpu.matmul.arrays import BlockedArray
from shardwright.codegen.backends.pallas_tpu.matmul.blocks import (
    DIM_J,
    DIMS,
    FACTORS,
    MAX_DEPTH,
    BlockSizes,
    Extents,
    LocalProduct,
    halves_of,
    unit_of,
)
from shardwright.codegen.backends.pallas_tpu.memory import LANES, round_up
from shardwright.codegen.hardware.chips import CHIPS
from shardwright.codegen.hardware.presets import device_of, topology_of
from shardwright.codegen.moves.network.collectives import positions_of_groups
from shardwright.ir.dtypes import itemsize
from shardwright.ir.errors import InputError, InternalError
from shardwright.ir.exchange import ids_of
from shardwright.ir.matmul import Matmul, Side
from shardwright.ir.matmul_plan import Loop, MatmulPlan

NAMES: dict[Side, str] = {"lhs": "a", "rhs": "b", "out": "c"}
LEAST_VMEM = 16 * 2**20
"""The bytes of VMEM that a kernel may use on every chip."""
MOST_SEMAPHORES = 192
"""The most semaphores for arriving parts. A kernel may have about 256 semaphores in all."""


@dataclass(frozen=True)
class BlockedProduct:
    """A device's product in blocks, while the parts of one side travel around rings.

    `travels`: the side that travels, split along `factor` into parts; `size`: the number of devices
    in a ring, which is also the number of parts; `extents`: the extents of the product, (batch, i,
    j, k); `halves`: the extents along `factor` of a part's halves, one per direction; `blocks`: the
    extents of a block; `stays`: whether all blocks of the operand that does not travel stay in
    VMEM; `keeps`: whether all sums stay in VMEM, if every part adds to all of them; `dtype`,
    `sum_dtype`, `out_dtype`: the dtypes of the operands, the sums and the result."""

    travels: str
    factor: int
    size: int
    extents: Extents
    halves: tuple[int, ...]
    blocks: Extents
    stays: bool
    keeps: bool
    dtype: str
    sum_dtype: str
    out_dtype: str

    @property
    def ways(self) -> int:
        """The number of directions in which parts travel: 1 or 2."""
        return len(self.halves)

    @property
    def gathers(self) -> bool:
        """Whether an operand travels, rather than the result."""
        return self.travels != "c"

    @property
    def part(self) -> Extents:
        batch, i, j, k = (
            extent // self.size if f == self.factor else extent
            for f, extent in enumerate(self.extents)
        )
        return batch, i, j, k

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """The number of blocks in the larger half of a part, by factor."""
        ends = (max(self.halves) if f == self.factor else end for f, end in enumerate(self.part))
        return tuple(-(-end // block) for end, block in zip(ends, self.blocks, strict=True))

    @property
    def tiles(self) -> int:
        """The number of result blocks to which half a part adds."""
        return math.prod(self.counts) // self.counts[DIM_J]

    @property
    def rounds(self) -> int:
        """The number of half parts that a device processes."""
        return self.size * self.ways

    @property
    def products(self) -> int:
        return self.rounds * math.prod(self.counts)

    @property
    def keeps_sums(self) -> bool:
        """Whether parts along j all add to the same sums, kept in VMEM."""
        return self.factor == DIM_J and self.keeps

    @property
    def sums_in_hbm(self) -> bool:
        """Whether parts along j all add to the same sums, kept in the result in HBM."""
        return self.factor == DIM_J and not self.keeps

    @property
    def stored(self) -> str:
        """The dtype of the result in HBM, or the dtype of the sums if they are accumulated
        there."""
        return self.sum_dtype if self.sums_in_hbm else self.out_dtype

    @property
    def whole(self) -> bool:
        """Whether one multiplication completes a block's sums, which then need not be cleared
        first."""
        one = self.counts[DIM_J] == 1 and self.blocks[DIM_J] <= MAX_DEPTH
        return not self.keeps_sums and one

    @property
    def ends_along_j(self) -> tuple[int, ...]:
        """The size of the last block along j, one per direction, or () if it is a full block."""
        ends = self.halves if self.factor == DIM_J else (self.part[DIM_J],)
        found = tuple(end - (self.counts[DIM_J] - 1) * self.blocks[DIM_J] for end in ends)
        return () if all(end == self.blocks[DIM_J] for end in found) else found

    def dtype_of(self, side: str) -> str:
        return self.stored if side == "c" else self.dtype

    def stays_in_vmem(self, side: str) -> bool:
        """Return whether all blocks of an operand stay in VMEM."""
        return self.stays and side != self.travels and self.factor not in DIMS[side]

    @cached_property
    def arrays(self) -> dict[str, BlockedArray]:
        unit = unit_of(self.factor, self.dtype, self.out_dtype)
        return {
            side: BlockedArray.of(
                side,
                self.part,
                self.blocks,
                self.factor,
                1 if side == self.travels else self.size,
                self.halves,
                round_up(self.halves[0], unit),
                itemsize(self.dtype_of(side)),
            )
            for side in DIMS
        }

    @cached_property
    def come(self) -> BlockedArray:
        """The array into which the part that arrives in a step is written."""
        return self.arrays[self.travels].come(tiled=not self.gathers)


@dataclass(frozen=True)
class MatmulRing:
    """The kernel of a plan's loop. `extents`: the extents of a device's product, (batch, i, j, k);
    `factor`: the factor along which parts are cut; `halves`: the extents along that factor of a
    part's halves, one per direction; `vmem`: the kernel's VMEM limit in bytes."""

    matmul: Matmul
    loop: Loop
    extents: Extents
    factor: int
    halves: tuple[int, ...]
    vmem: int
    blocks: BlockSizes

    @staticmethod
    def of(plan: MatmulPlan, loop: Loop) -> MatmulRing:
        """Return the kernel of a plan's loop.

        Raises InputError for a ring with too many devices, or one whose neighbours cannot send to
        each other directly.
        """
        matmul = plan.matmul
        if loop.directions * (loop.count - 1) > MOST_SEMAPHORES:
            raise InputError(
                "the ring is too long: its kernel needs a semaphore for every incoming part",
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
        raise InternalError(f"{part} elements cannot be halved")

    @property
    def carried(self) -> int:
        """The bytes that a device receives, counting whole memory tiles."""
        size = itemsize(self.matmul.dtype_of(self.loop.side))
        tiles = 1, 8 if size > 1 else 32, LANES
        part = size
        for f, tile in zip(DIMS[NAMES[self.loop.side]], tiles, strict=True):
            ends = self.halves if f == self.factor else (self.extents[f],)
            part *= sum(round_up(end, tile) for end in ends)
        return (self.loop.count - 1) * part

    @property
    def product(self) -> BlockedProduct:
        return BlockedProduct(
            NAMES[self.loop.side],
            self.factor,
            self.loop.count,
            self.extents,
            self.halves,
            self.blocks.sizes,
            self.blocks.stays,
            self.blocks.keeps,
            self.matmul.dtype,
            self.matmul.sum_dtype,
            self.matmul.out_dtype,
        )

    @property
    def parts(self) -> tuple[int, ...]:
        """The part number at each position of a ring. Partial sums that travel in a single
        direction go down the loop's order, so for them the order is reversed."""
        loop = self.loop
        is_down = loop.directions == 1 and loop.side == "out"
        return loop.places[::-1] if is_down else loop.places

    @property
    def rings(self) -> list[tuple[int, ...]]:
        """The device positions of each ring, in ring order."""
        groups = positions_of_groups(self.loop.digits, self.matmul.mesh.size)
        return [tuple(ring) for ring in groups[:, list(self.parts)].tolist()]

    def facts(self) -> tuple[str, ...]:
        """Return the docstring lines that describe the kernel."""
        loop, blocks = self.loop, self.blocks
        _, i, j, k = blocks.sizes
        what = {"lhs": "Parts of A", "rhs": "Parts of B", "out": "Partial sums of C"}[loop.side]
        halves = ", one half in each direction" if loop.directions == 2 else ""
        text = f"{what}, cut along {FACTORS[self.factor]}, travel round rings of {loop.count} "
        text += f"devices{halves}, inside the matmul kernel. "
        text += f"Blocks of A are {i} x {j}, of B {j} x {k}"
        text += ", smaller at the ends" if self._is_cut() else ""
        kept = [side.upper() for side in "ab" if self.product.stays_in_vmem(side)]
        kept += ["all sums"] * blocks.keeps
        verb = "stays" if len(kept) == 1 and not blocks.keeps else "stay"
        stay = f"; {' and '.join(kept)} {verb} in VMEM" if kept else ""
        return (f"{text}{stay}. The kernel uses {-(-blocks.nbytes >> 10)} KiB of VMEM.",)

    def _is_cut(self) -> bool:
        return any(
            end % block
            for n, (extent, block) in enumerate(zip(self.extents, self.blocks.sizes, strict=True))
            for end in (self.halves if n == self.factor else (extent,))
        )


def _check_reach(matmul: Matmul, loop: Loop, topology: str | None) -> None:
    if topology is None:
        return
    rings = ids_of(matmul.mesh)[positions_of_groups(loop.digits, matmul.mesh.size)][:, loop.places]
    after = np.roll(rings, -1, axis=1)
    if (topology_of(topology).messages(rings.ravel(), after.ravel()) > 1).any():
        raise InputError(
            "every device of a ring must have a direct link to the next device",
            argument="loop",
            got=f"rings as {rings[0].tolist()}",
            expected='a mesh that lists devices in the order of the topology, or loop="never"',
        )


def _vmem(topology: str | None) -> int:
    """Return a kernel's VMEM limit in bytes for the chips of a topology. Without a topology, return
    a limit that holds on every chip."""
    name = "" if topology is None else device_of(topology_of(topology))
    found = (chip.vmem_bytes for chip in CHIPS if chip.generation == name)
    # The compiler itself needs VMEM, of undocumented size: leave it an eighth.
    return max(LEAST_VMEM, next(found, 0) * 7 // 8 >> 20 << 20)
