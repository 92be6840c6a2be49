"""The addresses that an interpreted Triton kernel accesses, and the tensor bytes at addresses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from shardwright.codegen.checks.oracle import definition as oracle
from shardwright.codegen.checks.oracle.definition import Placement

Addresses = npt.NDArray[np.uint64]


def accessed(ptrs: Any, mask: Any) -> tuple[Addresses, npt.NDArray[np.bool_]]:
    """Return the address of every element of a load or store, and whether its mask enables it."""
    pointers, enabled = np.broadcast_arrays(ptrs.data, np.asarray(mask.data, dtype=bool))
    return pointers.astype(np.uint64), enabled


def spread(ptrs: Any, addresses: Addresses) -> Addresses:
    """Return the addresses of all bytes of the elements at `addresses`, in order; `ptrs`: the
    pointers of the access, from which the element type is taken."""
    width = max(ptrs.get_element_ty().primitive_bitwidth // 8, 1)
    bytes_of: Addresses = addresses[:, None] + np.arange(width, dtype=np.uint64)
    return bytes_of.reshape(-1)


def extent_of(tensor: Any) -> tuple[int, int]:
    """Return the address of a tensor's first byte, and the address just past its last byte."""
    start = int(tensor.data_ptr())
    if tensor.numel() == 0:
        return start, start
    last = sum(
        (extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )
    return start, start + (last + 1) * int(tensor.element_size())


class Shards:
    """The shards of one side, by device id. Finds the tensor's byte at an address."""

    def __init__(
        self, placement: Placement, shape: tuple[int, ...], tensors: Mapping[int, Any]
    ) -> None:
        held = oracle.holdings(placement, shape)
        self._shape = shape
        self._tensors = sorted(
            ((extent_of(tensor), tensor, held[device]) for device, tensor in tensors.items()),
            key=lambda shard: shard[0],
        )

    def bytes_at(self, addresses: Addresses) -> npt.NDArray[np.int64]:
        """Return the index in the row-major tensor of the byte at each address, or -1 outside all
        shards."""
        result = np.full(len(addresses), -1, dtype=np.int64)
        for (start, stop), tensor, held in self._tensors:
            mine = (addresses >= start) & (addresses < stop)
            if mine.any():
                offsets = (addresses[mine] - np.uint64(start)).astype(np.int64)
                result[mine] = self._bytes(offsets, tensor, held)
        return result

    def _bytes(
        self, offsets: npt.NDArray[np.int64], tensor: Any, held: Any
    ) -> npt.NDArray[np.int64]:
        element, byte = np.divmod(offsets, tensor.element_size())
        flat = np.zeros(len(offsets), dtype=np.int64)
        local = np.unravel_index(element, tuple(tensor.shape)) if self._shape else ()
        for extent, along, index in zip(self._shape, held, local, strict=True):
            flat = flat * extent + along[0] + index
        result: npt.NDArray[np.int64] = flat * tensor.element_size() + byte
        return result
