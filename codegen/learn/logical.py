"""Logical tensors: the shapes and kinds of tensors that a loader receives."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from shardwright.ir.dtypes import dtype_of, itemsize
from shardwright.ir.errors import InputError, in_a_line, unknown
from shardwright.ir.foreign import JAX_ARRAY, TORCH_TENSOR, is_a
from shardwright.ir.given import shape_of

Floats: TypeAlias = npt.NDArray[np.float64]

KINDS = ("numpy", "torch", "jax")
"""The libraries whose tensors a loader can receive."""


@dataclass(frozen=True)
class LogicalTensor:
    """A logical tensor as the loader receives it: its shape, and the kind of object."""

    shape: tuple[int, ...]
    like: Any = None  # an array or tensor; None: a float64 numpy array

    @staticmethod
    def of(given: Any) -> LogicalTensor:
        """Return the logical tensor for a shape, or for an array or tensor of numpy, torch or
        jax."""
        if isinstance(given, LogicalTensor):
            return given
        if isinstance(given, np.ndarray) or is_a(given, TORCH_TENSOR, JAX_ARRAY):
            return LogicalTensor(tuple(int(extent) for extent in given.shape), given)
        return LogicalTensor(shape_of(given))

    @staticmethod
    def made(shape: tuple[int, ...], like: str, dtype: object) -> LogicalTensor:
        """Return the logical tensor that a loader receives as a numpy, torch or jax tensor of an
        element type; numpy tensors are float64. Raises InputError for an unknown `like`."""
        if like == "numpy":
            return LogicalTensor(shape)
        name = dtype_of(dtype)
        if like == "torch":
            import torch

            return LogicalTensor(shape, torch.empty(0, dtype=getattr(torch, name)))
        if like == "jax":
            import jax.numpy as jnp

            return LogicalTensor(shape, jnp.zeros(0, name))
        raise unknown("unknown kind of tensors", like, KINDS, "--like")

    @property
    def kind(self) -> str:
        """The library whose tensors the loader receives."""
        kinds = {"torch": TORCH_TENSOR, "jax": JAX_ARRAY}
        return next((name for name, each in kinds.items() if is_a(self.like, each)), "numpy")

    @property
    def dtype(self) -> str | None:
        """The element type; None if only a shape is given."""
        return None if self.like is None else dtype_of(self.like.dtype)

    @property
    def itemsize(self) -> int:
        """The bytes per element of the tensor that the loader receives."""
        return 8 if self.dtype is None else itemsize(self.dtype)

    def filled(self, values: Floats) -> Any:
        """Return the values as a tensor of the library and type that the loader receives."""
        few = np.array(values, dtype=np.float64)
        if self.kind == "torch":
            import torch

            return torch.from_numpy(few).to(self.like.dtype).expand(self.shape).contiguous()
        if self.kind == "jax":
            import jax.numpy as jnp

            return jnp.broadcast_to(jnp.asarray(few, self.like.dtype), self.shape)
        dtype = np.float64 if self.like is None else self.like.dtype
        return np.broadcast_to(few.astype(dtype), self.shape).copy()


def read_logical(logical: object) -> dict[str, LogicalTensor]:
    """Return the logical tensors by name, from the user's value. Raise InputError if it is not a
    dict of shapes, arrays or tensors."""
    if not isinstance(logical, Mapping) or not logical:
        raise InputError(
            "the logical tensors must be given by name",
            argument="logical",
            got=in_a_line(logical),
            expected='shapes, arrays or tensors, for example {"q": (32, 16), "k": (8, 16)}',
        )
    found = {}
    for name, given in logical.items():
        try:
            found[name] = LogicalTensor.of(given)
        except InputError as error:
            raise error.named(f"logical[{name!r}]") from None
    return found


def check_memory(tensors: Mapping[str, LogicalTensor]) -> None:
    """Raise InputError if the tensors exceed this machine's memory."""
    bytes_ = sum(math.prod(each.shape) * each.itemsize for each in tensors.values())
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # this system does not report its memory
        return
    if bytes_ > memory:
        raise InputError(
            "the tensors that a loader gets must fit in this machine's memory",
            argument="logical",
            got=f"{bytes_ / 2**30:,.0f} GiB of tensors, {memory / 2**30:,.0f} GiB of memory",
            expected="fewer tensors, torch tensors in bfloat16, or small sizes with sw.learn_sizes",
        )


def element_type(tensors: Mapping[str, LogicalTensor], asked: object = None) -> str:
    """Return the element type in which codes must be exact: the requested type, else the type of
    the tensors, or float32 if only shapes are given. Raise InputError if the tensors have
    different types and none is requested."""
    if asked is not None:
        return dtype_of(asked)
    found = sorted({each.dtype for each in tensors.values() if each.dtype is not None})
    if len(found) > 1:
        raise InputError(
            "tensors of several element types need `dtype`, the type that the loader stores",
            argument="dtype",
            got=", ".join(found),
            expected=f"the narrowest type that the loader converts to, such as dtype={found[0]!r}",
        )
    return found[0] if found else "float32"
