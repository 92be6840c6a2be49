"""Calls emitted modules wrongly, and prints what each call says as one JSON object.

The argument is a folder of bundles (`test_jax_messages.py`). The environment forces the devices
before JAX is imported.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P


def mesh(first: int, *axes: tuple[str, int]) -> Mesh:
    """A mesh of devices one after another, from the first."""
    shape = tuple(size for _, size in axes)
    devices = np.array(jax.devices()[first : first + int(np.prod(shape))])
    return Mesh(devices.reshape(shape), tuple(name for name, _ in axes))


def said(call: Callable[[], Any]) -> str:
    """What an error says, with its kind; `fine` where there is none."""
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "fine"


def main() -> None:
    sys.path.insert(0, str(Path(sys.argv[1]).parent))
    import generated  # type: ignore[import-not-found]

    grid = generated.load("grid", "jax_xla")
    x = grid.pad(jnp.arange(36.0).reshape(6, 6))
    right = mesh(0, ("x", 2), ("y", 3))
    y = grid.reshard(x, right)
    apart = generated.load("apart", "jax_xla")
    far = apart.pad(jnp.arange(12.0))
    sub = generated.load("sub", "jax_xla")
    part = sub.pad(jnp.arange(16.0))
    square = generated.load("square", "jax_xla")
    group = generated.load("pair", "jax_xla")
    arrays = group.pad([jnp.arange(36.0).reshape(6, 6), jnp.arange(36.0).reshape(6, 6)])
    spec = P("x", "y")
    mapped = jax.shard_map(
        lambda x: grid.reshard(x, right), mesh=right, in_specs=spec, out_specs=spec
    )
    all_mapped = jax.shard_map(
        lambda *each: group.reshard(list(each), right)[0],
        mesh=right,
        in_specs=(spec, spec),
        out_specs=spec,
    )
    calls: dict[str, Callable[[], Any]] = {
        "right": lambda: grid.unpad(y),
        "other names": lambda: grid.reshard(x, mesh(0, ("a", 2), ("b", 3))),
        "a size of one more": lambda: grid.reshard(x, mesh(0, ("x", 2), ("z", 1), ("y", 3))),
        "turned": lambda: grid.reshard(x, mesh(0, ("y", 3), ("x", 2))),
        "other sizes": lambda: grid.reshard(x, mesh(0, ("x", 3), ("y", 2))),
        "flat": lambda: grid.reshard(x, mesh(0, ("x", 6))),
        "swapped": lambda: square.reshard(part, mesh(0, ("y", 2), ("x", 2))),
        "whole": lambda: sub.reshard(part, mesh(0, ("x", 4), ("y", 2))),
        "parts": lambda: sub.reshard(part, mesh(0, ("x:(1)2", 2), ("x:(2)2", 2), ("y", 2))),
        "other devices": lambda: grid.reshard(x, right, target_mesh=mesh(1, ("x", 2), ("y", 3))),
        "devices twice": lambda: apart.reshard(
            far, mesh(0, ("x", 3)), target_mesh=mesh(1, ("x", 3))
        ),
        "group": lambda: group.reshard(arrays, right, target_mesh=mesh(1, ("x", 2), ("y", 3))),
        "group turned": lambda: group.reshard(arrays, mesh(0, ("x", 3), ("y", 2))),
        "mapped": lambda: mapped(x),
        "group mapped": lambda: all_mapped(*arrays),
        "no backend": lambda: generated.load("grid", "triton_gpu"),
        "no name": lambda: generated.load("grit", "jax_xla"),
    }
    kernel = generated.load("kernel", "pallas_tpu")
    calls["no tpu"] = lambda: kernel.reshard(kernel.pad(jnp.arange(36.0).reshape(6, 6)), right)
    print(json.dumps({name: said(call) for name, call in calls.items()}))


if __name__ == "__main__":
    main()
