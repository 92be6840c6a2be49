"""`sw.reshard` of JAX arrays, whether concrete or traced by a jit."""

from __future__ import annotations

import functools
import logging
import time
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding, PartitionSpec, Sharding

from shardwright.codegen.call.by_jax import (
    Move,
    by_xla,
    default_kind,
    has_terms,
    is_known,
    is_placed_by_jax,
    mapped_axes,
    of_terms,
)
from shardwright.codegen.call.cache import load
from shardwright.codegen.call.choice import Way, way_of
from shardwright.codegen.moves.xla import XlaCollectives, xla_collectives
from shardwright.codegen.operations.emit.emit import emit
from shardwright.ir.errors import InputError, in_a_line
from shardwright.ir.reshard import Reshard

LOG = logging.getLogger("shardwright")


def reshard_array(x: Any, target: Any, source: Any) -> jax.Array:
    """Return an array resharded to `target`; see `sw.reshard`."""
    if isinstance(target, PartitionSpec):
        target = on_mesh(x, target, source)
    if isinstance(target, Sharding) and not _needs_module(x, target):
        return jax.device_put(x, target)
    if isinstance(target, PartitionSpec):
        return jax.sharding.reshard(x, NamedSharding(jax.typeof(x).sharding.mesh, target))
    if not isinstance(target, NamedSharding):
        raise InputError(
            "the target of a jax.Array must be a JAX sharding",
            argument="target",
            got=in_a_line(target),
            expected="NamedSharding(mesh, P(…))",
        )
    _check_rank(target, x.ndim, "target")
    _check_devices(target)
    if isinstance(x, jax.core.Tracer):
        return _traced(x, target, source)
    if source is not None:
        _check_like(_bare(x.sharding), _bare(_named(source, target, x.ndim)), x.ndim)
    weak = jax.typeof(x).weak_type
    return _mover(x.shape, x.dtype, weak, x.sharding, target, False)(x)


def _needs_module(x: Any, target: Sharding) -> bool:
    return isinstance(x, jax.Array) and isinstance(target, NamedSharding)


def on_mesh(x: Any, spec: PartitionSpec, source: Any) -> Any:
    """Return the NamedSharding of a PartitionSpec: on the mesh of `source` if that is a
    NamedSharding; otherwise, outside jit, on the current mesh or else the array's. Under jit,
    return `spec` unchanged if all axes of the array's mesh are Explicit. Raises InputError if there
    is no mesh."""
    if isinstance(source, NamedSharding):
        return NamedSharding(source.mesh, spec)
    if isinstance(x, jax.core.Tracer):
        if {*jax.typeof(x).sharding.mesh.axis_types} == {AxisType.Explicit}:
            return spec
        mesh = None
    else:
        set_mesh = jax.sharding.get_mesh()
        mesh = getattr(getattr(x, "sharding", None), "mesh", None) if set_mesh.empty else set_mesh
    if mesh is None:
        raise InputError(
            "a PartitionSpec needs an array with a mesh, and this array has none",
            argument="target",
            got=str(spec),
            expected="NamedSharding(mesh, P(…)), or jax.set_mesh(mesh) outside jit",
        )
    return NamedSharding(mesh, spec)


def _traced(x: jax.Array, target: NamedSharding, source: Any) -> jax.Array:
    """Return a traced array resharded to `target`. Modules work in the default memory kind; arrays
    of other kinds are converted before and after."""
    before = _traced_source(x, target, source)
    if AxisType.Explicit in before.mesh.axis_types and mapped_axes(before.mesh):
        return jax.sharding.reshard(x, target)
    here, kind = _bare(target), default_kind(target)
    if jax.typeof(x).memory_space == jax.memory.Space.Host:
        x = jax.device_put(x, before.with_memory_kind(kind))
    y = _mover(x.shape, x.dtype, jax.typeof(x).weak_type, before, here, True)(x)
    return y if target.memory_kind in (None, kind) else jax.device_put(y, target)


def _bare(sharding: Any) -> Any:
    named = isinstance(sharding, NamedSharding)
    return NamedSharding(sharding.mesh, sharding.spec) if named else sharding


@functools.lru_cache(maxsize=4096)
def _mover(
    shape: Any, dtype: Any, weak: bool, source: Any, target: NamedSharding, traced: bool
) -> Move:
    if traced:
        _check_order(source, target)
    if has_terms(source) or has_terms(target):
        return of_terms(source, target)
    placed = not traced and is_placed_by_jax(source, target, len(shape))
    unknown = weak or not is_known(shape, dtype) or not isinstance(source, NamedSharding)
    if placed or unknown:
        put: Move = functools.partial(jax.device_put, device=target)
        return by_xla(source, target, True) if traced else put
    began = time.perf_counter()
    reshard = Reshard(shape, dtype, source, target)
    way, move = _made(reshard, source, target, traced)
    took = time.perf_counter() - began
    who = f"{way.backend or 'XLA itself'}, since {way.why}"
    LOG.info("%s%s from %s to %s: %s; ready in %.2f s", dtype, list(shape), source.spec,
             target.spec, who, took)  # fmt: skip
    return move


def _check_order(source: NamedSharding, target: NamedSharding) -> None:
    before, after = ([device.id for device in each.mesh.devices.flat] for each in (source, target))
    if before != after:
        raise InputError(
            "all arrays of one jit must be on the same devices, in the same order",
            argument="target",
            got=f"devices {in_a_line(after)}",
            expected=f"devices {in_a_line(before)}, or sw.reshard outside jit",
        )


def _made(reshard: Reshard, source: Any, target: Any, traced: bool) -> tuple[Way, Move]:
    """Choose the executor of a reshard. Return the choice and the executor's function. Do not
    consider XLA's own plan for partial sums, uneven shards, or meshes with different devices or
    device orders."""
    devices, there = list(source.mesh.devices.flat), list(target.mesh.devices.flat)
    asked = functools.partial(_asked, reshard.shape, jnp.dtype(reshard.dtype), source, target)
    even = divides(source, reshard.shape) and divides(target, reshard.shape)
    has_terms = reshard.source.unreduced or reshard.target.unreduced
    own = devices == there and even and not has_terms
    way = way_of(reshard, devices[0].client.devices(), asked if own else None)
    if way.backend is None or way.plan is None:
        return way, by_xla(source, target, traced)
    floating = jnp.issubdtype(reshard.dtype, jnp.floating)
    gradient = floating and not reshard.extremum
    bundle = emit(way.plan, (way.backend,), gradient=gradient, features=("vmap",))
    module = load(bundle, way.backend)
    return way, _by_module(module, source.mesh, target, traced)


def _asked(shape: Any, dtype: Any, source: Any, target: Any) -> XlaCollectives:
    return xla_collectives(jax.ShapeDtypeStruct(shape, dtype, sharding=source), target)


def _by_module(module: Any, mesh: Any, target: NamedSharding, traced: bool) -> Move:
    """Return a function that reshards with a module. It pads uneven shards before, and removes the
    padding after."""

    def padded(x: jax.Array) -> jax.Array:
        y = module.reshard(module.pad(x), mesh, target_mesh=target.mesh)
        return jax.lax.with_sharding_constraint(module.unpad(y), target)

    def whole(x: jax.Array) -> jax.Array:
        y: jax.Array = module.reshard(x, mesh, target_mesh=target.mesh)
        return y if traced or y.sharding == target else jax.device_put(y, target)

    shapes = module.PADDED_SOURCE_SHAPE, module.PADDED_TARGET_SHAPE
    return whole if shapes == (module.SHAPE,) * 2 else padded


def _traced_source(x: jax.Array, target: NamedSharding, source: Any) -> NamedSharding:
    said = jax.typeof(x).sharding
    types = set(said.mesh.axis_types)
    if AxisType.Manual in types:
        raise InputError(
            "sw.reshard must not be called inside shard_map, where arrays are local shards",
            argument="x",
            got=str(jax.typeof(x)),
            expected="sw.reshard(x, target) before or after the shard_map",
        )
    if types == {AxisType.Explicit}:
        found = NamedSharding(_mesh_like(said.mesh, target), said.spec)
        if source is not None:
            _check_like(found, _bare(_named(source, target, x.ndim)), x.ndim)
        return found
    if source is None:
        raise InputError(
            "under jit, `source` must be given unless all axes of the mesh are Explicit",
            argument="source",
            got=str(jax.typeof(x)),
            expected="sw.reshard(x, target, source=P(…)), or a mesh with Explicit axes",
        )
    return _bare(_named(source, target, x.ndim))


def _mesh_like(mesh: Any, target: NamedSharding) -> Any:
    if target.mesh.abstract_mesh != mesh:
        raise InputError(
            "inside jit the target must be on the mesh of the array",
            argument="target",
            got=_axes(target.mesh),
            expected=_axes(mesh),
        )
    return target.mesh


def _axes(mesh: Any) -> str:
    kinds = {kind.name for kind in mesh.axis_types}
    named = ", ".join(f"{name}={size}" for name, size in mesh.shape.items())
    return f"{' and '.join(sorted(kinds))} axes {named}"


def _check_rank(named: NamedSharding, rank: int, argument: str) -> None:
    if len(named.spec) > rank:
        raise InputError(
            "a sharding must not be longer than the rank of the array",
            argument=argument,
            got=str(named.spec),
            expected=f"a length of at most {rank}",
        )


def _check_devices(target: NamedSharding) -> None:
    if isinstance(target.mesh, jax.sharding.AbstractMesh):
        raise InputError(
            "the target mesh must have devices",
            argument="target",
            got=f"an abstract mesh of {_axes(target.mesh)}",
            expected="NamedSharding(mesh, P(…)) on a mesh of devices",
        )


def _named(source: Any, target: NamedSharding, rank: int) -> NamedSharding:
    found = NamedSharding(target.mesh, source) if isinstance(source, PartitionSpec) else source
    if isinstance(found, NamedSharding) and isinstance(found.mesh, jax.sharding.AbstractMesh):
        found = NamedSharding(_mesh_like(found.mesh, target), found.spec)
    if not isinstance(found, NamedSharding):
        raise InputError(
            "the source of a jax.Array must be a NamedSharding or a PartitionSpec",
            argument="source",
            got=in_a_line(source),
            expected="P(…)",
        )
    _check_rank(found, rank, "source")
    return found


def _check_like(found: Any, said: NamedSharding, rank: int) -> None:
    if not found.is_equivalent_to(said, rank):
        raise InputError(
            "`source` is not the array's sharding",
            argument="source",
            got=str(said.spec),
            expected=f"{getattr(found, 'spec', found)}, or no source",
        )


def divides(sharding: NamedSharding, shape: tuple[int, ...]) -> bool:
    """Return whether all shards have the same shape."""
    try:
        sharding.shard_shape(shape)
    except ValueError:
        return False
    return True
