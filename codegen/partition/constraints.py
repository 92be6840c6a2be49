"""Constraints inside a function: `constrain` states the sharding of a value, `shard_alike` gives
several values the same sharding.

Outside `partition`, both functions return their arguments unchanged, and so do their
derivatives.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any

from shardwright.ir.errors import InputError, check_type
from shardwright.ir.foreign import PARTITION_SPEC, is_a
from shardwright.ir.mesh import Mesh
from shardwright.ir.sharding import DimSharding, Sharding

_groups = itertools.count()


def constrain(x: Any, sharding: Any, mesh: Mesh | None = None) -> Any:
    """Return `x`; when the function is partitioned, the returned value has this sharding.

    `sharding` is a `Sharding`, a `PartitionSpec`, or a string such as `[{"d"}p1, {?}]` or `P("d")`.
    A `PartitionSpec` or a string refers to `mesh` or, by default, to the mesh of `partition`.
    Shardy's notation can express priorities, closed and open dimensions and sub-axes, which a
    `PartitionSpec` cannot. Only uses of the returned value are constrained, not other uses of `x`.
    The derivative is constrained too, as with `jax.lax.with_sharding_constraint`.

    Raise InputError for an invalid sharding or mesh.
    """
    given = str(sharding) if is_a(sharding, PARTITION_SPEC) else sharding
    check_type(given, str | Sharding, "a string such as '[{\"d\"}, {}]' or a Sharding", "sharding")
    if mesh is not None:
        check_type(mesh, Mesh, "the mesh of a sharding given as a string", "mesh")
    if mesh is not None and isinstance(given, str):
        given = mesh.sharding(given, len(x.shape))
    return _primitive("shardwright_constrain").bind(x, sharding=given)


def shard_alike(*values: Any) -> tuple[Any, ...]:
    """Return the values unchanged, as a tuple; when the function is partitioned, they all have the
    same sharding.

    Raise InputError if their shapes differ.
    """
    import jax.numpy as jnp

    shapes = {jnp.shape(value) for value in values}
    if len(shapes) > 1:
        raise InputError(
            "values with the same sharding must have the same shape",
            argument="values",
            got=", ".join(map(str, sorted(shapes))),
            expected="one shape",
        )
    group = next(_groups)
    return tuple(_primitive("shardwright_alike").bind(value, group=group) for value in values)


@functools.cache
def _primitive(name: str) -> Any:
    """Return the primitive of this name, an identity. Its derivatives and its batching rule apply
    the primitive too."""
    from jax.extend.core import Primitive
    from jax.interpreters import ad, batching, mlir

    primitive = Primitive(name)
    primitive.def_impl(lambda x, **_: x)
    primitive.def_abstract_eval(lambda x, **_: x)
    mlir.register_lowering(primitive, lambda _, x, **__: [x])

    def transposed(cotangent: Any, _: Any, **params: Any) -> Any:
        return [primitive.bind(cotangent, **params)]

    ad.deflinear2(primitive, transposed)

    def batched(args: Any, dims: Any, **params: Any) -> Any:
        if name == "shardwright_constrain":
            params["sharding"] = _with_open_dim(params["sharding"], dims[0])
        return primitive.bind(args[0], **params), dims[0]

    batching.primitive_batchers[primitive] = batched
    return primitive


def _with_open_dim(sharding: str | Sharding, dim: int) -> Sharding:
    """Return the sharding of a batched value: `sharding` with an open dimension inserted at index
    `dim`.

    Raises InputError for a string, which does not state its mesh.
    """
    if isinstance(sharding, str):
        raise InputError(
            "under jax.vmap a constraint must name its mesh",
            argument="sharding",
            got=sharding,
            expected="constrain(x, text, mesh) or a Sharding",
        )
    dims = (*sharding.dims[:dim], DimSharding((), True), *sharding.dims[dim:])
    return Sharding(sharding.mesh, dims, sharding.replicated, sharding.unreduced)
