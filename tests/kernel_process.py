"""Programs with kernels: interpreted on CPU devices beside one device, or compiled for TPUs, in a
process of its own; prints what is wrong as JSON.

python tests/kernel_process.py values gather rhs
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, NamedTuple

os.environ["JAX_PLATFORMS"] = "cpu"

from cpu_devices import flags

os.environ["XLA_FLAGS"] = flags(5)
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
from shardwright.codegen.operations.verify import program_values


def mlp(x: Any, w: Any, v: Any) -> Any:
    return jnp.tanh(x @ w / 16) @ v


def looped(x: Any, w: Any, v: Any) -> Any:
    """The same in a scan, twice."""
    return jax.lax.scan(lambda h, _: (jnp.tanh(mlp(h, w, v) / 16), None), x, length=2)[0]


def heads(x: Any, w: Any, v: Any) -> Any:
    """A batch of sequences, made into heads and back."""
    h = jnp.einsum("bsd,dhk->bshk", x, w) / 16
    return jnp.einsum("bshk,hkd->bsd", jnp.tanh(h), v)


def product(x: Any, w: Any) -> Any:
    """Terms of a sum, where the operand that is not gathered is split too."""
    return jnp.tanh(x @ w / 16)


def layers(x: Any, *weights: Any) -> Any:
    """Equal layers, which a module has as one function."""
    for w, v in zip(weights[::2], weights[1::2], strict=True):
        h = jax.nn.gelu(jnp.tanh(x @ w / 16) + 1.0) * 0.5
        x = jnp.tanh(jnp.cos(h @ v / 16) * x)
    return x


def back(x: Any, w: Any, v: Any) -> Any:
    """Products with weights of which one is transposed."""
    return jnp.einsum("sf,df->sd", jnp.tanh(x @ w / 16), v)


def trained(x: Any, w: Any, v: Any) -> Any:
    """Gradients of both weights, of which the first is computed by a product with the second."""
    return jax.grad(lambda w, v: ((jnp.tanh(x @ w / 16) @ v) ** 2).mean(), (0, 1))(w, v)


def several(q: Any, k: Any) -> Any:
    """A product for each head, of which both operands are transposed."""
    return jnp.einsum("bhks,bhkt->bhst", q, k) / 8


class Kernels(NamedTuple):
    """A function, what it is given, and the kernels that it has."""

    fn: Any
    shapes: tuple[tuple[int, ...], ...]
    kernels: int
    split: tuple[int, ...] = (0, 1, 0)  # which dimension of each, and of the result as of x
    given: tuple[str, ...] = ()  # or all shardings, on two axes, that of the result last


CASES = {
    "lhs and out": Kernels(mlp, ((512, 1024), (1024, 1024), (1024, 1024)), 2),
    "rhs": Kernels(mlp, ((1024, 512), (512, 512), (512, 512)), 2),
    "looped": Kernels(looped, ((512, 1024), (1024, 1024), (1024, 1024)), 2),
    "batch": Kernels(mlp, ((2, 256, 1024), (1024, 1024), (1024, 1024)), 2, (1, 1, 0)),
    "heads": Kernels(heads, ((1, 512, 1024), (1024, 8, 128), (8, 128, 1024)), 2, (1, 1, 0)),
    "back": Kernels(back, ((1024, 512), (512, 512), (512, 512)), 2, (0, 0, 0)),
    "trained": Kernels(trained, ((1024, 1024), (1024, 1024), (1024, 1024)), 3, (0, 0, 0)),
    "several": Kernels(
        several,
        ((2, 2, 512, 256), (2, 2, 512, 1024)),
        1,
        given=('[{"d"}, {}, {}, {"t"}]', '[{"d"}, {}, {}, {"t"}]', '[{"d"}, {}, {}, {"t"}]'),
    ),
    "layers": Kernels(layers, ((512, 1024), *((1024, 1024),) * 6), 2, (0, *(1, 0) * 3)),
    "terms": Kernels(
        product,
        ((512, 1024), (1024, 1024)),
        1,
        given=('[{"t"}, {"d"}]', '[{"d"}, {"t"}]', '[{"d"}, {"t"}]'),
    ),
    "a batch on two axes": Kernels(
        mlp,
        ((4, 256, 1024), (1024, 1024), (1024, 1024)),
        2,
        given=('[{"d"}, {"t"}, {}]', '[{}, {"t"}]', '[{"t"}, {}]', '[{"d"}, {"t"}, {}]'),
    ),
}

COMPILED = {
    "matrices": Kernels(mlp, ((8192, 8192),) * 3, 2),
    "batch": Kernels(mlp, ((4, 2048, 8192), (8192, 8192), (8192, 8192)), 2, (1, 1, 0)),
    "trained": Kernels(trained, ((8192, 8192),) * 3, 3, (0, 0, 0)),
    "several": Kernels(
        several,
        ((8, 2, 2048, 512), (8, 2, 2048, 8192)),
        1,
        given=('[{}, {}, {}, {"t"}]', '[{}, {}, {}, {"t"}]', '[{}, {}, {}, {"t"}]'),
    ),
    "heads": Kernels(heads, ((1, 8192, 8192), (8192, 64, 128), (64, 128, 8192)), 2, (1, 1, 0)),
}


def partitioned(
    case: Kernels, devices: int, topology: str, dtype: Any = jnp.float32
) -> sw.Partitioned:
    *given, out = case.given or _given(case)
    return sw.partition(
        case.fn,
        *(jax.ShapeDtypeStruct(shape, dtype) for shape in case.shapes),
        mesh=sw.Mesh({"d": 2, "t": devices // 2} if case.given else {"t": devices}),
        in_shardings=tuple(given),
        out_shardings=out,
        mode="cheapest",
        topology=topology,
        kernels=("pallas_tpu",),
    )


def _given(case: Kernels) -> list[str]:
    """The shardings of arguments, and of the result, by the dimension that is split."""
    found = []
    for shape, dim in zip(case.shapes, case.split, strict=True):
        dims = ("{}",) * dim + ('{"t"}',) + ("{}",) * (len(shape) - dim - 1)
        found.append(f"[{', '.join(dims)}]")
    return [*found, found[0]]


def avals_of(program: sw.Partitioned) -> tuple[Any, ...]:
    values = (program.given.values[v] for v in program.given.body.arguments)
    return tuple(jax.ShapeDtypeStruct(value.shape, jnp.float32) for value in values)


def of_values(*names: str) -> dict[str, str]:
    """What is wrong with what interpreted kernels compute; with `fault`, of other operands."""
    found = {}
    for name in names:
        case, _, fault = name.partition(":")
        program = partitioned(CASES[case], 4, "v5e:2x2")
        devices = np.array(jax.devices()[:4]).reshape(*program.mesh.sizes.values())
        mesh = jax.sharding.Mesh(devices, tuple(program.mesh.sizes))
        plant = emitted.once(r"RING_1\.product\(x, w,", "RING_1.product(x, w[::-1],")
        module = emitted.module_of(program, plant if fault else None)
        run = module["program"](mesh, interpret=pltpu.InterpretParams())
        found[name] = program_values.fault(CASES[case].fn, avals_of(program), run)
        kernels = sum(each.plan is not None for each in program.kernel_choices)
        if kernels != CASES[case].kernels:
            found[name] = f"{kernels} kernels: {'; '.join(map(str, program.kernel_choices))}"
    return found


def of_compiled() -> dict[str, str]:
    """How many kernels the compiler finds in programs for v5e:2x4, of those that they have."""
    return {name: compiled(case) for name, case in COMPILED.items()}


def compiled(case: Kernels) -> str:
    program = partitioned(case, 8, "v5e:2x4", jnp.bfloat16)
    found = topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x4")
    sizes = program.mesh.sizes
    mesh = jax.sharding.Mesh(np.array(found.devices).reshape(*sizes.values()), tuple(sizes))
    step = emitted.module_of(program)["program"](mesh)
    avals = [jax.ShapeDtypeStruct(shape, jnp.bfloat16) for shape in case.shapes]
    text = step.lower(*avals).compile().as_text()
    wanted = sum(each.plan is not None for each in program.kernel_choices)
    made = text.count('custom_call_target="tpu_custom_call"')
    gathers = text.count("all-gather")
    inside = sum(c.plan is not None and c.side != "out" for c in program.kernel_choices)
    apart = sum(each.op == "all_gather" for each in program.communications) - inside
    right = made == wanted == case.kernels and bool(gathers) == bool(apart)
    return "" if right else f"{made} of {wanted}, {gathers} gathers, {apart} apart"


RUNS: dict[str, Any] = {"values": of_values, "compiled": of_compiled}

if __name__ == "__main__":
    print(json.dumps(RUNS[sys.argv[1]](*sys.argv[2:])))
