"""Compiles programs around a start and an end of a reshard, and prints their HLO as JSON.

Arguments: a TPU topology, or `cpu`, where they are interpreted, on forced devices, one more than
a module has, and whether results are right is printed in place of HLO; a module's path; names of
PROGRAMS. The environment is set before JAX is imported.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from shardwright.codegen.backends.pallas_tpu.compile.run import placed
from shardwright.codegen.checks.load import load

EXPLICIT = "explicit "
"""Before a topology: the mesh has axes of this type."""

Function = Callable[[Any, Any], Any]


def ordered(module: ModuleType, mesh: Mesh, how: Any) -> Function:
    """A matmul between."""

    def program(x: Any, w: Any) -> Any:
        started = module.reshard_start(x, mesh, **how)
        z = jnp.dot(*started.then((w, w)), preferred_element_type=jnp.float32)
        return module.reshard_done(started, after=z), z

    return program


def unordered(module: ModuleType, mesh: Mesh, how: Any) -> Function:
    """A matmul that nothing places between: a check of the check."""

    def program(x: Any, w: Any) -> Any:
        y = module.reshard_done(module.reshard_start(x, mesh, **how))
        w, y = jax.lax.optimization_barrier((w, y))
        return y, jnp.dot(w, w, preferred_element_type=jnp.float32)

    return program


def crossed(module: ModuleType, mesh: Mesh, how: Any) -> Function:
    """Two under way, and a whole one, the first done last; the source shard is used after all."""

    def program(x: Any, w: Any) -> Any:
        one = module.reshard_start(x, mesh, **how)
        two = module.reshard_start(one.then(x) + 1, mesh, **how)
        z = jnp.dot(*two.then((w, w)), preferred_element_type=jnp.float32)
        second = module.reshard_done(two, after=z)
        whole = module.reshard(x + 2, mesh, **how)
        return module.reshard_done(one, after=(second, whole)), second, whole, x + 3, z

    return program


def leaving(module: ModuleType, mesh: Mesh, how: Any) -> Function:
    """A whole reshard whose result leaves the program."""
    return lambda x, w: module.reshard(x, mesh, **how)


def used(module: ModuleType, mesh: Mesh, how: Any) -> Function:
    """One that the program goes on with."""
    return lambda x, w: module.reshard(x, mesh, **how) + 1


PROGRAMS = {
    "ordered": ordered,
    "unordered": unordered,
    "crossed": crossed,
    "leaving": leaving,
    "used": used,
}


def main(target: str, path: str, names: list[str]) -> None:
    """Print what becomes of each program."""
    module = load(Path(path))
    devices = len(module.SOURCE_IDS)
    interpreted = target == "cpu"
    chosen = (
        jax.devices()[:devices] if interpreted else placed(devices, target.removeprefix(EXPLICIT))
    )
    axes, sizes = zip(*module.SOURCE_AXES, strict=True)
    kind = AxisType.Explicit if target.startswith(EXPLICIT) else AxisType.Auto
    mesh = Mesh(np.array(chosen).reshape(sizes), axes, axis_types=(kind,) * len(axes))
    shape, sharding = module.PADDED_SOURCE_SHAPE, module.source_sharding(mesh)
    x = jax.ShapeDtypeStruct(shape, module.DTYPE, sharding=sharding)
    w = jax.ShapeDtypeStruct((2048, 2048), jnp.bfloat16, sharding=NamedSharding(mesh, P()))
    if interpreted:
        found = {name: right(module, mesh, PROGRAMS[name]) for name in names}
        found["misuse"] = misused(module, mesh, x)
    else:
        programs = {name: jax.jit(PROGRAMS[name](module, mesh, {})) for name in names}
        found = {name: each.lower(x, w).compile().as_text() for name, each in programs.items()}
    print(json.dumps(found))


def right(module: ModuleType, mesh: Mesh, made: Callable[..., Function]) -> list[bool]:
    """Which of a program's results are the tensor, or that and the number of the result, the first
    0, on every device."""
    program = jax.jit(made(module, mesh, {"interpret": True}))
    shape = module.PADDED_SOURCE_SHAPE
    whole = (np.arange(np.prod(shape)) % 97).reshape(shape)
    x = jax.device_put(jnp.array(whole, module.DTYPE), module.source_sharding(mesh))
    *results, _ = program(x, jnp.eye(8, dtype=jnp.bfloat16))
    return [
        all((np.array(s.data) == (whole + k)[s.index]).all() for s in each.addressable_shards)
        for k, each in enumerate(results)
    ]


def misused(module: ModuleType, mesh: Mesh, x: Any) -> dict[str, str]:
    """What is said of each misuse."""
    start, done = module.reshard_start, module.reshard_done
    array = jax.device_put(jnp.zeros(x.shape, x.dtype), x.sharding)

    def twice(x: Any) -> Any:
        started = start(x, mesh, interpret=True)
        return done(started), done(started)

    def late(x: Any) -> Any:
        started = start(x, mesh, interpret=True)
        return done(started), started.then(x)

    def never(x: Any) -> Any:
        start(x, mesh, interpret=True)
        return x

    def summed(x: Any) -> Any:
        return done(start(x, mesh, interpret=True)).astype(jnp.float32).sum()

    calls: dict[str, Callable[[], object]] = {
        "outside": lambda: start(array, mesh),
        "of another shape": lambda: jax.jit(lambda x: start(x[:1], mesh))(array),
        "twice": lambda: jax.jit(twice)(array),
        "late": lambda: jax.jit(late)(array),
        "no start": lambda: done(array),
        "a batch": lambda: jax.vmap(jax.jit(lambda x: done(start(x, mesh, interpret=True))))(
            jnp.stack([array, array])
        ),
        "differentiated": lambda: jax.grad(summed)(array),
        "never done": lambda: jax.jit(never)(array),
    }
    return {name: said(call) for name, call in calls.items()}


def said(call: Callable[[], object]) -> str:
    """The error of a call, or else its warning."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            call()
        except Exception as error:
            return f"{type(error).__name__}: {error}"
    return "; ".join(str(each.message) for each in warned)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
