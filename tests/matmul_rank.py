"""One process of a group under `jax.distributed`: runs emitted matmuls against numpy.

Arguments: rank, processes, local devices, port of the first process. A case a line of standard
input (`MatmulCase.to_json`), "ok" or what is wrong a line of standard output. All processes are
given the same lines and do the same in the same order, each with the shards of its own devices.
"""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={sys.argv[3]}"

import json

import jax

from shardwright.codegen.backends.jax_xla.verify.matmul import MatmulExecution, constants
from shardwright.codegen.verify.compare import MismatchError
from shardwright.codegen.verify.jax_devices import to_bits
from shardwright.codegen.verify.load import load
from shardwright.codegen.verify.matmul_case import MatmulCase
from shardwright.codegen.verify.oracle.products import products
from shardwright.codegen.verify.worker import brief
from shardwright.codegen.workers.serve import own_stdout


def main(rank: int, processes: int, port: int) -> None:
    """Answer every line."""
    answers = own_stdout()
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"localhost:{port}", num_processes=processes, process_id=rank)
    for line in sys.stdin:
        answers.write(f"{verdict(MatmulCase.from_data(json.loads(line)))}\n")
    jax.distributed.shutdown()


def verdict(case: MatmulCase) -> str:
    """What is wrong with a module of integers without unreduced axes, "ok" if nothing is."""
    try:
        module = load(case.module)
        constants(module, case)
        execution = MatmulExecution(module, case)
        for product in products(
            case.dtype, case.out_dtype, case.shapes[:2], case.placements[:2], 7
        ):
            a, b = execution.given(0, product.lhs, 5.0), execution.given(1, product.rhs, 3.0)
            y = jax.block_until_ready(execution.function(a, b))
            execution.shards(y, to_bits(product.result.astype(case.out_dtype)), case.placements[2])
    except MismatchError as error:
        return str(error)
    except Exception as error:
        return brief(error)
    return "ok"


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[4]))
