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

import control_cases
import emitted
import gpt2
import jax
import models
import more_models
import program_patterns
import random_functions

import shardwright as sw

MESHES = {"2x2x4": (2, 2, 4)}


def of_models(mode: str, *names: str) -> dict[str, str]:
    """Models in their strategies, made small."""
    models.B, models.S, models.D, models.H, models.F = 8, 16, 32, 8, 64
    found = {}
    for name in names:
        model, _, strategy = name.partition(":")
        fn, avals, inputs, outputs, mesh = models.case(model, strategy)
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
    """Random functions with random shardings, on a mesh a, b, c of these sizes."""
    names = ("a", "b", "c")
    own = sw.Mesh(dict(zip(names, MESHES[mesh], strict=True)))
    of_jax = jax.make_mesh(MESHES[mesh], names, axis_types=(jax.sharding.AxisType.Auto,) * 3)
    found = {}
    for seed in range(int(first), int(last)):
        made = random_functions.case(seed, kind == "rich", meshes=(own,))
        program = sw.partition(
            made,
            *made.avals,
            mesh=own,
            in_shardings=made.inputs,
            out_shardings=made.outputs,
            mode=mode,
        )
        try:
            found[str(seed)] = emitted.fault(made, made.avals, program, of_jax)
        except sw.InputError as error:  # of arguments or results that do not divide
            if "must be equal, as JAX wants them" not in str(error):
                raise
    return found


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
    "bytes": of_bytes,
    "faults": of_faults,
}

if __name__ == "__main__":
    print(json.dumps(RUNS[sys.argv[1]](*sys.argv[2:])))
