"""`sw.reshard` of a tree of JAX arrays."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from shardwright.codegen.call.arrays import divides, on_mesh, reshard_array
from shardwright.codegen.call.by_jax import default_kind, has_terms, is_known
from shardwright.codegen.call.sync import exchange
from shardwright.codegen.call.trees import Leaf, alone, moved
from shardwright.ir.errors import InputError, in_a_line
from shardwright.ir.given import mesh_of

LOG = logging.getLogger("shardwright")


class DescribedArray(NamedTuple):
    """The description of an array that moves in the common exchange."""

    shape: tuple[int, ...]
    dtype: Any
    source: NamedSharding
    target: NamedSharding


def reshard_arrays(leaves: list[Leaf]) -> list[jax.Array]:
    """Return arrays with new shardings. Arrays that move between devices share one exchange; all
    others, and arrays traced by jit, are resharded one at a time."""
    every = [alone(leaf, _on_mesh) for leaf in leaves]
    return moved(every, _moves, _single, _exchanged)


def _single(leaf: Leaf) -> jax.Array:
    return reshard_array(leaf.value, leaf.target, leaf.source)


def _exchanged(leaves: list[Leaf]) -> list[jax.Array]:
    described = tuple(
        (leaf.name, DescribedArray(x.shape, x.dtype, x.sharding, leaf.target))
        for leaf in leaves
        for x in [leaf.value]
    )
    return _mover(described)([leaf.value for leaf in leaves])


def _on_mesh(leaf: Leaf) -> Leaf:
    if not isinstance(leaf.value, jax.Array | np.ndarray | np.generic | int | float | complex):
        raise InputError(
            "every leaf of the tree must be an array with a sharding",
            argument="x",
            got=in_a_line(leaf.value),
            expected="a jax.Array: jax.device_put(x, sharding)",
        )
    if isinstance(leaf.target, PartitionSpec):
        return leaf._replace(target=on_mesh(leaf.value, leaf.target, leaf.source))
    return leaf


def _moves(leaf: Leaf) -> bool:
    """Return whether an array moves in the common exchange: it is concrete, changes from one
    NamedSharding to another, and has a dtype that modules support."""
    x, target = leaf.value, leaf.target
    if not isinstance(x, jax.Array) or isinstance(x, jax.core.Tracer) or leaf.source is not None:
        return False
    sides = x.sharding, target
    if not all(isinstance(each, NamedSharding) for each in sides) or len(target.spec) > x.ndim:
        return False
    return (
        isinstance(target.mesh, Mesh)
        and bool(x.size)
        and is_known(x.shape, x.dtype)
        and not jax.typeof(x).weak_type
        and not any(map(has_terms, sides))
        and all(each.memory_kind in (None, default_kind(each)) for each in sides)
        and not x.sharding.is_equivalent_to(target, x.ndim)
        and all(divides(each, x.shape) for each in sides)
    )


@functools.lru_cache(maxsize=64)
def _mover(described: tuple[tuple[str, DescribedArray], ...]) -> Callable[[list[Any]], list[Any]]:
    began = time.perf_counter()
    names, arrays = zip(*described, strict=True)
    weights, called = exchange(
        names,
        [(each.shape, each.dtype) for each in arrays],
        [(each.source, mesh_of(each.source.mesh)) for each in arrays],
        [(each.target, mesh_of(each.target.mesh)) for each in arrays],
    )
    every = {d for each in arrays for side in (each.source, each.target) for d in side.device_set}
    devices = sorted(every, key=lambda device: device.id)
    LOG.info("%d arrays in one exchange: jax_model, the busiest device receives %s bytes; "
             "ready in %.2f s", len(names), f"{weights.plan.received_max:,}",
             time.perf_counter() - began)  # fmt: skip

    def move(given: list[Any]) -> list[Any]:
        found = weights(dict(zip(called, given, strict=True)), devices=devices)
        return [
            jax.make_array_from_single_device_arrays(
                each.shape,
                each.target,
                [shard.data for shard in found[name].addressable_shards] if name in found else [],
                dtype=each.dtype,
            )
            for name, each in zip(called, arrays, strict=True)
        ]

    return move
