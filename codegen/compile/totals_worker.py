"""Compiles a program of a config as `jax.jit` does, in a process of its own: prints the bytes for
each target, or why there are none."""

from __future__ import annotations

import contextlib
import json
import sys

from shardwright.codegen.compile.jit_bytes import devices_of, jit_received
from shardwright.codegen.emit.program import given_of, traced_described
from shardwright.codegen.spec.program import describe_program


def main() -> None:
    """Read a question from standard input; print an object with a total a target."""
    question = json.loads(sys.stdin.read())
    description = describe_program(question["description"], question["home"])
    program = traced_described(description)
    found: dict[str, int | str] = {}
    with contextlib.chdir(description.home):
        given = given_of(description)
        for target in question["targets"]:
            try:
                devices = devices_of(target, program.mesh.size)
                found[target] = jit_received(given.function, given.avals, program, devices)
            except Exception as error:  # whatever the function or the compiler raises
                found[target] = f"{type(error).__name__}: {error}".splitlines()[0]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
