"""Runs the module of a program in a process of its own, with as many CPU devices as it has."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path

import jax
import numpy as np

from shardwright.codegen.emit.program import given_of
from shardwright.codegen.spec.program import describe_program
from shardwright.codegen.verify.load import load
from shardwright.codegen.verify.program_values import fault, received
from shardwright.ir.errors import InputError


def main() -> None:
    """Read a question from standard input; print what is wrong, or which checks were made."""
    question = json.loads(sys.stdin.read())
    description = describe_program(question["description"])
    with contextlib.chdir(question["home"]):
        try:
            given = given_of(description)
        except InputError as error:
            print(json.dumps({"detail": str(error).splitlines()[0], "checks": []}))
            return
        path = Path(question["module"])
        module, text = load(path), path.read_text(encoding="utf-8")
        devices = np.array(jax.devices()[: given.mesh.size])
        sizes = [size for _, size in given.mesh.axes]
        mesh = jax.sharding.Mesh(devices.reshape(sizes), given.mesh.names)
        program = module.program(mesh)
        detail, checks = fault(given.function, given.avals, program), ["values"]
        if not detail and "lax.scan" not in text and "lax.while_loop" not in text:
            said = sum(row[5] for row in module.COMMUNICATIONS)
            read = received(given.avals, program, given.mesh.size)
            checks.append("bytes")
            detail = "" if said == read else f"says {said} bytes, and its HLO receives {read}"
    print(json.dumps({"detail": detail, "checks": checks}))


if __name__ == "__main__":
    main()
