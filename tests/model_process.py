"""Runs whole models, made small, beside one device, in a process of its own: prints what differs,
or what is communicated, as JSON.

python tests/model_process.py values cheapest experts
python tests/model_process.py kinds cheapest experts
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
import model_cases
import models

import shardwright as sw
from shardwright.codegen.operations.compile.jit_bytes import devices_of, jit_received

if "bytes" not in sys.argv[1:2]:  # code need not be fast, but compiled soon
    jax.config.update("jax_disable_most_optimizations", True)

SMALL = model_cases.Sizes(3, 8, 16, 64, 16, 4)


def programs(mode: str, *words: str) -> Iterator[tuple[Any, sw.Partitioned]]:
    models.D, models.H, models.F = 32, 8, 64
    for case in model_cases.cases(SMALL):
        if all(word in case.name for word in words):
            sides = {"in_shardings": case.inputs, "out_shardings": case.outputs}
            mesh = sw.Mesh(case.mesh)
            yield case, sw.partition(case.fn, *case.avals, mesh=mesh, mode=mode, **sides)


def values(mode: str, *words: str) -> dict[str, str]:
    """What is wrong with what models compute."""
    return {
        case.name: emitted.fault(case.fn, case.avals, program, models.jax_mesh(**case.mesh))
        for case, program in programs(mode, *words)
    }


def kinds(mode: str, *words: str) -> dict[str, Any]:
    """The collectives of models, with their bytes."""
    return {
        case.name: [(each.op, each.bytes) for each in program.communications]
        for case, program in programs(mode, *words)
    }


def received(mode: str, *words: str) -> dict[str, Any]:
    """What models receive, and what they receive with XLA's own partitioner on CPUs."""
    devices = devices_of("cpu", 8)
    return {
        case.name: [
            program.bytes_received,
            jit_received(case.fn, case.avals, program, devices),
        ]
        for case, program in programs(mode, *words)
    }


RUNS: dict[str, Any] = {"values": values, "kinds": kinds, "bytes": received}

if __name__ == "__main__":
    print(json.dumps(RUNS[sys.argv[1]](*sys.argv[2:])))
