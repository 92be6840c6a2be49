"""Compiles emitted XLA modules on forced CPU devices and says what their programs move.

A folder with `jax_xla.py`, and `jax_xla_backward.py` where there is one, a line of standard input;
an object a line of standard output. The environment forces the devices before JAX is imported.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shardwright.codegen.checks.load import load
from shardwright.codegen.moves.xla import received


def main() -> None:
    for line in sys.stdin:
        module = load(Path(line.strip()) / "jax_xla.py")
        jax.config.update("jax_enable_x64", np.dtype(jnp.dtype(module.DTYPE)).itemsize == 8)
        print(json.dumps(said_of(module)), flush=True)


def said_of(module: ModuleType) -> dict[str, Any]:
    """Bytes and collectives of the program and of its gradient; whether a larger one is right."""
    count = len(module.SOURCE_IDS)
    shape = tuple(size for _, size in module.SOURCE_AXES)
    names = tuple(name for name, _ in module.SOURCE_AXES)
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:count]).reshape(shape), names)
    source, target = module.source_sharding(mesh), module.target_sharding(mesh)
    x = jax.ShapeDtypeStruct(module.PADDED_SOURCE_SHAPE, module.DTYPE, sharding=source)

    def moved(x: Any) -> Any:
        return module.reshard(x, mesh)

    said = _compiled(jax.jit(moved, out_shardings=target), (x,), count)
    said |= {"wire": module.WIRE_BYTES, "larger": _larger(module, mesh)}
    if jnp.issubdtype(jnp.dtype(module.DTYPE), jnp.floating):
        y = jax.ShapeDtypeStruct(module.PADDED_TARGET_SHAPE, module.DTYPE, sharding=target)

        def pulled(x: Any, y: Any) -> Any:
            return jax.vjp(moved, x)[1](y)[0]

        backward = _compiled(jax.jit(pulled, out_shardings=source), (x, y), count)
        said["backward"] = backward | {
            "wire": sys.modules[module._HOST.operation.reverse.name].WIRE_BYTES
        }
    return said


def _compiled(program: Any, arguments: tuple[Any, ...], count: int) -> dict[str, Any]:
    totals, names = received(program.lower(*arguments).compile().as_text(), count)
    return {"received": max(totals), "collectives": sorted(set(names))}


def _larger(module: ModuleType, mesh: Any) -> bool:
    """Whether padding, moving and adding in one program gives what they should."""
    tensor = (np.arange(np.prod(module.SHAPE)) % 2).astype(jnp.dtype(module.DTYPE))
    tensor = tensor.reshape(module.SHAPE)
    given = tensor
    if len(module.PADDED_SOURCE_SHAPE) > len(module.SHAPE):  # terms, of which the first is all
        given = np.stack([tensor] + [0 * tensor] * (module.PADDED_SOURCE_SHAPE[0] - 1))

    def program(given: Any) -> Any:
        x = jax.lax.with_sharding_constraint(module.pad(given), module.source_sharding(mesh))
        return module.unpad(module.reshard(x, mesh)) == tensor

    return bool(np.all(jax.jit(program)(given)))


if __name__ == "__main__":
    main()
