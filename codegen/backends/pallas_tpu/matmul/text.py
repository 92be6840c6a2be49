"""The context of the matmul kernel templates: expressions, names, numbers and comments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shardwright.codegen.backends.pallas_tpu.matmul.arrays import by_way
from shardwright.codegen.backends.pallas_tpu.matmul.blocks import (
    BATCH,
    DIM_I,
    DIM_J,
    DIM_K,
    DIMS,
    FACTORS,
    depth_of,
)
from shardwright.codegen.backends.pallas_tpu.matmul.kernel import BlockedProduct, MatmulRing
from shardwright.codegen.backends.pallas_tpu.matmul.operands import (
    BlockedOperand,
    Buffer,
    NamedValue,
    bytes_of_block,
)
from shardwright.codegen.backends.pallas_tpu.memory import LANES
from shardwright.codegen.text.python_text import formatted
from shardwright.ir.dtypes import itemsize


@dataclass(frozen=True)
class MatmulKernel:
    """The context of a kernel's template. `name`: the constant that runs the kernel; `axes`: the
    mesh axes whose order gives device positions, as an expression."""

    ring: MatmulRing
    name: str
    axes: str
    collective_id: int

    @property
    def product(self) -> BlockedProduct:
        return self.ring.product

    @property
    def kernel(self) -> str:
        return f"{self.name.lower().strip('_')}_kernel"

    @property
    def signature(self) -> str:
        names = ["ring", "a", "b", "c", "inbox"]
        names += [each.name for each in self.buffers]
        names += [each.name for each in self.semaphores]
        return formatted(f"{self.kernel}({', '.join(names)})", 5, 0)

    @property
    def travels(self) -> str:
        return self.product.travels

    @property
    def factor(self) -> str:
        """The factor along which parts are cut."""
        return FACTORS[self.product.factor]

    @property
    def size(self) -> int:
        return self.product.size

    @property
    def last_step(self) -> int:
        return self.size - 1

    @property
    def ways(self) -> tuple[NamedValue, ...]:
        """The number of each direction, and the variable that holds the device upstream."""
        return tuple(
            NamedValue(str(way), sender)
            for way, sender in zip(range(self.product.ways), ("before", "after"), strict=False)
        )

    @property
    def ways_said(self) -> str:
        """The directions of travel, as the start of a sentence."""
        one = self.product.ways == 1
        return "Parts travel one way" if one else "Half of each part travels each way"

    @property
    def downstream(self) -> str:
        """The device to which this device sends parts in a direction, as an expression."""
        return "after" if self.product.ways == 1 else "jnp.where(way == 0, after, before)"

    @property
    def part(self) -> str:
        """The number of the part that a product uses, as an expression."""
        up, down = f"{self.size} - block.step", "block.step"
        if not self.product.gathers:
            up, down = f"{self.size - 1} - block.step", "block.step + 1"
        by = up if self.product.ways == 1 else f"jnp.where(block.way == 0, {up}, {down})"
        place = f"rem(place + {by}, {self.size})"
        return formatted(place if self._in_order else f"ring[0, 3 + {place}]", 15, 8)

    @property
    def _in_order(self) -> bool:
        return self.ring.parts == tuple(range(self.size))

    @property
    def digits(self) -> tuple[NamedValue, ...]:
        """The step, direction and block numbers of a product, as expressions of its number; numbers
        that are always 0 are left out."""
        product, order = self.product, [BATCH, DIM_I, DIM_K, DIM_J]
        sizes = [("step", product.size), *((FACTORS[f], product.counts[f]) for f in order)]
        sizes.insert(1 if product.gathers else 4, ("way", product.ways))
        found: list[NamedValue] = []
        after = 1
        for name, size in reversed(sizes):
            if size > 1:
                digit = "number" if after == 1 else f"div(number, {after})"
                digit = digit if name == "step" else f"rem({digit}, {size})"
                found.append(NamedValue(name, digit))
                after *= size
        return tuple(reversed(found))

    @property
    def order(self) -> str:
        """The order of products, for a comment: the names of the digits, fastest first."""
        return ", ".join(digit.name for digit in reversed(self.digits))

    @property
    def operands(self) -> tuple[BlockedOperand, ...]:
        return BlockedOperand("a", self.product), BlockedOperand("b", self.product)

    @property
    def begins_part(self) -> str:
        """Whether a product is the first that uses an arriving part, as an expression."""
        product = self.product
        blocks = [f"block.{FACTORS[f]}" for f in range(4) if product.counts[f] > 1]
        first = f"({' + '.join(blocks)} == 0) & " if blocks else ""
        return f"{first}(block.step > 0)" if first else "block.step > 0"

    @property
    def half(self) -> str:
        """Where the half that arrives in a step from a direction is stored, as an expression."""
        return formatted(self.product.come.half("inbox", "step"), 15, 8)

    @property
    def own_half(self) -> str:
        """The half of this device's own part that travels in a direction, as an expression."""
        return formatted(self.product.arrays[self.travels].half(self.travels), 15, 8)

    @property
    def half_bytes(self) -> str:
        """The sizes in bytes of the halves of a part, one per direction, for a comment."""
        found = [self.product.come.half_bytes(way) for way in range(self.product.ways)]
        if len(set(found)) == 1:
            return f"{found[0]:,} bytes"
        return f"{found[0]:,} bytes up, {found[1]:,} down"

    @property
    def ends(self) -> tuple[int, ...]:
        """The size of the last block along j, one per direction, or () if it is a full block."""
        return self.product.ends_along_j

    @property
    def end(self) -> str:
        """The size of the last block along j, as an expression; 0 if it is a full block."""
        ends = self.ends or (0,)
        return by_way(ends)

    @property
    def end_tile(self) -> int:
        """The number of the first lane tile in which the last block along j may end."""
        return min(self.ends, default=0) // LANES

    @property
    def last_j(self) -> int:
        """The number of the last block along j."""
        return self.product.counts[DIM_J] - 1

    @property
    def whole(self) -> bool:
        """Whether one multiplication completes a block's sums."""
        return self.product.whole

    @property
    def adds(self) -> bool:
        """Whether parts along j all add to the same sums, kept in the result in HBM."""
        return self.product.sums_in_hbm

    @property
    def keeps_sums(self) -> bool:
        """Whether parts along j all add to the same sums, kept in VMEM."""
        return self.product.keeps_sums

    @property
    def depth(self) -> int:
        """The number of elements along j that a kernel multiplies at a time."""
        return depth_of(self.product.blocks[DIM_J])

    @property
    def tile(self) -> str:
        """The number of the result block to which a product adds, as an expression."""
        count, tiles = self.product.counts[DIM_J], self.product.tiles
        if self.keeps_sums and tiles == 1:
            return "np.int32(0)"
        number = "block.number" if count == 1 else f"div(block.number, {count})"
        return f"rem({number}, {tiles})" if self.keeps_sums else number

    @property
    def sums(self) -> str:
        """The VMEM slot of a product's sums, as an expression."""
        return self.tile if self.keeps_sums else "np.int32(0)"

    @property
    def begins(self) -> str:
        """Whether a product is the first that adds to its sums, as an expression."""
        terms = ["block.j == 0"]
        if self.keeps_sums:
            terms += ["block.step == 0", *(["block.way == 0"] if self.product.ways > 1 else [])]
        return _all(terms)

    @property
    def finishes(self) -> str:
        """Whether a product is the last that adds to its sums, as an expression."""
        terms = [f"block.j == {self.last_j}"]
        if self.keeps_sums:
            terms.append(f"block.step == {self.last_step}")
            terms += ["block.way == 1"] if self.product.ways > 1 else []
        return _all(terms)

    @property
    def later(self) -> str:
        """Whether the result in HBM already has sums of an earlier part, as an expression."""
        return "block.step + block.way > 0" if self.product.ways > 1 else "block.step > 0"

    @property
    def two_before(self) -> int:
        """The number of products between a result block and the last earlier one that used the same
        slot."""
        return 2 * self.product.counts[DIM_J]

    @property
    def made(self) -> str:
        """The part of its VMEM slot `made` that a result block fills, as an expression."""
        return formatted(self.product.arrays["c"].place("made", "slot"), 15, 8)

    @property
    def terms(self) -> str:
        """The part of its VMEM slot `terms` that a block of earlier sums fills, as an
        expression."""
        return formatted(self.product.arrays["c"].place("terms", "slot"), 15, 8)

    @property
    def written(self) -> str:
        """Where a block is in the result, as an expression."""
        deeper = 4 * (not self.product.gathers)
        return formatted(self.product.arrays["c"].block("c"), 16 + deeper, 8 + deeper)

    @property
    def arrived(self) -> str:
        """Where a block of sums from another device has arrived, as an expression."""
        return formatted(self.product.come.block("inbox", "block.step - 1"), 15, 8)

    @property
    def sent(self) -> str:
        """Where on the next device a block of sums is sent, as an expression."""
        return formatted(self.product.come.block("inbox", "block.step"), 20, 12)

    @property
    def result_bytes(self) -> str:
        return bytes_of_block(self.product.arrays["c"], self.product, "c")

    @property
    def products(self) -> int:
        return self.product.products

    @property
    def last_product(self) -> int:
        return self.products - 1

    @property
    def unfinished(self) -> tuple[int, ...]:
        """The numbers of the products whose sums are still being copied out of VMEM after the last
        product."""
        product = self.product
        stores = product.tiles * (1 if product.keeps_sums else product.rounds)
        return tuple(
            self.last_product - last * product.counts[DIM_J] for last in range(min(stores, 2))
        )

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        product = self.product
        tile = (product.blocks[DIM_I], product.blocks[DIM_K])
        found = [
            Buffer(
                f"{x.name}_blocks",
                (x.slots, *(product.blocks[f] for f in DIMS[x.name][1:])),
                product.dtype,
                f"blocks of {x.name}; `read_{x.name}` counts the bytes read into each",
            )
            for x in self.operands
        ]
        count = product.tiles if product.keeps_sums else 1
        said = "sums of products"
        found.append(Buffer("sums", (count, *tile), product.sum_dtype, said))
        leaving = "c" if product.gathers else "c or the next device"
        said = f"sums that leave for {leaving}; `stored` counts them"
        found.append(Buffer("made", (2, *tile), product.stored, said))
        if product.sums_in_hbm or not product.gathers:
            said = "earlier sums, to be added; `added` counts their bytes read"
            found.append(Buffer("terms", (2, *tile), product.stored, said))
        return tuple(found)

    @property
    def semaphores(self) -> tuple[NamedValue, ...]:
        """The names of the semaphore arrays, with their shapes as expressions."""
        product = self.product
        found = [NamedValue(f"read_{x.name}", f"({x.slots},)") for x in self.operands]
        if product.sums_in_hbm or not product.gathers:
            found.append(NamedValue("added", "(2,)"))
        found.append(NamedValue("stored", "(2,)"))
        found += [NamedValue("sent", f"({product.ways},)")] if product.gathers else []
        return (*found, NamedValue("recv", f"({product.ways}, {product.size - 1})"))

    @property
    def vmem_bytes(self) -> str:
        return f"{sum(each.nbytes for each in self.buffers):,}"

    @property
    def vmem(self) -> str:
        return f"{self.ring.vmem >> 20} << 20"

    @property
    def rings(self) -> str:
        """The device positions of each ring, as an expression."""
        return formatted(str(tuple(self.ring.rings)), 5, 4)

    @property
    def parts(self) -> str:
        """The part numbers in ring order, as an expression."""
        return "()" if self._in_order else formatted(str(self.ring.parts), 5, 4)

    @property
    def arrays(self) -> tuple[NamedValue, ...]:
        return tuple(self._array(side) for side in DIMS)

    def _array(self, side: str) -> NamedValue:
        array = self.product.arrays[side]
        shapes = array.whole, array.shape
        return NamedValue(side, _stored(*shapes, self.product.dtype_of(side), array.pieces))

    @property
    def inbox(self) -> str:
        """The array for arriving parts, as an expression."""
        shape = self.size - 1, *self.product.come.shape
        return _stored(shape, shape, self.product.dtype_of(self.travels))

    @property
    def extents(self) -> str:
        return str(self.product.extents)

    @property
    def blocks(self) -> str:
        return str(self.product.blocks)

    @property
    def out(self) -> str:
        return self.product.out_dtype

    @property
    def lead(self) -> int:
        """The batch dimension along which parts are cut; 0 if they are cut along another factor."""
        return self.ring.loop.factor if self.product.factor == BATCH else 0


def _stored(
    whole: tuple[int, ...], shape: tuple[int, ...], dtype: str, pieces: tuple[object, ...] = ()
) -> str:
    """Return the expression that describes a kernel's array. `whole`: its shape without padding;
    `shape`: its shape in HBM; `pieces`: its pieces, if they do not start at memory tiles."""
    rows = 32 if itemsize(dtype) == 1 else 8
    if whole == shape and not pieces and shape[-2] % rows == shape[-1] % LANES == 0:
        return formatted(f'TiledArray({shape}, "{dtype}")', 7, 4)
    given = [str(whole), str(shape), f'"{dtype}"', *([str(pieces)] if pieces else [])]
    return formatted(f"BlockedArray({', '.join(given)})", 7, 4)


def _all(terms: Sequence[str]) -> str:
    return terms[0] if len(terms) == 1 else " & ".join(f"({term})" for term in terms)
