"""Runs local forms beside one device, in a process of its own: prints what differs as JSON.

python tests/form_process.py values as_shardy cumsum …
python tests/form_process.py faults
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

import box_cases
import dtype_cases
import emitted
import form_cases
import models
import uneven_cases
import window_cases

import shardwright as sw


def partitioned(case: Any, mode: str) -> Any:
    outputs = case.output
    mesh = form_cases.MESHES[case.mesh]
    return sw.partition(
        case.fn, *case.avals, mesh=mesh, in_shardings=case.inputs, out_shardings=outputs, mode=mode
    )


def fault(case: Any, mode: str) -> str:
    """What is wrong with a case: its values, the bytes it reports, how many they are."""
    program = partitioned(case, mode)
    mesh = models.jax_mesh(**form_cases.MESHES[case.mesh].sizes)
    said = emitted.fault(case.fn, case.avals, program, mesh)
    reported = program.bytes_received
    read = emitted.received(case.avals, program, mesh)
    if not said and reported != read and not is_widened(case):
        said = f"reported {reported}, in HLO {read}"
    most = (mode == "as_shardy" and case.most_as_shardy) or case.most
    if not said and reported > most:
        said = f"receives {reported}, expected at most {most}"
    return said


def is_widened(case: Any) -> bool:
    """Does XLA for CPUs send the floats of a case as wider ones?"""
    return any(aval.dtype.name.startswith("float8") for aval in case.avals)


FAULTS = {
    "a carry left out": ("cumsum", r"(\w+_block) \+ \w+_before", r"\1"),
    "a carry of the next block": ("cumsum", r"_number - 1", "_number"),
    "a carry that is not added up": ("cumsum", r"lax\.cumsum\((\w+_totals), axis=0\)", r"\1"),
    "a place in the shard": ("argmax", r" \+ lax\.axis_index\(\"d\"\).*? \* 8", ""),
    "a product of one shard": ("product", r"lax\.reduce_prod\((\w+_every)", r"lax.reduce_max(\1"),
    "any of one shard": ("any of rows", r"lax\.pmax", "lax.pmin"),
    "the best of another part": (
        *("top 3", r"all_gather\((\w+_found)", r"all_gather(jnp.roll(\1, 1, 0)"),
    ),
    "places in the shard": ("top 3", r" \+ lax\.axis_index\(\"d\"\) \* 8", ""),
    "rows of other devices": ("embedding", r"jnp\.where\(.*?, (\w+_own), 0\)", r"\1"),
    "the index of another shard": ("embedding", r"(\w+) - lax\.axis_index\(\"d\"\) \* 8", r"\1"),
    "an index that is not clamped": (
        *("embedding, clip", r"jnp\.clip\((.*?), 0, 7\) ==", r"\1 =="),
    ),
    "a row that is not clamped": ("write a row at 80", r"jnp\.clip\((\w+), 0, 63\)", r"\1"),
    "a row too far": ("read a row at 30", r"jnp\.arange\(1\) - ", "jnp.arange(1) + 1 - "),
    "a row that wraps": ("write a row at 30", r"(\w+_rows) < 0, 8,", r"\1 < -99, 8,"),
    "a halo of the next row": (
        *(
            "a row later",
            r"lax\.slice_in_dim\(x, 7, 8, axis=1\)",
            "lax.slice_in_dim(x, 6, 7, axis=1)",
        ),
    ),
    "a halo from the other side": ("a row later", r"\(i \+ 1\) % 8", "(i + 7) % 8"),
    "a ring where there is none": ("a row later", r"_rows >= 1", "_rows >= 0"),
    "other random bits": ("dropout", r" \+ lax\.axis_index\(\"t\"\).*? \* 8", ""),
    "bits of another shape": ("dropout", r" \* 12", " * 3"),
}
"""What is planted: the case, what is replaced, by what."""


def every_case() -> Iterator[Any]:
    for module in (form_cases, window_cases, box_cases, dtype_cases, uneven_cases):
        yield from module.cases()


def of_faults() -> dict[str, str]:
    """What is found where a fault is planted in a form."""
    known = {case.name: case for case in every_case()}
    found = {}
    every = {**FAULTS, **window_cases.FAULTS, **box_cases.FAULTS, **uneven_cases.FAULTS}
    for name, (which, pattern, to) in every.items():
        case = known[which]
        program = partitioned(case, "as_shardy")
        mesh = models.jax_mesh(**form_cases.MESHES[case.mesh].sizes)
        found[name] = emitted.fault(case.fn, case.avals, program, mesh, emitted.once(pattern, to))
    return found


def of_cases(mode: str, *words: str) -> dict[str, str]:
    chosen = (c for c in every_case() if not words or c.name in words)
    found = {}
    for case in chosen:
        try:
            found[case.name] = fault(case, mode)
        except Exception as error:  # whatever a case raises is what is wrong with it
            found[case.name] = f"{type(error).__name__}: {error}"[:1000]
    return found


RUNS: dict[str, Any] = {"values": of_cases, "faults": of_faults}

if __name__ == "__main__":
    print(json.dumps(RUNS[sys.argv[1]](*sys.argv[2:])))
