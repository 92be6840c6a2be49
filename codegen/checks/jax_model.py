"""Run an emitted JAX module of a model on forced CPU devices."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

import jax
import numpy as np

from shardwright.codegen.checks import compare
from shardwright.codegen.checks.jax_devices import to_bits, to_jax, wide_types
from shardwright.codegen.checks.model_case import ModelCase
from shardwright.codegen.checks.oracle.definition import Bits


def executed(module: ModuleType, case: ModelCase) -> tuple[str, ...]:
    """Move the model on JAX's first devices; return the names of the checks passed."""
    ids, dtypes = case.devices(), {each.name: each.dtype for each in case.before}
    devices = jax.devices()[: len(ids)]
    with wide_types("uint64"):
        for given, wanted in case.runs():
            structs = module.sync.source_shardings(devices)
            state = {
                name: _array(struct, given, name, dtypes[name], ids)
                for name, struct in structs.items()
            }
            results = module.sync(state, devices)
            structs = module.sync.target_shardings(devices)
            compare.expect("names of results", {*results}, {*structs})
            for name, struct in structs.items():
                same = results[name].sharding == struct.sharding
                compare.require(same, f"the result {name} does not have the target sharding")
            compare.states(_held(results, ids), wanted)
            with compare.said_of("inputs kept"):
                compare.states(_held(state, ids), given, padding=1)
    return ("values", "padding", "inputs kept")


def _array(
    struct: Any,
    given: Mapping[int, Mapping[str, Bits]],
    name: str,
    dtype: str,
    ids: tuple[int, ...],
) -> Any:
    shape, places = struct.sharding.shard_shape(struct.shape), jax.devices()
    shards = []
    for device in struct.sharding.mesh.devices.flat:
        bits = given[ids[places.index(device)]][name]
        padded = np.ones(shape, bits.dtype)
        if bits.size:
            padded[tuple(map(slice, bits.shape))] = bits
        shards.append(jax.device_put(to_jax(padded, dtype), device))
    make = jax.make_array_from_single_device_arrays
    return make(struct.shape, struct.sharding, shards)


def _held(arrays: Mapping[str, Any], ids: tuple[int, ...]) -> dict[int, dict[str, Bits]]:
    found: dict[int, dict[str, Bits]] = {}
    places = {device: number for number, device in enumerate(jax.devices())}
    for name, array in arrays.items():
        for shard in array.addressable_shards:
            bits = np.asarray(to_bits(shard.data))
            found.setdefault(ids[places[shard.device]], {})[name] = bits
    return found
