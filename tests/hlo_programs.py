"""Compiles programs whose collectives are known, and prints their HLO as one JSON object.

The argument is `cpu`, on eight forced devices, or `v5e`, ahead of time for eight chips. The
environment is set before JAX is imported.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

Made = Callable[[tuple[int, ...], tuple[str, ...]], Mesh]
F32 = jnp.float32


def array(*shape: int, dtype: Any = F32) -> jax.ShapeDtypeStruct:
    """An argument of a program."""
    return jax.ShapeDtypeStruct(shape, dtype)


def rematerialized(made: Made) -> Any:
    """openxla/xla#15207 and jax-ml/jax#21562: a constraint that XLA meets by gathering all."""
    mesh = made((4, 2), ("x", "y"))
    before = NamedSharding(mesh, P("y", None, "x"))
    after = NamedSharding(mesh, P(None, ("x", "y"), None))

    def program(a: Any, b: Any, c: Any) -> Any:
        return c + jax.lax.with_sharding_constraint(a + b, after)

    jitted = jax.jit(program, in_shardings=(before, before, after), out_shardings=after)
    return jitted.lower(*[array(16, 16, 16)] * 3)


def grouped_convolution(made: Made) -> Any:
    """openxla/xla#47945: a convolution in groups whose batch is split."""
    mesh = made((8,), ("data",))
    batch = NamedSharding(mesh, P("data", None, None, None))

    def program(x: Any, kernel: Any) -> Any:
        return jax.lax.conv_general_dilated(
            x, kernel, (1, 1), "SAME",
            dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=4,
        )  # fmt: skip

    whole = NamedSharding(mesh, P())
    jitted = jax.jit(program, in_shardings=(batch, whole), out_shardings=batch)
    return jitted.lower(array(16, 8, 8, 8), array(3, 3, 2, 8))


def scanned(made: Made) -> Any:
    """The gradient of six layers in a scan, weights split both ways."""
    mesh = made((2, 4), ("d", "t"))
    weights, rows = NamedSharding(mesh, P(None, "d", "t")), NamedSharding(mesh, P("d", None))

    def program(w: Any, x: Any) -> Any:
        return jax.lax.scan(lambda x, w: (jax.nn.relu(x @ w), None), x, w)[0].sum()

    jitted = jax.jit(jax.grad(program), in_shardings=(weights, rows), out_shardings=weights)
    return jitted.lower(array(6, 512, 512), array(32, 512))


def mapped(made: Made) -> Any:
    """Four gathers, a scatter, a permute and a sum in a shard_map, all in one channel."""
    mesh = made((2, 4), ("d", "t"))

    def program(a: Any, b: Any, c: Any, d: Any) -> Any:
        gathered = [jax.lax.all_gather(x, "t", tiled=True) for x in (a, b, c, d)]
        scattered = jax.lax.psum_scatter(a, "d", tiled=True)
        shifted = jax.lax.ppermute(b, "t", [(i, (i + 1) % 4) for i in range(4)])
        parts = [x.max() for x in gathered] + [scattered.sum(), shifted.sum()]
        return jax.lax.psum(sum(parts), ("d", "t"))

    split = jax.shard_map(program, mesh=mesh, in_specs=P(("d", "t")), out_specs=P())
    return jax.jit(split).lower(*[array(256, 128)] * 4)


def layers(made: Made) -> Any:
    """The gradient of three layers whose weights and batch are split over all devices."""
    mesh = made((8,), ("d",))
    rows = NamedSharding(mesh, P("d", None))

    def program(weights: Any, x: Any) -> Any:
        for up, down in weights:
            x = jax.nn.relu(x @ up) @ down
        return (x * x).sum()

    jitted = jax.jit(jax.grad(program), in_shardings=(rows, rows), out_shardings=rows)
    return jitted.lower([(array(1024, 4096), array(4096, 1024))] * 3, array(512, 1024))


PROGRAMS = (rematerialized, grouped_convolution, scanned, mapped, layers)


def devices(platform: str) -> Any:
    """Eight devices."""
    if platform == "cpu":
        return jax.devices()
    from jax.experimental import topologies

    return topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x4").devices


def main() -> None:
    grid = np.array(devices(sys.argv[1]))

    def made(shape: tuple[int, ...], names: tuple[str, ...]) -> Mesh:
        return Mesh(grid.reshape(shape), names)

    print(json.dumps({each.__name__: each(made).compile().as_text() for each in PROGRAMS}))


if __name__ == "__main__":
    main()
