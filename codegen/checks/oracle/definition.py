"""The meaning of a sharding, by its definition, element by element. Every kernel is compared with
it.

Imports only numpy and takes plain data: it shares no formula with the planner, so the two can
disagree. Nothing here multiplies strides or takes minima of bounds: it reshapes axes, as arrays,
into sub-axes, looks up devices in those arrays, and chunks a dimension as a list of indices.

Values are bit patterns (unsigned integers of the dtype's width), so every comparison is bitwise and
no floating-point rule can hide a difference.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ref = tuple[str, int | None, int | None]
"""An axis, or its sub-axis `"name":(pre)size`; both None mean the whole axis."""

Bits = npt.NDArray[np.unsignedinteger]
"""An array of bit patterns: uint8, uint16, uint32 or uint64."""


@dataclass(frozen=True)
class Placement:
    """One side of a reshard as plain data.

    `axes` are (name, size) major to minor; `device_ids[i]` is the device at flat position i of the
    mesh; `dims` has for each tensor dimension the axis references that split it, major to minor;
    `split` is the cut of an uneven dimension: "flat" (once, over all parts) or "nested" (torch:
    chunk, then chunk each chunk). Along `unreduced` axes devices hold partial sums, which
    `operator` reduces.
    """

    axes: tuple[tuple[str, int], ...]
    device_ids: Sequence[int]
    dims: tuple[tuple[Ref, ...], ...]
    split: str = "flat"
    unreduced: tuple[Ref, ...] = ()
    operator: str = "sum"

    def parts(self) -> tuple[int, ...]:
        """Return the number of shards along each dimension."""
        return tuple(math.prod(self.ref_size(ref) for ref in refs) for refs in self.dims)

    def ref_size(self, ref: Ref) -> int:
        """Return the number of parts into which an axis reference splits a dimension."""
        name, _, size = ref
        return dict(self.axes)[name] if size is None else size


def chunk(indices: Sequence[int], pieces: int) -> list[Sequence[int]]:
    """Cut a run of indices into `pieces` runs of equal length; the last ones may be shorter or
    empty.

    >>> chunk(range(5), 4)
    [range(0, 2), range(2, 4), range(4, 5), range(5, 5)]
    """
    length = -(-len(indices) // pieces)
    return [indices[piece * length : (piece + 1) * length] for piece in range(pieces)]


def shard_indices(extent: int, sizes: Sequence[int], split: str) -> list[Sequence[int]]:
    """Return the tensor indices of each shard of one dimension, in shard order."""
    whole = range(extent)
    if split == "flat":
        return chunk(whole, math.prod(sizes))
    if split != "nested":
        raise ValueError(f"split: got: {split!r}, expected: 'flat' or 'nested'")
    shards: list[Sequence[int]] = [whole]
    for size in sizes:
        shards = [piece for shard in shards for piece in chunk(shard, size)]
    return shards


def axis_coordinates(placement: Placement) -> dict[int, dict[str, int]]:
    """Return, for every device, its coordinate along each axis, by counting through the mesh."""
    names = [name for name, _ in placement.axes]
    counts = itertools.product(*(range(size) for _, size in placement.axes))
    return {
        device: dict(zip(names, count, strict=True))
        for device, count in zip(placement.device_ids, counts, strict=True)
    }


def sub_coordinates(axis_size: int, pre: int | None, size: int | None) -> list[int]:
    """Return, for every coordinate of an axis, its coordinate along `"axis":(pre)size`.

    By definition, this is the middle coordinate of the axis reshaped to [pre, size, rest].

    >>> sub_coordinates(8, 2, 2)
    [0, 0, 1, 1, 0, 0, 1, 1]
    """
    if pre is None or size is None:
        return list(range(axis_size))
    rest = axis_size // (pre * size)
    middle: list[int] = np.indices((pre, size, rest))[1].reshape(axis_size).tolist()
    return middle


def shard_numbers(placement: Placement) -> dict[int, tuple[int, ...]]:
    """Return, for every device, the index of its shard along each dimension."""
    axis_sizes = dict(placement.axes)
    orders = []
    for refs in placement.dims:
        sizes = [placement.ref_size(ref) for ref in refs]
        digits = itertools.product(*(range(size) for size in sizes))
        orders.append({digit: number for number, digit in enumerate(digits)})
    along = {
        (name, pre, size): sub_coordinates(axis_sizes[name], pre, size)
        for refs in placement.dims
        for name, pre, size in refs
    }
    return {
        device: tuple(
            order[tuple(along[ref][at[ref[0]]] for ref in refs)]
            for refs, order in zip(placement.dims, orders, strict=True)
        )
        for device, at in axis_coordinates(placement).items()
    }


def dimension_shards(placement: Placement, shape: Sequence[int]) -> list[list[Sequence[int]]]:
    """Return, for each dimension, the tensor indices of each of its shards."""
    return [
        shard_indices(extent, [placement.ref_size(ref) for ref in refs], placement.split)
        for extent, refs in zip(shape, placement.dims, strict=True)
    ]


def holdings(placement: Placement, shape: Sequence[int]) -> dict[int, tuple[Sequence[int], ...]]:
    """Return, for every device and each dimension, the tensor indices that the device holds."""
    shards = dimension_shards(placement, shape)
    return {
        device: tuple(along[number] for along, number in zip(shards, numbers, strict=True))
        for device, numbers in shard_numbers(placement).items()
    }


def shards(placement: Placement, tensor: Bits) -> dict[int, Bits]:
    """Return, for every device, exactly its part of `tensor`; empty arrays for empty parts."""
    return {
        device: np.array(tensor[_gather(indices)])
        for device, indices in holdings(placement, tensor.shape).items()
    }


def largest(placement: Placement, shape: Sequence[int]) -> tuple[int, ...]:
    """Return the local shape of the largest shard."""
    return tuple(max(len(shard) for shard in along) for along in dimension_shards(placement, shape))


def padded(placement: Placement, tensor: Bits, fill: int) -> Bits:
    """Pad every shard of a tensor at its end to the largest size, and concatenate the shards.

    Dimension d has parts*largest elements; the padding is filled with the pattern `fill`.
    """
    result = np.full(_padded_shape(placement, tensor.shape), fill, dtype=tensor.dtype)
    slots, inside = _slots(placement, tensor.shape)
    result[_gather(slots)] = tensor[_gather(inside)]
    return result


def unpadded(placement: Placement, shape: Sequence[int], array: Bits) -> Bits:
    """Return the tensor that a padded array contains."""
    result = np.zeros(tuple(shape), dtype=array.dtype)
    slots, inside = _slots(placement, shape)
    result[_gather(inside)] = array[_gather(slots)]
    return result


def padded_shard(shard: Bits, shape: Sequence[int]) -> Bits:
    """Copy a shard to the start of a local array of `shape` that is zero elsewhere."""
    result = np.zeros(tuple(shape), dtype=shard.dtype)
    result[tuple(slice(0, extent) for extent in shard.shape)] = shard
    return result


def _padded_shape(placement: Placement, shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(
        len(along) * extent
        for along, extent in zip(
            dimension_shards(placement, shape), largest(placement, shape), strict=True
        )
    )


def _slots(placement: Placement, shape: Sequence[int]) -> tuple[list[list[int]], list[list[int]]]:
    """Return two lists, each with one list per dimension. The first: the positions of elements in
    the padded array. The second: the tensor indices of these elements."""
    slots, inside = [], []
    for along, extent in zip(
        dimension_shards(placement, shape), largest(placement, shape), strict=True
    ):
        pairs = [
            (number * extent + offset, index)
            for number, shard in enumerate(along)
            for offset, index in enumerate(shard)
        ]
        slots.append([slot for slot, _ in pairs])
        inside.append([index for _, index in pairs])
    return slots, inside


def _gather(indices: Sequence[Sequence[int]]) -> tuple[npt.NDArray[np.int64], ...]:
    """Return a numpy index that selects all combinations of the listed indices, one list per
    dimension."""
    return np.ix_(*(np.asarray(along, dtype=np.int64) for along in indices))


# Float patterns are normal and finite, so that no runtime canonicalises them. Integer patterns
# exclude zero, all ones and the largest value, which poisons and padding use. The sign bit doubles
# the number of patterns.
_MAGNITUDES: dict[str, tuple[int, int]] = {
    "int8": (0x01, 0x7E),
    "uint8": (0x01, 0x7E),
    "int16": (0x0001, 0x7FFE),
    "uint16": (0x0001, 0x7FFE),
    "int32": (0x0000_0001, 0x7FFF_FFFE),
    "uint32": (0x0000_0001, 0x7FFF_FFFE),
    "int64": (0x0000_0001_0000_0001, 0x7FFF_FFFF_0000_0000),
    "float8_e4m3fn": (0x08, 0x7E),
    "float8_e5m2": (0x04, 0x7B),
    "float16": (0x0400, 0x7BFF),
    "bfloat16": (0x0080, 0x7F7F),
    "float32": (0x3F80_0000, 0x7F7F_FFFF),
    "float64": (0x3FF0_0000_0000_0000, 0x7FEF_FFFF_FFFF_FFFF),
}
_WIDTHS = {
    "bool": 8,
    "int8": 8,
    "uint8": 8,
    "float8_e4m3fn": 8,
    "float8_e5m2": 8,
    "int16": 16,
    "uint16": 16,
    "float16": 16,
    "bfloat16": 16,
    "int32": 32,
    "uint32": 32,
    "float32": 32,
    "int64": 64,
    "float64": 64,
}


def storage(dtype: str) -> np.dtype[np.unsignedinteger]:
    """Return the unsigned integer type that carries the bit patterns of `dtype`."""
    return np.dtype(f"uint{_WIDTHS[dtype]}")


def capacity(dtype: str) -> int:
    """Return the number of distinct patterns of a dtype that `patterns` can make."""
    if dtype == "bool":
        return 2
    low, high = _MAGNITUDES[dtype]
    return 2 * ((high - low) // _spread(dtype) + 1)


def patterns(dtype: str, numbers: npt.NDArray[np.uint64]) -> Bits:
    """Return a bit pattern for each number below `capacity(dtype)`; distinct numbers have distinct
    patterns."""
    if dtype == "bool":
        return numbers.astype(np.uint8)
    low, _ = _MAGNITUDES[dtype]
    sign = (numbers % 2) << np.uint64(_WIDTHS[dtype] - 1)
    magnitude = np.uint64(low) + (numbers // 2) * np.uint64(_spread(dtype))
    result: Bits = (sign | magnitude).astype(storage(dtype))
    return result


def _spread(dtype: str) -> int:
    """Return the step between patterns. For int64, a step changes both halves, which exposes a
    copy that was narrowed to 32 bits."""
    return 0x0000_0001_0000_0001 if dtype == "int64" else 1


def planes(shape: Sequence[int], dtype: str) -> Iterator[Bits]:
    """Yield tensors of `shape`, enough that no two elements agree in all of them.

    In plane p, element number e has the pattern of digit p of e, in base `capacity(dtype)`.
    """
    base = capacity(dtype)
    count = math.prod(shape)
    numbers = np.arange(count, dtype=np.uint64).reshape(tuple(shape))
    while True:
        yield patterns(dtype, numbers % np.uint64(base))
        count = -(-count // base)
        if count <= 1:
            return
        numbers = numbers // np.uint64(base)


def random_bits(shape: Sequence[int], dtype: str, seed: int) -> Bits:
    """Return a tensor of random bit patterns of a dtype, in which special values are frequent.

    Of the elements of a float dtype, five in eight have an exponent of all zeros or all ones: zeros
    of either sign, subnormals, infinities and NaNs with payloads. Two of these five are signalling
    NaNs, which arithmetic would make quiet. A bool is 0 or 1.
    """
    rng, count, wide = np.random.default_rng(seed), math.prod(shape), storage(dtype)
    if dtype == "bool":
        return rng.integers(0, 2, tuple(shape), dtype=np.uint8)
    drawn = np.frombuffer(rng.bytes(count * wide.itemsize), wide)
    kind = rng.integers(0, 8, count)
    bits = _EXPONENTS.get(dtype, 0)
    exponent, quiet = wide.type(bits), wide.type((bits & -bits) >> 1)
    if quiet:
        drawn = np.where(kind >= 6, (drawn | exponent | wide.type(1)) & ~quiet, drawn)
    drawn = np.where(kind == 0, drawn | exponent, np.where(kind == 1, drawn & ~exponent, drawn))
    # Some elements are -0.0 or the smallest subnormal.
    sign = wide.type(1 << (_WIDTHS[dtype] - 1))
    drawn = np.where(kind == 2, np.where(drawn & wide.type(1), sign, wide.type(1)), drawn)
    result: Bits = drawn.astype(wide).reshape(tuple(shape))
    return result


_EXPONENTS = {
    "float8_e4m3fn": 0x78,
    "float8_e5m2": 0x7C,
    "float16": 0x7C00,
    "bfloat16": 0x7F80,
    "float32": 0x7F80_0000,
    "float64": 0x7FF0_0000_0000_0000,
}


def fills(dtype: str) -> tuple[int, int]:
    """Return two different patterns for padding that must not be read."""
    low, high = (int(bits) for bits in patterns(dtype, np.array([0, 1], dtype=np.uint64)))
    return low, high
