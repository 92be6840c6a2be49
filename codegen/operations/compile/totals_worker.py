"""Compile a config's program with `jax.jit`, or run Shardy's passes on it, in a separate process.
Print the bytes for each target, or the error."""

from __future__ import annotations

import contextlib
import json
import sys

from shardwright.codegen.operations.compile.jit_bytes import devices_of, jit_received, named_sides
from shardwright.codegen.operations.compile.shardy_bytes import shardy_received
from shardwright.codegen.operations.compile.totals import SHARDY
from shardwright.codegen.operations.emit.program import GivenProgram, given_of, traced_described
from shardwright.codegen.partition.partitioned import Partitioned
from shardwright.codegen.spec.program import describe_program


def main() -> None:
    """Read a question from standard input; print an object with one total per target."""
    question = json.loads(sys.stdin.read())
    description = describe_program(question["description"], question["home"])
    program = traced_described(description)
    found: dict[str, int | str] = {}
    with contextlib.chdir(description.home):
        given = given_of(description)
        for target in question["targets"]:
            try:
                if target == SHARDY:
                    found[target] = _of_passes(given, program)
                    continue
                devices = devices_of(target, program.mesh.size)
                found[target] = jit_received(given.function, given.avals, program, devices)
            except Exception as error:  # the function or the compiler may raise anything
                found[target] = f"{type(error).__name__}: {error}".splitlines()[0]
    print(json.dumps(found))


def _of_passes(given: GivenProgram, program: Partitioned) -> int | str:
    sides = named_sides(program, devices_of("cpu", program.mesh.size))
    total = shardy_received(given.function, given.avals, program.mesh.sizes, **sides)
    return "the passes do not state the trip count of a loop" if total is None else total


if __name__ == "__main__":
    main()
