"""The bytes that the busiest device receives when XLA partitions a function, given to `jax.jit`
with the user's shardings."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jax.experimental import topologies

from shardwright.codegen.partition.partitioned import Partitioned
from shardwright.codegen.spec.hlo.collectives import HloCollective, collectives_of
from shardwright.codegen.spec.hlo.text import HloModule
from shardwright.codegen.spec.interop import to_named_sharding
from shardwright.ir.sharding import Sharding

NARROW = "bf16"


@functools.cache
def devices_of(target: str, count: int) -> tuple[Any, ...]:
    """Return `count` devices: CPUs of this process, or chips of a named TPU topology."""
    if target == "cpu":
        return tuple(jax.devices("cpu")[:count])
    listed = topologies.get_topology_desc(platform="tpu", topology_name=target).devices
    return tuple(sorted(listed, key=lambda device: device.id)[:count])


def jit_received(
    fn: Callable[..., Any], avals: tuple[Any, ...], program: Partitioned, devices: Sequence[Any]
) -> int:
    """Return the bytes that the busiest device receives when XLA's own partitioner, which ignores
    `sw.constrain`, partitions the function."""
    sides = named_sides(program, devices)
    return received_by_hlo(jax.jit(fn, **sides).lower(*avals), len(devices))


def named_sides(program: Partitioned, devices: Sequence[Any]) -> dict[str, Any]:
    """Return the user's shardings as keyword arguments of `jax.jit`."""
    given = program.given
    inputs = [given.values[number].sharding for number in given.body.arguments]
    return {
        "in_shardings": program.inputs(tuple(_named(each, devices) for each in inputs)),
        "out_shardings": program.outputs(tuple(_named(each, devices) for each in given.results)),
    }


def received_by_hlo(lowered: Any, devices: int) -> int:
    """Return the bytes that the busiest device receives according to the HLO of a lowered program.
    Collectives in loops count once per iteration.

    On TPUs, XLA gathers float32 as bfloat16 before a multiplication. Therefore bfloat16 elements
    count as float32 if the program itself has no bfloat16.
    """
    narrowed = NARROW not in lowered.as_text()
    module = HloModule(lowered.compile().as_text())
    total = np.zeros(devices, dtype=np.int64)
    for each in collectives_of(module, devices):
        counted = _widened(each) if narrowed else each
        total += counted.received(devices, padded=False)
    return int(total.max(initial=0))


def _named(sharding: Sharding | None, devices: Sequence[Any]) -> Any:
    return None if sharding is None else to_named_sharding(sharding, devices)


def _widened(each: HloCollective) -> HloCollective:
    arrays = (replace(a, dtype="f32") if a.dtype == NARROW else a for a in each.arrays)
    return replace(each, arrays=tuple(arrays))
