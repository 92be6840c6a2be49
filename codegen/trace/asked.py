"""Read the constraints inside a function, and check where it places values and how it branches by
platform."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shardwright.codegen.trace.meshes import ProgramMeshes
from shardwright.ir.errors import InputError
from shardwright.ir.mesh import Mesh
from shardwright.ir.program import Line
from shardwright.ir.sharding import DimSharding, Sharding

KERNELS = ("mosaic",)
"""Platforms that occur only in the bodies of Pallas kernels, for which programs have no code."""


def asked(meshes: ProgramMeshes, equation: Any, rank: int) -> Sharding:
    """Return the sharding of a constraint, which may be shardwright's or JAX's."""
    given = equation.params.get("sharding")
    if isinstance(given, Sharding | str):
        return meshes.read(given, rank).for_rank(rank)
    named = given or equation.params["dst_sharding"]
    return _opened(meshes.of_jax(named, rank), equation.params.get("unconstrained_dims", ()))


def _opened(sharding: Sharding, free: Sequence[int]) -> Sharding:
    dims = tuple(
        DimSharding(dim.axes, True) if i in free else dim for i, dim in enumerate(sharding.dims)
    )
    return Sharding(sharding.mesh, dims, sharding.replicated, sharding.unreduced)


def check_manual(sharding: Sharding, mesh: Mesh | None, manual: frozenset[str]) -> None:
    """Raise InputError if a constraint in a shard_map uses a manual axis, or is not on the mesh of
    the shard_map."""
    if mesh is not None and sharding.mesh != mesh:
        raise InputError(
            "a constraint in a shard_map must be on the mesh of the shard_map",
            got=f"{sharding} on {sharding.mesh}",
            expected=f"a sharding on {mesh}",
        )
    taken = [ref.name for ref in sharding.used() if ref.name in manual]
    if taken:
        raise InputError(
            "a constraint in a shard_map must not use the manual axes of the shard_map",
            got=f"{sharding} where {taken[0]} is manual",
            expected="axes that are not manual: values are already local along manual axes",
        )


def check_places(places: Sequence[Any], line: Line | None) -> None:
    """Raise InputError if a function puts a value on particular devices."""
    said = [str(place) for place in places if place is not None]
    if said:
        raise InputError(
            "a function must not place values on devices, because its program does so",
            argument="fn",
            got=f"jax.device_put to {said[0]}{f', {line}' if line else ''}",
            expected="jax.lax.with_sharding_constraint, or no jax.device_put",
        )


def branch_everywhere(platforms: Sequence[Any], line: Line | None) -> int:
    """Return the index of the branch for all platforms.

    Raises InputError if platforms take different branches, because a module must run on all
    platforms.
    """
    others = [name for names in platforms for name in names or () if name not in KERNELS]
    if others or None not in platforms:
        raise InputError(
            "a function must not branch by platform, because its module is for all platforms",
            argument="fn",
            got=f"branches for {', '.join(others)}{f', {line}' if line else ''}",
            expected="only a default branch, or no lax.platform_dependent",
        )
    return platforms.index(None)
