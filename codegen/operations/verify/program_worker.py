"""Run a program's module in a separate process, with as many CPU devices as it needs."""

from __future__ import annotations

import contextlib
import inspect
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from shardwright.codegen.checks.load import load
from shardwright.codegen.operations.emit.program import given_of
from shardwright.codegen.operations.verify.program_values import (
    fault,
    gradient_fault,
    received,
    unpadded,
)
from shardwright.codegen.spec.program import describe_program
from shardwright.ir.errors import InputError


def _other_bytes(rows: Sequence[dict[str, Any]], read: int) -> str:
    """Describe the difference between the bytes in `plan.json` and those in the HLO, or return "".
    CPUs move 16-bit floats as float32, so the HLO may have up to twice the bytes for these."""
    said = sum(row["bytes"] for row in rows)
    narrow = sum(row["bytes"] for row in rows if row["shape"].startswith(("bf16[", "f16[")))
    if said <= read <= said + narrow:
        return ""
    return f"states {said} bytes, but its HLO receives {read}"


def main() -> None:
    """Read a question from standard input; print the fault, or the checks that passed."""
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
        has_kernels = "RingMatmul" in text  # the HLO does not show the bytes that kernels move
        options: dict[str, Any] = {"interpret": True} if has_kernels else {}
        if "template" in inspect.signature(module.program).parameters:
            options["template"] = jax.eval_shape(given.function, *given.avals)
        program, avals = module.program(mesh, **options), given.avals
        lowered = program
        if "pad" in vars(module):
            program, avals = unpadded(module, program), jax.eval_shape(module.pad, *avals)
        detail, checks = fault(given.function, given.avals, program), ["values"]
        slope = None if detail else gradient_fault(given.function, given.avals, program)
        if slope is not None:
            checks.append("gradients")
            detail = slope
        unknown = "lax.while_loop" in text  # the loop's iteration count is unknown
        if not detail and not unknown and not has_kernels:
            read = received(avals, lowered, given.mesh.size)
            checks.append("bytes")
            detail = _other_bytes(
                json.loads(path.with_name("plan.json").read_text("utf-8"))["communications"], read
            )
    print(json.dumps({"detail": detail, "checks": checks}))


if __name__ == "__main__":
    main()
