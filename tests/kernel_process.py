"""Programs with kernels: interpreted on CPU devices beside one device, or compiled for TPUs, in a
process of its own; prints what is wrong as JSON.

python tests/kernel_process.py values gather rhs
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=5"
os.environ["ALLOW_MULTIPLE_LIBTPU_LOAD"] = "1"
os.environ["TPU_ACCELERATOR_TYPE"] = "v5litepod-8"
os.environ["TPU_WORKER_HOSTNAMES"] = "localhost"
os.environ["TPU_SKIP_MDS_QUERY"] = "1"

import emitted
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import topologies
from jax.experimental.pallas import tpu as pltpu

import shardwright as sw
from shardwright.codegen.verify import program_values


def mlp(x: Any, w: Any, v: Any) -> Any:
    return jnp.tanh(x @ w / 16) @ v


def looped(x: Any, w: Any, v: Any) -> Any:
    """The same in a scan, twice."""
    return jax.lax.scan(lambda h, _: (jnp.tanh(mlp(h, w, v) / 16), None), x, length=2)[0]


CASES = {
    "lhs and out": (mlp, (512, 1024, 1024)),
    "rhs": (mlp, (1024, 512, 512)),
    "looped": (looped, (512, 1024, 1024)),
}


def partitioned(
    fn: Any, extents: tuple[int, int, int], devices: int, topology: str, dtype: Any = jnp.float32
) -> sw.Partitioned:
    rows, inner, wide = extents
    shapes = (rows, inner), (inner, wide), (wide, inner)
    avals = tuple(jax.ShapeDtypeStruct(shape, dtype) for shape in shapes)
    return sw.partition(
        fn,
        *avals,
        mesh=sw.Mesh({"t": devices}),
        in_shardings=('[{"t"}, {}]', '[{}, {"t"}]', '[{"t"}, {}]'),
        out_shardings='[{"t"}, {}]',
        mode="cheapest",
        topology=topology,
        kernels=("pallas_tpu",),
    )


def avals_of(program: sw.Partitioned) -> tuple[Any, ...]:
    values = (program.given.values[v] for v in program.given.body.arguments)
    return tuple(jax.ShapeDtypeStruct(value.shape, jnp.float32) for value in values)


def of_values(*names: str) -> dict[str, str]:
    """What is wrong with what interpreted kernels compute; with `fault`, of other operands."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:4]), ("t",))
    found = {}
    for name in names:
        case, _, fault = name.partition(":")
        fn, extents = CASES[case]
        program = partitioned(fn, extents, 4, "v5e:2x2")
        plant = emitted.once(r"RING_1\.product\(x, w,", "RING_1.product(x, w[::-1],")
        module = emitted.module_of(program, plant if fault else None)
        run = module["program"](mesh, interpret=pltpu.InterpretParams())
        found[name] = program_values.fault(fn, avals_of(program), run)
        if not str(sorted(program.kernel_choices, key=str)).count("plan=MatmulPlan"):
            found[name] = "no kernel"
    return found


def of_compiled() -> dict[str, str]:
    """How many kernels the compiler finds in a program for v5e:2x4, of those that it has."""
    program = partitioned(mlp, (8192, 8192, 8192), 8, "v5e:2x4", jnp.bfloat16)
    found = topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x4")
    mesh = jax.sharding.Mesh(np.array(found.devices), ("t",))
    step = emitted.module_of(program)["program"](mesh)
    avals = [jax.ShapeDtypeStruct((8192, 8192), jnp.bfloat16) for _ in range(3)]
    text = step.lower(*avals).compile().as_text()
    wanted = sum(each.plan is not None for each in program.kernel_choices)
    made = text.count('custom_call_target="tpu_custom_call"')
    gathers = text.count("all-gather")
    return {"kernels": "" if made == wanted > 0 and not gathers else f"{made}, {gathers} gathers"}


RUNS: dict[str, Any] = {"values": of_values, "compiled": of_compiled}

if __name__ == "__main__":
    print(json.dumps(RUNS[sys.argv[1]](*sys.argv[2:])))
