"""Leave reshards to JAX if it is as fast as a module, or if no module supports them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import AxisType, NamedSharding, SingleDeviceSharding

from shardwright.ir.dtypes import dtype_of
from shardwright.ir.errors import InputError
from shardwright.ir.sharding import check_shape

Move = Callable[[jax.Array], jax.Array]


def by_xla(source: NamedSharding, target: NamedSharding, traced: bool) -> Move:
    if not traced:
        moved: Move = jax.jit(lambda x: x, out_shardings=target)
        return moved

    def move(x: jax.Array) -> jax.Array:
        if AxisType.Explicit in jax.typeof(x).sharding.mesh.axis_types:
            return jax.sharding.reshard(x, target)
        x = jax.lax.with_sharding_constraint(x, source)
        return jax.lax.with_sharding_constraint(x, target)

    return move


def is_placed_by_jax(source: Any, target: NamedSharding, rank: int) -> bool:
    """Return whether `jax.device_put` is as good as a module.

    This is true if no data moves between devices, if the memory kind changes, or if one side has
    only one device. It is also true among CPU devices of one process, which share memory, unless
    the reshard joins blocks of whole rows.
    """
    sides = source, target
    default = {device.default_memory().kind for device in target.device_set}
    if isinstance(source, SingleDeviceSharding) or len(target.device_set) == 1:
        return True
    if {each.memory_kind for each in sides} != default or source.is_equivalent_to(target, rank):
        return True
    on_cpu = all(d.platform == "cpu" for each in sides for d in each.device_set)
    local = on_cpu and all(each.is_fully_addressable for each in sides)
    return local and not _joins_rows(source, target, rank)


def _joins_rows(source: Any, target: NamedSharding, rank: int) -> bool:
    if not isinstance(source, NamedSharding) or source.mesh != target.mesh or not rank:
        return False
    before, after = (_by_dimension(each, rank) for each in (source, target))
    fewer = before[0][: len(after[0])] == after[0] != before[0]
    return fewer and before[1:] == after[1:]


def _by_dimension(sharding: NamedSharding, rank: int) -> list[tuple[str, ...]]:
    entries = [*sharding.spec, *[None] * (rank - len(sharding.spec))]
    return [() if e is None else e if isinstance(e, tuple) else (e,) for e in entries]


def has_terms(sharding: Any) -> bool:
    """Return whether a sharding has unreduced or reduced axes, which modules do not accept in JAX
    arrays."""
    named = isinstance(sharding, NamedSharding)
    return named and bool(sharding.spec.unreduced or sharding.spec.reduced)


def of_terms(source: Any, target: NamedSharding) -> Move:
    """Return a function that lets JAX reshard from or to a sharding with unreduced or reduced axes.
    Raises InputError if the source is not on the target's mesh."""
    if getattr(source, "mesh", None) != target.mesh:
        raise InputError(
            "unreduced and reduced axes can be resharded only within one mesh",
            argument="target",
            got=f"{target.spec} on a mesh other than the array's",
            expected="a NamedSharding on the mesh of the array",
        )

    def move(x: jax.Array) -> jax.Array:
        return jax.sharding.reshard(x, target)

    return move


def is_known(shape: tuple[int, ...], dtype: Any) -> bool:
    """Return whether modules support a shape and dtype."""
    try:
        check_shape(shape)
        dtype_of(dtype)
    except InputError:
        return False
    return True


def default_kind(target: NamedSharding) -> str:
    kind: str = next(iter(target.device_set)).default_memory().kind
    return kind


def mapped_axes(mesh: Any) -> set[str]:
    """Return the axes of a mesh that an enclosing `jax.vmap` maps. A shard_map inside the vmap is
    manual over all other axes."""
    manual: list[str] = []

    def body() -> tuple[()]:
        manual.extend(jax.sharding.get_abstract_mesh().manual_axes)
        return ()

    jax.eval_shape(jax.shard_map(body, mesh=mesh, in_specs=(), out_specs=()))
    return {*mesh.axis_names} - {*manual}
