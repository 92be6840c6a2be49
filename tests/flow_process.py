"""Runs emitted programs with loops, branches and manual parts beside one device, in a process of
its own: prints what differs as JSON.

python tests/flow_process.py cases 2x4 cheapest gradients
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"
if "bytes" not in sys.argv[1:2]:  # XLA's code need not be fast, but compiled soon
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"

import emitted
import flow_cases
import jax
import jax.numpy as jnp
import models

import shardwright as sw


def mesh_of(sizes: str) -> Any:
    return models.jax_mesh(**dict(zip("dt", map(int, sizes.split("x")), strict=True)))


def gradient_of(fn: Any) -> Any:
    """A number made of what a function gives, and its gradient by every argument."""

    def step(*arguments: Any) -> Any:
        def number(arguments: Any) -> Any:
            return sum(jnp.tanh(each).sum() for each in jax.tree.leaves(fn(*arguments)))

        return jax.value_and_grad(number)(arguments)

    return step


def of_cases(sizes: str, mode: str, what: str, *names: str) -> dict[str, str]:
    """Every case, or those of some names, forward or with gradients."""
    mesh = mesh_of(sizes)
    found = {}
    cases = flow_cases.flow_cases() | flow_cases.manual_cases(mesh)
    for name, case in cases.items():
        if (names and name not in names) or (what == "gradients" and not case.differentiable):
            continue
        fn = gradient_of(case.fn) if what == "gradients" else case.fn
        try:
            program = sw.partition(fn, *case.avals, mesh=mesh, in_shardings=case.inputs, mode=mode)
            found[name] = emitted.fault(fn, case.avals, program, mesh)
        except sw.InputError as error:
            found[name] = str(error)
    return found


RUNS: dict[str, Any] = {"cases": of_cases}

if __name__ == "__main__":
    print(json.dumps(RUNS[sys.argv[1]](*sys.argv[2:])))
