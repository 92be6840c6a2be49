"""Runs emitted programs with loops, branches and manual parts beside one device, in a process of
its own: prints what differs as JSON.

python tests/flow_process.py cases 2x4 cheapest gradients
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from cpu_devices import flags

os.environ["XLA_FLAGS"] = flags(8)
os.environ["JAX_PLATFORMS"] = "cpu"

import emitted
import flow_cases
import flow_faults
import jax
import jax.numpy as jnp
import models
import random_flow

import shardwright as sw

if "bytes" not in sys.argv[1:2]:  # code need not be fast, but compiled soon
    jax.config.update("jax_disable_most_optimizations", True)

SWEPT = ("2x2", "2x4", "1x1", "4x2")
"""Meshes of the sweep over random functions."""


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
    """Every case, or those of some names: forward, with gradients, or with those that jax makes of
    the module (`outside`)."""
    mesh = mesh_of(sizes)
    found = {}
    cases = flow_cases.flow_cases() | flow_cases.manual_cases(mesh)
    for name, case in cases.items():
        if (names and name not in names) or (what != "forward" and not case.differentiable):
            continue
        fn = gradient_of(case.fn) if what == "gradients" else case.fn
        try:
            program = sw.partition(fn, *case.avals, mesh=mesh, in_shardings=case.inputs, mode=mode)
            given = fn, case.avals, program, mesh
            if what == "outside":
                found[name] = emitted.fault_of_gradient(gradient_of, *given)
            else:
                found[name] = emitted.fault(*given)
        except sw.InputError as error:
            found[name] = str(error)
    return found


def of_random(first: str, last: str, what: str = "") -> dict[str, str]:
    """Random functions, each in one mode on one mesh, most with gradients, or those that jax makes
    of the modules (`outside`)."""
    found = {}
    for seed in range(int(first), int(last)):
        mode = ("cheapest", "as_shardy")[seed % 3 == 2]
        sizes = SWEPT[seed // 2 % len(SWEPT)]
        mesh = mesh_of(sizes)
        made = random_flow.flow_program(seed, mesh)
        is_outside = made.differentiable and what == "outside"
        fn = gradient_of(made) if made.differentiable and seed % 4 and not is_outside else made
        given = dict(zip("dt", map(int, sizes.split("x")), strict=True))
        sides = {"mesh": sw.Mesh(given), "in_shardings": made.inputs}
        program = sw.partition(fn, *random_flow.AVALS, mode=mode, **sides)
        name = f"{seed} {mode} {sizes} {', '.join(made.kinds)}"
        one = jax.jit(fn)  # jax cannot run all of them op by op
        given = one, random_flow.AVALS, program, mesh
        if is_outside:
            found[name] = emitted.fault_of_gradient(gradient_of, *given)
        else:
            found[name] = emitted.fault(*given)
    return found


def of_faults() -> dict[str, str]:
    """What is found where a fault is planted in an emitted module."""
    mesh = mesh_of("2x2")
    cases = flow_cases.flow_cases() | flow_cases.manual_cases(mesh)
    found = {}
    for name, (case_name, plant) in flow_faults.FAULTS.items():
        case = cases[case_name]
        program = sw.partition(
            case.fn, *case.avals, mesh=mesh, in_shardings=case.inputs, mode="cheapest"
        )
        assert emitted.fault(case.fn, case.avals, program, mesh) == ""
        found[name] = emitted.fault(case.fn, case.avals, program, mesh, plant)
    return found


def of_outside() -> dict[str, str]:
    """The gradient that jax makes of a module with a loop, which gathers; the same where the gather
    says that all devices have the same, which jax believes without `check_vma` too. That of a
    softmax along a split dimension, whose maximum has none."""

    def softmax(w: Any, x: Any) -> Any:
        return jax.nn.softmax(x @ w) ** 2 + jax.nn.logsumexp(x @ w, axis=1, keepdims=True)

    def fn(w: Any, x: Any) -> Any:
        return jax.lax.scan(lambda h, _: (jnp.tanh(h @ w), None), x, length=2)[0]

    avals, mesh = (models.shaped(8, 8), models.shaped(8, 8)), models.jax_mesh(d=2)
    sides = {"mesh": sw.Mesh({"d": 2}), "mode": "cheapest"}
    split = {"in_shardings": ('[{}, {"d"}]', "[{}, {}]"), "out_shardings": '[{}, {"d"}]'}
    along = sw.partition(softmax, *avals, **sides | {"mode": "as_shardy"}, **split)
    assert "lax.pmax(" in sw.emit(along).module
    program = sw.partition(fn, *avals, **sides, in_shardings=('[{"d"}, {}]',) * 2)
    given = gradient_of, fn, avals, program, mesh
    plant = emitted.once(r"(lax\.all_gather\([^()]*tiled=True)", r'\1, to="invarying"')
    return {
        "along a split dimension": emitted.fault_of_gradient(
            gradient_of, softmax, avals, along, mesh
        ),
        "as it is": emitted.fault_of_gradient(*given),
        "held to be whole": emitted.fault_of_gradient(*given, plant),
    }


RUNS: dict[str, Any] = {
    "cases": of_cases,
    "random": of_random,
    "faults": of_faults,
    "outside": of_outside,
}

if __name__ == "__main__":
    print(json.dumps(RUNS[sys.argv[1]](*sys.argv[2:])))
