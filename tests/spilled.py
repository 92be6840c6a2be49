"""Programs with intermediate values whose split dimension does not divide; run as a program, this
prints the ones whose emitted modules have other values than one device, as JSON."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

if __name__ == "__main__":
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
    os.environ["JAX_PLATFORMS"] = "cpu"

import emitted
import jax
import jax.numpy as jnp
import models

import shardwright as sw

MESH = {"x": 8}
ROWS = '[{"x"}, {}]'


class Case(NamedTuple):
    """A program; `whole`, `spilled` and `padded`: the bytes that its busiest device receives in
    `as_shardy` if dimensions that do not divide are whole, if their axes split another dimension,
    and if they are padded."""

    name: str
    fn: Any
    avals: tuple[Any, ...]
    inputs: tuple[str, ...]
    outputs: Any
    whole: int
    spilled: int
    padded: int


def scanned(a: Any, b: Any) -> Any:
    def join(first: Any, second: Any) -> Any:
        return first[0] * second[0], second[0] * first[1] + second[1]

    return jax.lax.associative_scan(join, (a, b))


def every_other_row(x: Any) -> Any:
    return jnp.tanh(x[2::2]).max()


def cases() -> Iterator[Case]:
    x = jax.ShapeDtypeStruct((1024, 64), "float32")
    rows = (ROWS, ROWS)
    yield Case("scan of pairs", scanned, (x, x), rows, rows, 1_148_672, 232_064, 31_232)
    yield Case("every other row", every_other_row, (x,), (ROWS,), "[]", 228_928, 28_679, 263)


def partitioned(case: Case, mode: str) -> Any:
    sides = {"in_shardings": case.inputs, "out_shardings": case.outputs}
    return sw.partition(case.fn, *case.avals, mesh=sw.Mesh(MESH), mode=mode, **sides)


def faults(mode: str) -> dict[str, str]:
    mesh = models.jax_mesh(**MESH)
    found = {
        case.name: emitted.fault(case.fn, case.avals, partitioned(case, mode), mesh)
        for case in cases()
    }
    return {name: said for name, said in found.items() if said}


if __name__ == "__main__":
    print(json.dumps({"wrong": faults(sys.argv[1])}))
