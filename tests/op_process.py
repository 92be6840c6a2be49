"""Runs every op that modules can have, in a process of its own: prints what is wrong as JSON.

python tests/op_process.py shapes …    lowers the modules alone; `values` runs them
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

from cpu_devices import flags

os.environ["XLA_FLAGS"] = flags(2)
os.environ["JAX_PLATFORMS"] = "cpu"

import emitted
import jax
import models
import op_cases

import shardwright as sw
from shardwright.ir.program import Body

MESH = sw.Mesh({"d": 2})


def partitioned(case: Any, mode: str) -> Any:
    """The first dimension of every argument is split; of results what Shardy finds."""
    rows = tuple(f'[{{"d"}}{", {}" * (len(a.shape) - 1)}]' if a.shape else "[]" for a in case.avals)
    return sw.partition(case.fn, *case.avals, mesh=MESH, in_shardings=rows, mode=mode)


def kinds(body: Body) -> Iterator[str]:
    for op in body.ops:
        yield op.kind
        for inner in op.bodies:
            yield from kinds(inner)


def other_types(case: Any, program: Any, mesh: Any) -> str:
    """Whether the module can be lowered, and gives what the function does."""
    made = emitted.module_of(program)["program"](mesh).lower(*case.avals).out_info
    asked = jax.eval_shape(case.fn, *case.avals)
    types = [[f"{x.dtype}{x.shape}" for x in jax.tree.leaves(side)] for side in (made, asked)]
    return "" if types[0] == types[1] else f"{types[0]}, not {types[1]}"


def faults(what: str, mode: str, *words: str) -> dict[str, Any]:
    mesh = models.jax_mesh(**MESH.sizes)
    found: dict[str, str] = {}
    seen: set[str] = set()
    for case in op_cases.cases():
        if words and not any(word in case.name for word in words):
            continue
        try:
            program = partitioned(case, mode)
            seen.update(kinds(program.local.program.body))
            found[case.name] = (
                other_types(case, program, mesh)
                if what == "shapes"
                else emitted.fault(case.fn, case.avals, program, mesh)
            )
        except Exception as error:  # whatever a case raises is what is wrong with it
            found[case.name] = f"{type(error).__name__}: {error}"[:500]
    return {"wrong": {n: said for n, said in found.items() if said}, "kinds": sorted(seen)}


if __name__ == "__main__":
    print(json.dumps(faults(*sys.argv[1:])))
