"""The door: a function, its shardings, and the mode in which the rest is chosen."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

from shardwright.codegen.partition.partitioned import Partitioned
from shardwright.ir.errors import InputError, one_of

MODES = ("as_shardy",)


def partition(
    fn: Callable[..., Any],
    *avals: Any,
    mesh: Any,
    in_shardings: Any = None,
    out_shardings: Any = None,
    mode: str = "as_shardy",
    strict: bool = False,
) -> Partitioned:
    """Trace `fn` for `avals` and propagate the shardings that are given to all its values.

    `mesh` is a `Mesh` or a mesh of jax. `in_shardings` and `out_shardings` are prefixes of the
    trees of the arguments and results; a leaf is a `Sharding`, a `NamedSharding`, a
    `PartitionSpec`, a text as `[{"d"}p1, {?}]`, or None, which leaves it free. With `strict`, a
    primitive that has no rule is an error instead of a warning.
    """
    if mode not in MODES:
        raise InputError(
            "the mode must be known", argument="mode", got=mode, expected=one_of(MODES)
        )
    if importlib.util.find_spec("jax") is None:
        raise InputError(
            "a function is partitioned with jax, which is not installed",
            got="no module named jax",
            expected="pip install 'shardwright[jax]'",
        )
    from shardwright.codegen.partition.tracing import traced

    return traced(fn, avals, mesh, in_shardings, out_shardings, strict)
