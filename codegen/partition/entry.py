"""The door: a function, its shardings, and the mode in which the rest is chosen."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from shardwright.codegen.partition.partitioned import Partitioned
from shardwright.codegen.spec.description import read_topology
from shardwright.codegen.spec.program import check_choice, check_kernels
from shardwright.ir.errors import InputError, install, wrong_type


def partition(
    fn: Callable[..., Any],
    *avals: Any,
    mesh: Any,
    in_shardings: Any = None,
    out_shardings: Any = None,
    mode: str = "as_shardy",
    strict: bool = False,
    sub_axes_at_edges: str = "allow",
    gather: str = "keep",
    memory_limit: int | None = None,
    topology: str | None = None,
    kernels: tuple[str, ...] = (),
) -> Partitioned:
    """Trace `fn` for `avals` and propagate the shardings that are given to all its values.

    `mesh` is a `Mesh` or a mesh of jax. `in_shardings` and `out_shardings` are prefixes of the
    trees of the arguments and results; a leaf is a `Sharding`, a `NamedSharding`, a
    `PartitionSpec`, a text as `[{"d"}p1, {?}]`, or None, which leaves it free. With `strict`, a
    primitive that has no rule is an error instead of a warning.

    `mode`: `as_shardy` gives every value the sharding that is propagated; `cheapest` takes what is
    said of arguments, results and constraints as binding and chooses the rest by its price.

    Arguments and results may come to be sharded along sub-axes, which a `NamedSharding` cannot say:
    with `sub_axes_at_edges="gather"` these are gathered there, but for dimensions that were closed.

    `gather`: what is gathered of an argument is kept for its later uses, as in the backward pass,
    or, with `regather`, gathered again. `memory_limit`: the bytes that a device may hold at once;
    plans that hold less are tried, and if none is within it, that is an error. `topology`: what
    bytes are weighed by against each other, over slow axes and fast ones, and against what devices
    compute, as `v5e:2x4`; without one a byte counts as a thousand operations of a matmul.

    `kernels`: `("pallas_tpu",)` has a matmul and what is gathered or scattered beside it made by
    one kernel, where that takes less on the topology, which must be given.
    """
    check_choice("mode", mode)
    check_choice("sub_axes_at_edges", sub_axes_at_edges)
    check_choice("gather", gather)
    _check_limit(memory_limit)
    _check_jax()
    from shardwright.codegen.partition.tracing import traced

    program = traced(fn, avals, mesh, in_shardings, out_shardings, strict)
    return replace(
        program,
        mode=mode,
        gather_sub_axes=sub_axes_at_edges == "gather",
        gather=gather,
        memory_limit=memory_limit,
        topology=read_topology(topology),
        kernels=check_kernels(kernels, topology),
    )


def _check_limit(memory_limit: object) -> None:
    """Raise InputError for a limit that is no number of bytes."""
    if memory_limit is not None and (type(memory_limit) is not int or memory_limit <= 0):
        raise wrong_type(memory_limit, int, "bytes, as 16 * 2**30", "memory_limit")


def _check_jax() -> None:
    """Raise InputError if jax is not installed."""
    if importlib.util.find_spec("jax") is None:
        raise InputError(
            "a function is partitioned with jax, which is not installed",
            got="no module named jax",
            expected=install("jax"),
        )
