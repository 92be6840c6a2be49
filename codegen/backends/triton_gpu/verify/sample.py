"""Run a sample of a Triton module's programs at full size, on tensors that take no memory.

Kernels store values exactly as they load them, so it suffices to check addresses: a program that
stores an element of the tensor must have loaded that element. Shards are reserved address space
that is never accessed. Of each launch, the first programs, the last ones and some in between are
run. This covers cases that a smaller tensor cannot: offsets beyond 32 bits, and tiles of many
blocks. Imported only by workers.
"""

from __future__ import annotations

import inspect
import math
import mmap
import random
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from types import ModuleType
from typing import Any, NoReturn
from unittest.mock import patch

import numpy as np
import torch
from triton.runtime import interpreter

from shardwright.codegen.backends.triton_gpu.verify.addresses import (
    Addresses,
    Shards,
    accessed,
    extent_of,
    spread,
)
from shardwright.codegen.backends.triton_gpu.verify.quick import quick_launches
from shardwright.codegen.checks.case import Case
from shardwright.codegen.checks.compare import MismatchError
from shardwright.codegen.checks.oracle import definition as oracle

EACH_END = 3
BETWEEN = 10
"""The number of a launch's programs to run: `EACH_END` at each end, `BETWEEN` at random between
them."""

_EMPTY = torch.empty


def sample(module: ModuleType, case: Case) -> None:
    """Run some programs of every launch. Raises MismatchError unless they copy the right
    elements."""
    copies = _Copies()
    shards = {
        device: copies.reserve([len(along) for along in held], getattr(torch, case.dtype))
        for device, held in sorted(oracle.holdings(case.source, case.shape).items())
    }
    with copies, quick_launches():
        outputs = module.reshard_local(list(shards.values()))
    results = dict(zip(sorted(case.target.device_ids), outputs, strict=True))
    copies.check(Shards(case.source, case.shape, shards), Shards(case.target, case.shape, results))


def _reserved(shape: Sequence[int], dtype: torch.dtype) -> Any:
    """Return a tensor in reserved address space, which takes no memory unless accessed."""
    size = math.prod(shape) * dtype.itemsize
    if size == 0:
        return _EMPTY(tuple(shape), dtype=dtype)
    # Private read-only mappings, however large, count towards no memory limit.
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    memory = mmap.mmap(-1, size, flags=flags, prot=mmap.PROT_READ)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns about read-only memory
        return torch.frombuffer(memory, dtype=dtype).reshape(tuple(shape))


class _Copies:
    """A context in which a launch runs only some of its programs, and loads and stores are recorded
    instead of executed."""

    def __init__(self) -> None:
        self._programs = random.Random(0)
        self._reserved: list[Any] = []
        self._arguments: list[Any] = []
        self._loaded: dict[int, tuple[Any, Any, Any]] = {}
        self._copied: list[tuple[Addresses, Addresses]] = []
        self._fault = ""
        self._patches = ExitStack()

    def __enter__(self) -> _Copies:
        builder = interpreter.interpreter_builder
        replacements: list[tuple[object, str, Callable[..., Any]]] = [
            (torch, "empty", self._empty),
            (builder, "create_masked_load", self._load(builder.create_masked_load)),
            (builder, "create_masked_store", self._store),
            (interpreter.GridExecutor, "__call__", self._launch()),
        ]
        for owner, name, replacement in replacements:
            self._patches.enter_context(patch.object(owner, name, replacement))
        return self

    def __exit__(self, *_: object) -> None:
        self._patches.close()
        if self._fault:
            raise MismatchError(self._fault) from None

    def reserve(self, shape: Sequence[int], dtype: torch.dtype) -> Any:
        tensor = _reserved(shape, dtype)
        self._reserved.append(tensor)
        return tensor

    def check(self, sources: Shards, targets: Shards) -> None:
        """Raise MismatchError unless every stored byte was loaded from the same place in the
        tensor, none was stored twice, and at least one was stored."""
        none = np.empty(0, dtype=np.uint64)
        stored = np.concatenate([none, *(store for store, _ in self._copied)])
        loaded = np.concatenate([none, *(load for _, load in self._copied)])
        into, out_of = targets.bytes_at(stored), sources.bytes_at(loaded)
        wrong = np.flatnonzero((into != out_of) | (into < 0))
        if len(wrong):
            raise MismatchError(
                f"at full size, a program copies byte {out_of[wrong[0]]} of the tensor "
                f"to byte {into[wrong[0]]}"
            )
        if len(np.unique(stored)) < len(stored):
            raise MismatchError("at full size, two programs store to the same element")
        if not len(stored):
            raise MismatchError("at full size, the programs that were run store nothing")

    def _empty(self, *args: Any, **kwargs: Any) -> Any:
        like = _EMPTY(*args, **(kwargs | {"device": "meta"}))
        return self.reserve(like.shape, like.dtype)

    def _launch(self) -> Callable[..., None]:
        def launch(executor: Any, *args: Any, **options: Any) -> None:
            del options  # options such as the number of warps
            self._arguments = [value for value in args if self._is_real(value)]
            scope = interpreter._patch_lang(executor.fn)
            try:
                self._run(executor, inspect.getcallargs(executor.fn, *args))
            finally:
                scope.restore()

        return launch

    def _run(self, executor: Any, named: Mapping[str, Any]) -> None:
        """Run some programs of a launch, where `GridExecutor.__call__` runs all."""
        arguments = {
            name: value if name in executor.constexprs else interpreter._implicit_cvt(value)
            for name, value in named.items()
        }
        given = executor.grid(arguments) if callable(executor.grid) else executor.grid
        grid = (*given, 1, 1)[:3]
        interpreter.interpreter_builder.set_grid_dim(*grid)
        for number in self._some(math.prod(grid)):
            place = (int(index) for index in np.unravel_index(number, grid))
            interpreter.interpreter_builder.set_grid_idx(*place)
            executor.fn(**arguments)

    def _some(self, count: int) -> list[int]:
        ends = {*range(min(EACH_END, count)), *range(max(0, count - EACH_END), count)}
        between = {self._programs.randrange(count) for _ in range(BETWEEN if count else 0)}
        return sorted(ends | between)

    def _load(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def load(ptrs: Any, mask: Any, other: Any, *how: Any) -> Any:
            addresses, enabled = accessed(ptrs, mask)
            if _within(self._arguments, addresses[enabled]):
                return original(ptrs, mask, other, *how)
            if not _within(self._reserved, addresses[enabled]):
                self._refuse("a kernel loads from memory outside every shard")
            element = ptrs.get_element_ty()
            data = np.zeros(addresses.shape, dtype=interpreter._get_np_dtype(element))
            self._loaded[id(data)] = addresses, enabled, data
            return interpreter.TensorHandle(data, element)

        return load

    def _store(self, ptrs: Any, value: Any, mask: Any, *how: Any) -> None:
        del how
        addresses, enabled = accessed(ptrs, mask)
        if not enabled.any():
            return
        if not _within(self._reserved, addresses[enabled]):
            self._refuse("a kernel stores to memory outside every shard")
        if id(value.data) not in self._loaded:
            self._refuse("a kernel stores a value that it did not load")
        sources, loaded, _ = self._loaded[id(value.data)]
        if (enabled & ~loaded).any():
            self._refuse("a kernel stores where its load is masked")
        self._copied.append((spread(ptrs, addresses[enabled]), spread(ptrs, sources[enabled])))

    def _is_real(self, value: object) -> bool:
        """Return whether a value is a tensor that has memory, such as a table of addresses."""
        if not isinstance(value, torch.Tensor):
            return False
        return not _within(self._reserved, np.array([value.data_ptr()], dtype=np.uint64))

    def _refuse(self, what: str) -> NoReturn:
        self._fault = f"at full size, {what}"
        raise MismatchError(self._fault)


def _within(tensors: Sequence[Any], addresses: Addresses) -> bool:
    inside = np.zeros(addresses.shape, dtype=bool)
    for start, stop in map(extent_of, tensors):
        inside |= (addresses >= start) & (addresses < stop)
    return bool(inside.all())
