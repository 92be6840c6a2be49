"""Runs every op that modules can have, in a process of its own: prints what is wrong as JSON.

python tests/op_process.py shapes|values|uneven|wide|wide_uneven as_shardy|cheapest [N/M] [word ...]

`shapes` lowers the modules alone, `values` runs them; `uneven` splits 8 rows over 3 devices in the
function, `wide` has 64 bits; N/M takes every Mth case from the Nth on.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
from collections.abc import Iterator
from typing import Any

from cpu_devices import flags

os.environ["XLA_FLAGS"] = flags(3 if "uneven" in sys.argv[1] else 2)
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["JAX_ENABLE_X64"] = str(sys.argv[1].startswith("wide"))

import emitted
import jax
import models
import op_cases

import shardwright as sw
from shardwright.codegen.backends.jax_xla.verify.ragged import by_definition
from shardwright.ir.program import Body

IS_UNEVEN = "uneven" in sys.argv[1]
MESH = sw.Mesh({"d": 3 if IS_UNEVEN else 2})


def partitioned(case: Any, mode: str) -> Any:
    """The first dimension of every argument is split; of results what Shardy finds. Where it does
    not divide, the function says so of whole arguments, and its results are whole."""
    rows = tuple(f'[{{"d"}}{", {}" * (len(a.shape) - 1)}]' if a.shape else "[]" for a in case.avals)
    if IS_UNEVEN:

        def fn(*args: Any) -> Any:
            return case.fn(*map(sw.constrain, args, rows))

        whole = tuple(_whole(aval) for aval in case.avals)
        results = jax.tree.map(_whole, jax.eval_shape(case.fn, *case.avals))
        sides = {"in_shardings": whole, "out_shardings": results}
        return sw.partition(fn, *case.avals, mesh=MESH, mode=mode, **sides)
    return sw.partition(case.fn, *case.avals, mesh=MESH, in_shardings=rows, mode=mode)


def _whole(aval: Any) -> str:
    return f"[{', '.join(['{}'] * len(aval.shape))}]"


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


def _values(case: Any, program: Any, mesh: Any) -> str:
    with by_definition():  # XLA for CPUs has no `ragged_all_to_all`
        return emitted.fault(case.fn, case.avals, program, mesh)


def faults(what: str, mode: str, *words: str) -> dict[str, Any]:
    mesh = models.jax_mesh(**MESH.sizes)
    found: dict[str, str] = {}
    seen: set[str] = set()
    start, step = 0, 1
    if words and "/" in words[0]:
        start, step = map(int, words[0].split("/"))
        words = words[1:]
    for case in itertools.islice(op_cases.cases(IS_UNEVEN), start, None, step):
        if words and not any(word in case.name for word in words):
            continue
        try:
            program = partitioned(case, mode)
            seen.update(kinds(program.local.program.body))
            found[case.name] = (
                other_types(case, program, mesh)
                if what == "shapes"
                else _values(case, program, mesh)
            )
        except Exception as error:  # whatever a case raises is what is wrong with it
            found[case.name] = f"{type(error).__name__}: {error}"[:500]
    return {"wrong": {n: said for n, said in found.items() if said}, "kinds": sorted(seen)}


if __name__ == "__main__":
    print(json.dumps(faults(*sys.argv[1:])))
