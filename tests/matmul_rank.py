"""One process, alone or of a group under `jax.distributed`: runs emitted matmuls against numpy.

Arguments: rank, processes, local devices, port of the first process. A case a line of standard
input (`MatmulCase.to_json`), "ok" or what is wrong a line of standard output. All processes are
given the same lines and do the same in the same order, each with the shards of its own devices.
"""

from __future__ import annotations

import os
import sys

from cpu_devices import flags

if __name__ == "__main__":
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["XLA_FLAGS"] = flags(int(sys.argv[3]))

import itertools
import json
from collections.abc import Iterator

import jax

from shardwright.codegen.checks.compare import MismatchError
from shardwright.codegen.checks.jax_devices import to_bits
from shardwright.codegen.checks.jax_matmul import MatmulExecution, constants
from shardwright.codegen.checks.load import load
from shardwright.codegen.checks.matmul_case import MatmulCase
from shardwright.codegen.checks.oracle.products import products
from shardwright.codegen.checks.workers.serve import own_stdout
from shardwright.codegen.operations.verify.worker import brief

BATCH = 24
"""Matmuls of one program: what a program takes to compile is little more than what one takes."""


def main(rank: int, processes: int, port: int) -> None:
    """Answer every line."""
    answers = own_stdout()
    if processes > 1:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(f"localhost:{port}", num_processes=processes, process_id=rank)
    lines = iter(sys.stdin)
    while batch := list(itertools.islice(lines, BATCH)):
        for verdict in verdicts([MatmulCase.from_data(json.loads(line)) for line in batch]):
            answers.write(f"{verdict}\n")
    if processes > 1:
        jax.distributed.shutdown()


def verdicts(cases: list[MatmulCase]) -> Iterator[str]:
    """Yield what is wrong with modules without unreduced axes, "ok" if nothing is."""
    runs = [Run(case) for case in cases]
    able = [run for run in runs if not run.fault]
    try:
        together = jax.jit(
            lambda given: [
                run.execution.function(*both) for run, both in zip(able, given, strict=True)
            ]
        )
        results = jax.block_until_ready(together([run.given for run in able]))
        for run, y in zip(able, results, strict=True):
            run.compare(y)
    except Exception as error:  # of one of them: none has an answer
        yield from [brief(error)] * len(cases)
        return
    yield from (run.fault or "ok" for run in runs)


class Run:
    """A module with operands of which all sums are exact, their padding poisoned; `fault`: what is
    wrong with it."""

    def __init__(self, case: MatmulCase) -> None:
        self.case, self.fault = case, ""
        try:
            module = load(case.module)
            constants(module, case)
            self.execution = MatmulExecution(module, case)
            self.product, *_ = products(
                case.dtype, case.out_dtype, case.shapes[:2], case.placements[:2], 7
            )
            operands = (self.product.lhs, self.product.rhs)
            self.given = [
                self.execution.given(n, x, fill)
                for n, (x, fill) in enumerate(zip(operands, self.execution.poisons(), strict=True))
            ]
        except Exception as error:
            self.fault = brief(error)

    def compare(self, y: jax.Array) -> None:
        """Note where a result is wrong."""
        wanted = to_bits(self.product.result.astype(self.case.out_dtype))
        try:
            self.execution.shards(y, wanted, self.case.placements[2])
        except MismatchError as error:
            self.fault = str(error)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[4]))
