"""Check an emitted reshard between processes. Here, each process is a thread.

Imported only by workers.
"""

from __future__ import annotations

import math
from typing import Any

from shardwright.codegen.backends.triton_gpu.verify.calls import check_calls
from shardwright.codegen.backends.triton_gpu.verify.dtensors import check_dtensors
from shardwright.codegen.backends.triton_gpu.verify.gradients import check_gradients
from shardwright.codegen.backends.triton_gpu.verify.remembered import check_remembered
from shardwright.codegen.backends.triton_gpu.verify.values import Values
from shardwright.codegen.checks.case import Case

MAX_BYTES = 1 << 16
"""The largest total size of all shards, in bytes, for which accesses to every byte are recorded."""


def check_among_ranks(module: Any, case: Case) -> tuple[str, ...]:
    """Check the calls of a module by all ranks, and return the names of the checks that passed
    (none if the module has no such calls). Raises MismatchError."""
    if "reshard" not in module.__all__:
        return ()
    values, noted = Values.of(case), _bytes(module._HOST) <= MAX_BYTES
    check_calls(module, values, noted=noted)
    check_remembered(module, values, noted=noted)
    if case.derivative:
        check_gradients(module, values)
    order = ("order of ranks",) if noted else ()
    return ("calls of ranks", *order, *check_dtensors(module, values))


def _bytes(host: Any) -> int:
    exchange = host.exchange
    shapes = [host.source_shape(device) for device in exchange.source.ids]
    shapes += [host.target_shape(device) for device in exchange.target.ids]
    return sum(map(math.prod, shapes)) * int(host.dtype.itemsize)
