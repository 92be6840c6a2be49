"""Convert the parameters of jaxpr equations to literals, with the names that propagation rules
use."""

from __future__ import annotations

import enum
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import jax
import jax.extend.core

from shardwright.codegen.ops.calls import CALLBACK
from shardwright.codegen.ops.table import kind_of
from shardwright.ir.program import Param

Params = tuple[tuple[str, Param], ...]
DROPPED = frozenset({"out_sharding", "sharding", "mode_name"})
NUMBERS = ("dimension_numbers", "ragged_dot_dimension_numbers")


def params_of(kind: str, params: Mapping[str, Any]) -> Params:
    """Return the parameters that are literals, sorted by name. Dimension numbers become separate
    parameters."""
    found = dict(params)
    for name in NUMBERS:
        if (numbers := found.pop(name, None)) is not None:
            found.update(_numbers(kind, numbers))
    if kind == "constrain":
        return (("sharding", params["sharding"]),)
    if kind == CALLBACK:
        found["callback"] = _reference(found["callback"])
    if kind == "random_bits":
        found["partitionable"] = bool(jax.config.jax_threefry_partitionable)
    literals = {
        name: literal
        for name, value in found.items()
        if name not in DROPPED and (literal := _literal(value)) is not _NO
    }
    return tuple(sorted(literals.items()))


def _reference(callback: Any) -> str:
    """Return MODULE:NAME of a function that runs on the host, or "" if it cannot be imported or
    takes arguments other than positional arrays."""
    fn, tree = callback.callback_func, callback.in_tree
    module, name = getattr(fn, "__module__", None) or "", getattr(fn, "__name__", "")
    of_arrays = tree == jax.tree.structure(((0,) * tree.num_leaves, {}))
    found = getattr(sys.modules.get(module), name, None) is fn and module != "__main__"
    return f"{module}:{name}" if found and of_arrays and name.isidentifier() else ""


def _numbers(kind: str, numbers: Any) -> dict[str, Any]:
    dims = kind_of(kind).dims
    if callable(dims):
        return dims(numbers)
    return {name: getattr(numbers, name) for name in dims if hasattr(numbers, name)}


class _Nothing(enum.Enum):
    NO = 0


_NO = _Nothing.NO


def _literal(value: Any) -> Param | _Nothing:
    """Return a value as a literal, or `_NO` if it has no literal, like a jaxpr or a function."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, jax.extend.core.Primitive):  # compares elements of a window
        return str(value.name)
    if isinstance(value, enum.Enum):  # some enums are integers too, so test for enums first
        return value.name
    if isinstance(value, int | float):  # JAX's subclasses, which carry a dtype, count too
        return int(value) if isinstance(value, int) else float(value)
    if isinstance(value, tuple | list | range):
        return _literals(value)
    # Convert a scalar array. A type such as np.float32 also has these attributes, but its `ndim` is
    # not a number.
    is_array = hasattr(value, "dtype") and callable(getattr(value, "item", None))
    if is_array and getattr(value, "ndim", 1) == 0:
        return _literal(value.item())
    if type(value).__module__.startswith(("numpy", "ml_dtypes")) and hasattr(value, "itemsize"):
        return str(value)
    return _NO


def _literals(values: Iterable[Any]) -> Param | _Nothing:
    found = []
    for value in values:
        literal = _literal(value)
        if isinstance(literal, _Nothing):
            return _NO
        found.append(literal)
    return tuple(found)
