"""Runs emitted pipelines beside one device, in a process of its own: prints what is wrong as JSON.

python tests/pipeline_process.py steps
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

from cpu_devices import flags

os.environ["XLA_FLAGS"] = flags(8)
os.environ["JAX_PLATFORMS"] = "cpu"

import emitted
import jax
import jax.numpy as jnp
import models

import shardwright as sw
from shardwright.codegen.operations.verify import program_values

SIZES = {"s": 2, "d": 2, "t": 2}
ROWS, WIDTH, HIDDEN = 32, 16, 32
AVALS = (
    {
        "w1": models.shaped(2, WIDTH, HIDDEN),
        "w2": models.shaped(2, HIDDEN, WIDTH),
        "b": models.shaped(2, WIDTH),
    },
    models.shaped(ROWS, WIDTH),
)
SPLIT = {"w1": '[{"s"}, {}, {"t"}]', "w2": '[{"s"}, {"t"}, {}]', "b": '[{"s"}, {}]'}
PIPE = sw.strategies.pipeline(
    lambda p, x: x + jnp.tanh(x @ p["w1"]) @ p["w2"] + p["b"], sw.Mesh(SIZES), "s", 4
)


def loss(p: Any, x: Any) -> Any:
    return (PIPE(p, x) ** 2).mean()


def partitioned(fn: Any) -> sw.Partitioned:
    """Stages whose features are split over t, and rows of every micro-batch over d."""
    given = (SPLIT, '[{"d"}, {}]')
    return sw.partition(fn, *AVALS, mesh=PIPE.mesh, in_shardings=given, mode="cheapest")


def summed(jaxpr: Any, turns: int = 1) -> Iterator[tuple[tuple[str, ...], int]]:
    """The axes of every sum over devices, with how often it is made."""
    for equation in jaxpr.eqns:
        if equation.primitive.name.startswith("psum"):
            yield equation.params["axes"], turns
        length = equation.params.get("length", 1)
        for inner in jax.tree.leaves(tuple(equation.params.values())):
            inner = getattr(inner, "jaxpr", inner)
            if hasattr(inner, "eqns"):
                yield from summed(inner, turns * length)


def wrong(fn: Any, run: Any) -> str:
    """What is wrong with sums over the data of a gradient, as jax has them."""
    made = [turns for axes, turns in summed(jax.make_jaxpr(run)(*AVALS).jaxpr) if "d" in axes]
    return program_values.fault(fn, AVALS, run) or (f"turns {made}" if set(made) != {1} else "")


def of_steps() -> dict[str, str]:
    """A step partitioned with its gradient; the gradient of an emitted loss; the first with its
    sums in the loop."""
    mesh = models.jax_mesh(**SIZES)
    step, forward = jax.value_and_grad(loss), partitioned(loss)
    program = partitioned(step)
    module = emitted.module_of(program)["program"](mesh)
    found = {"step": wrong(step, module)}
    read = program_values.received(AVALS, module, mesh.size)
    if read != program.bytes_received:
        found["bytes"] = f"reported {program.bytes_received}, in HLO {read}"
    run = emitted.module_of(forward)["program"](mesh)
    found["gradient of a loss"] = wrong(jax.grad(loss), jax.grad(run))
    plant = emitted.once(r"= (scan_arg_\w+ \+ (?:d|bwd)_\w+)", r'= lax.psum(\1, "d")')
    planted = emitted.module_of(program, plant)["program"](mesh)
    found["a sum in every turn"] = wrong(step, planted)
    return found


RUNS: dict[str, Any] = {"steps": of_steps}

if __name__ == "__main__":
    print(json.dumps(RUNS[sys.argv[1]](*sys.argv[2:])))
