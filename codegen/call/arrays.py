"""`sw.reshard` of arrays of JAX: those that are there, and those that a jit traces."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding, PartitionSpec, SingleDeviceSharding

from shardwright.codegen.call.cache import load
from shardwright.codegen.call.choice import Way, way_of
from shardwright.codegen.emit.emit import emit
from shardwright.codegen.planner.xla import XlaCollectives, xla_collectives
from shardwright.ir.errors import InputError, in_a_line
from shardwright.ir.reshard import Reshard

Move = Callable[[jax.Array], jax.Array]
LOG = logging.getLogger("shardwright")


def reshard_array(x: jax.Array, target: Any, source: Any) -> jax.Array:
    """Return an array with a sharding; see `sw.reshard`."""
    if not isinstance(target, NamedSharding):
        raise InputError(
            "an array is resharded to a NamedSharding",
            argument="target",
            got=in_a_line(target),
            expected="NamedSharding(mesh, P(…))",
        )
    _check_rank(target, x.ndim, "target")
    if isinstance(x, jax.core.Tracer):
        before = _traced_source(x, target, source)
        return _mover(x.shape, x.dtype, before, target, True)(x)
    if source is not None:
        _check_like(x.sharding, _named(source, target, x.ndim), x.ndim)
    return _mover(x.shape, x.dtype, x.sharding, target, False)(x)


@functools.lru_cache(maxsize=4096)
def _mover(shape: Any, dtype: Any, source: Any, target: NamedSharding, traced: bool) -> Move:
    """Return what moves arrays of a description: as XLA does, or by a module."""
    _check_devices(target)
    if not traced and _is_placed_by_jax(source, target, len(shape)):
        return functools.partial(jax.device_put, device=target)
    if not isinstance(source, NamedSharding):
        raise InputError(
            "an array that is resharded has a NamedSharding",
            argument="x",
            got=in_a_line(source),
            expected="jax.device_put(x, NamedSharding(mesh, P(…)))",
        )
    began = time.perf_counter()
    reshard = Reshard(shape, dtype, source, target)
    way, move = _made(reshard, source, target, traced)
    took = time.perf_counter() - began
    who = f"{way.backend or 'XLA itself'}, since {way.why}"
    LOG.info("%s%s from %s to %s: %s; ready in %.2f s", dtype, list(shape), source.spec,
             target.spec, who, took)  # fmt: skip
    return move


def _made(reshard: Reshard, source: Any, target: Any, traced: bool) -> tuple[Way, Move]:
    """Return who reshards and what does it. XLA has no plan of its own for terms, and for meshes
    that list other devices, or in another order."""
    devices, there = list(source.mesh.devices.flat), list(target.mesh.devices.flat)
    asked = functools.partial(_asked, reshard.shape, jnp.dtype(reshard.dtype), source, target)
    divides = _divides(source, reshard.shape) and _divides(target, reshard.shape)
    has_terms = reshard.source.unreduced or reshard.target.unreduced
    own = devices == there and divides and not has_terms
    way = way_of(reshard, devices[0].client.devices(), asked if own else None)
    if way.backend is None or way.plan is None:
        return way, _by_xla(source, target, traced)
    floating = jnp.issubdtype(reshard.dtype, jnp.floating)
    gradient = floating and not reshard.extremum
    module = load(emit(way.plan, (way.backend,), gradient=gradient), way.backend)
    return way, _by_module(module, source.mesh, target, traced)


def _asked(shape: Any, dtype: Any, source: Any, target: Any) -> XlaCollectives:
    """Return what XLA does here for the same array."""
    return xla_collectives(jax.ShapeDtypeStruct(shape, dtype, sharding=source), target)


def _by_xla(source: NamedSharding, target: NamedSharding, traced: bool) -> Move:
    """Return XLA's own reshard."""
    if not traced:
        moved: Move = jax.jit(lambda x: x, out_shardings=target)
        return moved

    def move(x: jax.Array) -> jax.Array:
        if AxisType.Explicit in jax.typeof(x).sharding.mesh.axis_types:
            return jax.sharding.reshard(x, target)
        x = jax.lax.with_sharding_constraint(x, source)
        return jax.lax.with_sharding_constraint(x, target)

    return move


def _by_module(module: Any, mesh: Any, target: NamedSharding, traced: bool) -> Move:
    """Return a module's reshard of arrays without padding: shards that do not divide are padded and
    their results cut, which a jit alone can do."""

    def padded(x: jax.Array) -> jax.Array:
        y = module.reshard(module.pad(x), mesh, target_mesh=target.mesh)
        return jax.lax.with_sharding_constraint(module.unpad(y), target)

    def whole(x: jax.Array) -> jax.Array:
        y: jax.Array = module.reshard(x, mesh, target_mesh=target.mesh)
        return y if traced or y.sharding == target else jax.device_put(y, target)

    shapes = module.PADDED_SOURCE_SHAPE, module.PADDED_TARGET_SHAPE
    return whole if shapes == (module.SHAPE,) * 2 else padded


def _is_placed_by_jax(source: Any, target: NamedSharding, rank: int) -> bool:
    """Return whether `jax.device_put` is as good: nothing moves between shards, or to or from
    another kind of memory, or one device has it all, or all devices are one process's on a CPU and
    have one memory, where it is slower only at joining blocks of whole rows."""
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
    """Return whether the first dimension is gathered, and nothing else happens."""
    if not isinstance(source, NamedSharding) or source.mesh != target.mesh or not rank:
        return False
    before, after = (_by_dimension(each, rank) for each in (source, target))
    fewer = before[0][: len(after[0])] == after[0] != before[0]
    return fewer and before[1:] == after[1:]


def _by_dimension(sharding: NamedSharding, rank: int) -> list[tuple[str, ...]]:
    entries = [*sharding.spec, *[None] * (rank - len(sharding.spec))]
    return [() if e is None else e if isinstance(e, tuple) else (e,) for e in entries]


def _traced_source(x: jax.Array, target: NamedSharding, source: Any) -> NamedSharding:
    """Return how an array is sharded that is traced. Raises InputError where nothing tells."""
    said = jax.typeof(x).sharding
    types = set(said.mesh.axis_types)
    if AxisType.Manual in types:
        raise InputError(
            "inside shard_map an array is the shard of one device, which has no sharding",
            argument="x",
            got=str(jax.typeof(x)),
            expected="sw.reshard(x, target) around the shard_map",
        )
    if types == {AxisType.Explicit}:
        found = NamedSharding(_mesh_like(said.mesh, target), said.spec)
        if source is not None:
            _check_like(found, _named(source, target, x.ndim), x.ndim)
        return found
    if source is None:
        raise InputError(
            "the type of a traced array tells its sharding where all axes are Explicit, not here",
            argument="source",
            got=str(jax.typeof(x)),
            expected="sw.reshard(x, target, source=P(…)), or a mesh with Explicit axes",
        )
    return _named(source, target, x.ndim)


def _mesh_like(mesh: Any, target: NamedSharding) -> Any:
    """Return the target's mesh, which must be the one that a traced array is on."""
    if target.mesh.abstract_mesh != mesh:
        raise InputError(
            "in one program the target is on the mesh of the array",
            argument="target",
            got=_axes(target.mesh),
            expected=_axes(mesh),
        )
    return target.mesh


def _axes(mesh: Any) -> str:
    """Return the axes of a mesh of JAX, in words."""
    kinds = {kind.name for kind in mesh.axis_types}
    named = ", ".join(f"{name}={size}" for name, size in mesh.shape.items())
    return f"{' and '.join(sorted(kinds))} axes {named}"


def _check_rank(named: NamedSharding, rank: int, argument: str) -> None:
    """Raise InputError for a sharding of more dimensions than an array has."""
    if len(named.spec) > rank:
        raise InputError(
            "a sharding must not be longer than the rank of the array",
            argument=argument,
            got=str(named.spec),
            expected=f"at most {rank} entries",
        )


def _check_devices(target: NamedSharding) -> None:
    if isinstance(target.mesh, jax.sharding.AbstractMesh):
        raise InputError(
            "a target has devices",
            argument="target",
            got=f"an abstract mesh of {_axes(target.mesh)}",
            expected="NamedSharding(mesh, P(…)) on the mesh of devices",
        )


def _named(source: Any, target: NamedSharding, rank: int) -> NamedSharding:
    """Return a source's sharding; that of a PartitionSpec is on the mesh of the target."""
    found = NamedSharding(target.mesh, source) if isinstance(source, PartitionSpec) else source
    if not isinstance(found, NamedSharding):
        raise InputError(
            "the source of an array is a NamedSharding or a PartitionSpec",
            argument="source",
            got=in_a_line(source),
            expected="P(…)",
        )
    _check_rank(found, rank, "source")
    return found


def _check_like(found: Any, said: NamedSharding, rank: int) -> None:
    """Raise InputError for an array that is sharded otherwise than is said."""
    if not found.is_equivalent_to(said, rank):
        raise InputError(
            "the array is sharded otherwise",
            argument="source",
            got=str(said.spec),
            expected=f"{getattr(found, 'spec', found)}, or no source",
        )


def _divides(sharding: NamedSharding, shape: tuple[int, ...]) -> bool:
    """Return whether all shards have one shape."""
    try:
        sharding.shard_shape(shape)
    except ValueError:
        return False
    return True
