"""Watch an interpreted Triton kernel's memory accesses, and poison its allocations.

For every load and store, the interpreter calls its builder with arrays of addresses and a mask. The
methods here replace the builder's. They refuse an access to unallocated memory before it is made,
and record stores. Cache hints follow the mask, in one or more arguments depending on the version,
and are passed on. Imported only by workers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
import torch
from triton.runtime import interpreter

from shardwright.codegen.backends.triton_gpu.verify.addresses import (
    Addresses,
    accessed,
    extent_of,
    spread,
)
from shardwright.codegen.checks.compare import MismatchError

_EMPTY = torch.empty


class Memory:
    """A context that watches the memory accesses of kernels; `check` then checks the stores.

    `poison`: the byte that fills allocations of torch.empty and torch.empty_like; `inputs`: the
    input shards, by name. Kernels may access the inputs, allocations of these two functions and of
    torch.zeros, and the tensors with which they are launched. Any other access raises
    MismatchError.
    """

    def __init__(self, poison: int, inputs: Mapping[str, Any]) -> None:
        self._poison = poison
        self._inputs = inputs
        self._stored: list[Addresses] = []
        self._fault = ""
        self._patches = ExitStack()
        self._known: list[tuple[int, int]] = []
        self._bounds = np.empty((2, 0), dtype=np.uint64)
        for tensor in inputs.values():
            self.allow(tensor)

    def __enter__(self) -> Memory:
        builder, launch = interpreter.interpreter_builder, interpreter.GridExecutor
        replacements: list[tuple[object, str, Callable[..., Any]]] = [
            (torch, "empty", self._allocator(torch.empty)),
            (torch, "empty_like", self._allocator(torch.empty_like)),
            (torch, "zeros", self._allocator(torch.zeros, 0)),
            (builder, "create_masked_store", self._store(builder.create_masked_store)),
            (builder, "create_masked_load", self._load(builder.create_masked_load)),
            (launch, "_init_args_hst", self._launch(launch._init_args_hst)),
        ]
        for owner, name, replacement in replacements:
            self._patches.enter_context(patch.object(owner, name, replacement))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._patches.close()
        if self._fault:
            raise MismatchError(self._fault) from None

    def check(self, results: Mapping[str, Any]) -> None:
        """Raise MismatchError unless kernels stored every byte of every result exactly once, and no
        byte of an input."""
        stored = np.sort(np.concatenate([np.empty(0, dtype=np.uint64), *self._stored]))
        for name, tensor in self._inputs.items():
            if _counts(stored, tensor).any():
                raise MismatchError(f"a kernel stores into the input shard of {name}")
        for name, result in results.items():
            wrong = np.flatnonzero(_counts(stored, result) != 1)
            if len(wrong):
                element = int(wrong[0]) // int(result.element_size())
                at = [int(index) for index in np.unravel_index(element, tuple(result.shape))]
                times = int(_counts(stored, result)[wrong[0]])
                raise MismatchError(f"{name}: element {at} is stored {times} times, expected: once")

    def _allocator(
        self, original: Callable[..., Any], byte: int | None = None
    ) -> Callable[..., Any]:
        """Return a function that allocates with `original`, fills the memory with `byte` (by
        default, poison), and lets kernels access it."""
        filler = self._poison if byte is None else byte

        def allocate(*args: Any, **kwargs: Any) -> Any:
            tensor = guarded(original(*args, **kwargs))
            tensor.reshape(-1).view(torch.uint8).fill_(filler)
            self.allow(tensor)
            return tensor

        return allocate

    def _launch(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def launch(executor: Any, args: Any, kwargs: Any) -> Any:
            for value in (*args, *kwargs.values()):
                if isinstance(value, torch.Tensor):
                    self.allow(value)
            return original(executor, args, kwargs)

        return launch

    def _store(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def store(ptrs: Any, value: Any, mask: Any, *how: Any) -> Any:
            touched = _touched(ptrs, mask)
            self._require("stores to", touched)
            self._stored.append(touched)
            return original(ptrs, value, mask, *how)

        return store

    def _load(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def load(ptrs: Any, mask: Any, other: Any, *how: Any, **named: Any) -> Any:
            self._require("loads from", _touched(ptrs, mask))
            return original(ptrs, mask, other, *how, **named)

        return load

    def allow(self, tensor: Any) -> None:
        """Let kernels access a tensor. Overlapping tensors, such as views, are merged into one
        range of addresses."""
        start, stop = extent_of(tensor)
        apart = []
        for low, high in self._known:
            if stop <= low or high <= start:
                apart.append((low, high))
            else:
                start, stop = min(start, low), max(stop, high)
        self._known = sorted([*apart, (start, stop)])
        self._bounds = np.array(self._known, dtype=np.uint64).T

    def _require(self, does: str, touched: Addresses) -> None:
        starts, stops = self._bounds
        which = np.searchsorted(starts, touched, side="right") - 1
        outside = (which < 0) | (touched >= stops[which])
        if outside.any():
            self._fault = (
                f"a kernel {does} memory outside every shard, {int(outside.sum())} bytes at once"
            )
            raise MismatchError(self._fault)


_GUARD = 4096


def guarded(tensor: Any) -> Any:
    """Return the tensor moved, without its values, to new memory with guard space before and after.

    An access outside the tensor is then detected and harmless.
    """
    offset, size = _GUARD // tensor.element_size(), tensor.numel() * tensor.element_size()
    memory = _EMPTY(_GUARD + size + _GUARD, dtype=torch.uint8).untyped_storage()
    return tensor.set_(memory, offset, tensor.size(), tensor.stride())


def _touched(ptrs: Any, mask: Any) -> Addresses:
    addresses, enabled = accessed(ptrs, mask)
    return spread(ptrs, addresses[enabled])


def _counts(stored: Addresses, tensor: Any) -> npt.NDArray[np.int64]:
    """Return how often each byte of a tensor was stored; `stored`: the stored addresses, in
    ascending order."""
    start, stop = extent_of(tensor)
    low, high = np.searchsorted(stored, np.array([start, stop], dtype=np.uint64))
    counts = np.bincount((stored[low:high] - np.uint64(start)).astype(np.int64))
    return np.pad(counts, (0, stop - start - len(counts)))
