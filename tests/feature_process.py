"""Runs the functions of `feature_cases`: prints what is wrong as JSON.

python tests/feature_process.py as_shardy|cheapest [name ...]
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

from cpu_devices import flags

os.environ["XLA_FLAGS"] = flags(8)
os.environ["JAX_PLATFORMS"] = "cpu"

import feature_cases
import jax
import models

import shardwright as sw
from shardwright.codegen.checks.load import load
from shardwright.codegen.operations.verify import program_values

MESH = sw.Mesh(dict(feature_cases.MESH))


def wrong(case: feature_cases.Feature, mode: str, folder: str) -> str:
    """What is wrong with the module of a function, or with how it is refused."""
    planned = Path(folder) / "planned"
    program = None
    try:
        program = sw.partition(case.fn, *case.avals, mesh=MESH, in_shardings=_rows(case), mode=mode)
        sw.emit(program).write(planned)
    except sw.InputError as error:
        is_planned = program is not None and "local" in vars(program)
        right = case.refused and case.refused in str(error) and not is_planned
        return "" if right else f"refused: {error}"
    if case.refused:
        return "not refused"
    text = (planned / "jax_spmd.py").read_text("utf-8")
    long = [line for line in text.splitlines() if len(line) > 100]
    if long:
        return f"a long line: {long[0]}"
    options = {}
    if "template=None" in text:
        options["template"] = jax.eval_shape(case.fn, *case.avals)
    made = load(planned / "jax_spmd.py").program(models.jax_mesh(**MESH.sizes), **options)
    return program_values.fault(case.fn, case.avals, made)


def _rows(case: feature_cases.Feature) -> Any:
    """The shardings, one of all arguments for each of them."""
    return (
        case.shardings if isinstance(case.shardings, tuple) else (case.shardings,) * len(case.avals)
    )


def main() -> None:
    mode, *names = sys.argv[1:]
    warnings.simplefilter("ignore")
    found = {}
    planted = feature_cases.PLANTED if names else ()
    for case in (*feature_cases.FEATURES, *feature_cases.gradients(), *planted):
        if names and case.name not in names:
            continue
        try:
            with tempfile.TemporaryDirectory() as folder:
                found[case.name] = wrong(case, mode, folder)
        except Exception as error:  # whatever is raised is a fault
            found[case.name] = f"{type(error).__name__}: {error}"[:400]
    print(json.dumps({"count": len(found), "wrong": {n: w for n, w in found.items() if w}}))


if __name__ == "__main__":
    main()
