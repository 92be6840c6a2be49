"""The entry point: partition a function, given some shardings and a mode that chooses the
others."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from shardwright.codegen.partition.partitioned import Partitioned
from shardwright.codegen.spec.fields import read_topology
from shardwright.codegen.spec.program import check_choice, check_kernels
from shardwright.ir.errors import InputError, install, known_arguments, wrong_type


@known_arguments
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
    """Trace `fn` for arguments like `avals`, and return a program with a sharding for every value.

    `mesh`: a `Mesh`, a string such as `d=4,t=2`, a dict of axes or a JAX mesh. `in_shardings` and
    `out_shardings`: prefixes of the trees of the arguments and results; a leaf is a `Sharding`, a
    `NamedSharding`, a `PartitionSpec`, a string such as `[{"d"}p1, {?}]`, or None to leave the
    sharding open. With `strict`, a primitive without a propagation rule is an error instead of a
    warning.

    `mode`: `as_shardy` gives every value its propagated sharding; `cheapest` keeps the given
    shardings of arguments, results and constraints, and chooses the others by cost.

    Propagation may shard arguments and results along sub-axes, which a `NamedSharding` cannot
    express. With `sub_axes_at_edges="gather"` these values are gathered along sub-axes, except in
    closed dimensions. `gather`: `keep` keeps a gathered argument for later uses, such as the
    backward pass; `regather` gathers it again. `memory_limit`: the most bytes that a device may
    hold at once. `topology`, such as `v5e:2x4`, sets the costs of bytes over slow and fast axes
    relative to each other and to computation; without a topology a byte costs as much as a thousand
    operations of a matmul.

    `kernels`: with `("pallas_tpu",)`, which requires `topology`, one kernel performs a matmul and
    the adjacent gather or scatter if the model of the topology predicts that this is faster.

    Raise InputError for an invalid argument or a function that cannot be traced. Whether a plan
    fits `memory_limit` is checked later, when a plan is made.
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
    if memory_limit is not None and type(memory_limit) is not int:
        raise wrong_type(memory_limit, int, "bytes, for example 16 * 2**30", "memory_limit")
    if memory_limit is not None and memory_limit <= 0:
        raise InputError(
            "the limit must be above zero",
            argument="memory_limit",
            got=memory_limit,
            expected="bytes, for example 16 * 2**30",
        )


def _check_jax() -> None:
    if importlib.util.find_spec("jax") is None:
        raise InputError(
            "partitioning a function needs jax, which is not installed",
            got="no module named jax",
            expected=install("jax"),
        )
