"""Runs emitted programs beside one device, in a process of its own: prints what differs as JSON.

python tests/emitted_process.py models mlp_step:fsdp+tp …
python tests/emitted_process.py random plain 0 10 2,2,4
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=16"
os.environ["JAX_PLATFORMS"] = "cpu"
if "bytes" not in sys.argv[1:2]:  # XLA's code need not be fast, but compiled soon
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"

import control_cases
import emitted
import gpt2
import jax
import jax.numpy as jnp
import models
import more_models
import program_patterns
import random_functions

import shardwright as sw

SWEPT = ("2x2", "2x4", "2x2x2", "1")
"""Meshes of the sweep over random functions."""


def of_models(mode: str, *names: str) -> dict[str, str]:
    """Models in their strategies, made small: `mlp_step:tp`, or on one device `mlp_step:tp:1`."""
    models.B, models.S, models.D, models.H, models.F = 8, 16, 32, 8, 64
    found = {}
    for name in names:
        model, strategy, *alone = name.split(":")
        whole = models.MESHES[strategy]
        if alone:  # on one device
            models.MESHES[strategy] = dict.fromkeys(whole, 1)
        fn, avals, inputs, outputs, mesh = models.case(model, strategy)
        models.MESHES[strategy] = whole
        program = sw.partition(
            fn, *avals, mesh=mesh, in_shardings=inputs, out_shardings=outputs, mode=mode
        )
        found[name] = emitted.fault(fn, avals, program, mesh)
    return found


def of_layers(mode: str, layers: str, *strategies: str) -> dict[str, str]:
    """Training steps of models of so many layers, made small, whose layers are functions."""
    models.D, models.H, models.F = 32, 8, 64
    gpt2.VOCABULARY, gpt2.BATCH, gpt2.LENGTH, gpt2.WIDTH = 64, 8, 8, 32
    found = {}
    for strategy in strategies:
        fn, avals, inputs, outputs, mesh = gpt2.case(strategy, int(layers))
        program = sw.partition(
            fn, *avals, mesh=mesh, in_shardings=inputs, out_shardings=outputs, mode=mode
        )
        folded = "" if program.local.functions else "no function"
        found[strategy] = folded or emitted.fault(fn, avals, program, mesh)
    return found


def of_more(mode: str) -> dict[str, str]:
    """Convolutions, experts, dropout, a cache; loops and branches."""
    found = {}
    every = [(*case[:4], None, case[4]) for case in more_models.cases()]
    for pattern in program_patterns.patterns():
        small = tuple(
            jax.ShapeDtypeStruct(tuple(min(n, 64) for n in aval.shape), aval.dtype)
            for aval in pattern.avals
        )
        of_jax = models.jax_mesh(**pattern.mesh.sizes)
        sides = (pattern.inputs, pattern.output)
        every.append((pattern.name, pattern.fn, small, *sides, of_jax))
    every += [case for case in control_cases.cases() if "manual" not in case[0]]
    for name, fn, avals, inputs, outputs, mesh in every:
        try:
            program = sw.partition(
                fn, *avals, mesh=mesh, in_shardings=inputs, out_shardings=outputs, mode=mode
            )
            found[name] = emitted.fault(fn, avals, program, mesh)
        except sw.InputError as error:
            found[name] = str(error)
    return found


def of_random(mode: str, kind: str, first: str, last: str, mesh: str) -> dict[str, str]:
    """Random functions with random shardings, or their gradients, on a mesh a, b, … of these
    sizes."""
    sizes = tuple(map(int, mesh.split("x")))
    names = tuple("abc"[: len(sizes)])
    own = sw.Mesh(dict(zip(names, sizes, strict=True)))
    of_jax = models.jax_mesh(**own.sizes)
    found = {}
    for seed in range(int(first), int(last)):
        formed = 6 if "formed" in kind else 0
        made = random_functions.case(seed, "rich" in kind, meshes=(own,), formed=formed)
        fn, outputs = made, made.outputs
        if "gradient" in kind:
            fn, outputs = gradient_of(made), (None, made.inputs)
        sides = {"in_shardings": made.inputs, "out_shardings": outputs}
        program = sw.partition(fn, *made.avals, mesh=own, mode=mode, **sides)
        try:
            sw.emit(program).files("emitted")
        except sw.InputError as error:  # of arguments or results that do not divide
            if "must be equal, as JAX wants them" not in str(error):
                raise
            continue
        found[str(seed)] = emitted.fault(fn, made.avals, program, of_jax)
    return found


def of_sweep(first: str, last: str) -> dict[str, str]:
    """Random functions and their gradients, each in one mode on one mesh."""
    found = {}
    for seed in range(int(first), int(last)):
        mode = ("cheapest", "as_shardy")[seed % 2]
        mesh = SWEPT[seed // 2 % len(SWEPT)]
        kind = ("rich gradient", "rich")[seed // 8 % 4 == 3]
        made = of_random(mode, kind, str(seed), str(seed + 1), mesh)
        found |= {f"{mode} {kind} {seed} {mesh}": said for said in made.values()}
    return found


def of_formed(first: str, last: str) -> dict[str, str]:
    """Gradients of random functions with local forms, each in one mode on one mesh."""
    found = {}
    for seed in range(int(first), int(last)):
        mode, mesh = ("cheapest", "as_shardy")[seed % 2], ("2x4", "4", "2x2x2")[seed // 2 % 3]
        made = of_random(mode, "formed gradient", str(seed), str(seed + 1), mesh)
        found |= {f"{mode} formed {seed} {mesh}": said for said in made.values()}
    return found


def gradient_of(fn: Any) -> Any:
    """A step: the mean of what a function gives, and its gradient by every argument."""

    def step(*arguments: Any) -> Any:
        def mean(arguments: Any) -> Any:
            return sum(jnp.tanh(result).mean() for result in fn(*arguments))

        return jax.value_and_grad(mean)(arguments)

    return step


def of_bytes(mode: str, *names: str) -> dict[str, str]:
    """Models at their full size: whether the HLO receives what is reported, or a thousandth less:
    XLA gathers but once what a function computes twice, such as a mask."""
    found = {}
    for name in names:
        model, _, strategy = name.partition(":")
        fn, avals, inputs, outputs, mesh = models.case(model, strategy)
        program = sw.partition(
            fn, *avals, mesh=mesh, in_shardings=inputs, out_shardings=outputs, mode=mode
        )
        said, read = program.bytes_received, emitted.received(avals, program, mesh)
        is_right = read <= said <= read + read // 1000
        found[name] = "" if is_right else f"reported {said}, in HLO {read}"
    return found


def of_faults() -> dict[str, str]:
    """What is found where a fault is planted in an emitted module."""
    models.B, models.S, models.D, models.H, models.F = 8, 16, 32, 8, 64
    fn, avals, inputs, outputs, mesh = models.case("mlp_step", "fsdp+tp")
    program = sw.partition(fn, *avals, mesh=mesh, in_shardings=inputs, out_shardings=outputs)
    return {
        name: emitted.fault(fn, avals, program, mesh, plant)
        for name, plant in emitted.FAULTS.items()
    }


RUNS: dict[str, Any] = {
    "models": of_models,
    "layers": of_layers,
    "more": of_more,
    "random": of_random,
    "sweep": of_sweep,
    "formed": of_formed,
    "bytes": of_bytes,
    "faults": of_faults,
}

if __name__ == "__main__":
    print(json.dumps(RUNS[sys.argv[1]](*sys.argv[2:])))
