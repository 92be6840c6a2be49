"""Bytes that programs of the bench report, beside those of the HLO of what is emitted for them, as
JSON: MODE TARGET NAME…, where TARGET is `cpu` or a topology of TPUs. Then the bytes of
reduce-scatters of vectors.

The environment is set before JAX is imported.
"""

from __future__ import annotations

import json
import sys

import emitted

import shardwright as sw
from bench.program_bytes import cases
from shardwright.codegen.operations.compile.jit_bytes import received_by_hlo


def vectors(program: sw.Partitioned) -> int:
    """The bytes of reduce-scatters of vectors, of which XLA makes all-reduces on TPUs."""
    scattered = (each for each in program.communications if each.op == "reduce_scatter")
    return sum(each.bytes for each in scattered if "," not in each.shape)


def main() -> None:
    mode, target, *names = sys.argv[1:]
    found = {}
    for name, make in cases(target):
        if name not in names:
            continue
        case = make()
        sides = {"in_shardings": case.inputs, "out_shardings": case.outputs}
        program = sw.partition(case.fn, *case.avals, mesh=case.mesh, mode=mode, **sides)
        lowered = emitted.module_of(program)["program"](case.mesh).lower(*case.avals)
        read = received_by_hlo(lowered, case.mesh.size)
        found[name] = [program.bytes_received, read, vectors(program)]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
