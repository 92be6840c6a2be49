"""Run an emitted JAX module of a relayout on forced CPU devices."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from types import ModuleType
from typing import Any

import jax
import numpy as np

from shardwright.codegen.checks import compare
from shardwright.codegen.checks.jax_devices import to_bits, to_jax, wide_types
from shardwright.codegen.checks.relayout_case import Held, RelayoutCase, StoredSaid, compare_held

Watch = Callable[[int], AbstractContextManager[None]]
"""Returns the context for a run, given its index."""


def unwatched_run(number: int) -> AbstractContextManager[None]:
    """Return a context that sets no watchdog."""
    del number
    return nullcontext()


def executed(
    module: ModuleType, case: RelayoutCase, watch: Watch = unwatched_run, **options: Any
) -> tuple[str, ...]:
    """Execute the module on every run of the case; return the names of the checks passed.

    `watch`: returns the context in which to execute a run; `options`: the arguments of `reshard`
    other than arrays and meshes.
    """
    ids = case.devices()
    meshes = [_mesh(side, ids) for side in (case.source, case.target)]
    with wide_types(case.dtype):
        for number, (given, wanted) in enumerate(case.runs()):
            arrays = _arrays(module, case, given, meshes[0])
            before = {name: np.asarray(to_bits(x)) for name, x in arrays.items()}
            with watch(number):
                results = module.reshard(arrays, meshes[0], target_mesh=meshes[1], **options)
                jax.block_until_ready(results)
            compare_held({name: _held(y, ids) for name, y in results.items()}, wanted)
            for name, x in arrays.items():
                same = np.array_equal(to_bits(x), before[name])
                compare.require(same, f"the input {name} was changed")
            for name, sharding in module.target_sharding(meshes[1]).items():
                same = results[name].sharding.is_equivalent_to(sharding, results[name].ndim)
                compare.require(same, f"the result {name} does not have the target sharding")
    return ("values", "padding", "inputs kept")


def _mesh(side: StoredSaid, ids: tuple[int, ...]) -> jax.sharding.Mesh:
    devices = [jax.devices()[ids.index(each)] for each in side.device_ids]
    names, sizes = zip(*side.axes, strict=True)
    return jax.sharding.Mesh(np.array(devices).reshape(sizes), names)


def _arrays(
    module: ModuleType, case: RelayoutCase, given: Held, mesh: jax.sharding.Mesh
) -> dict[str, Any]:
    found = {}
    for name, sharding in module.source_sharding(mesh).items():
        shape = _local_shape(module, name)
        shards = []
        for device, id_ in zip(mesh.devices.flat, case.source.device_ids, strict=True):
            bits = given[name][id_]
            padded = np.ones(shape, bits.dtype)
            if bits.size:
                padded[tuple(map(slice, bits.shape))] = bits
            shards.append(jax.device_put(to_jax(padded, case.dtype), device))
        spec = (*sharding.spec, *[None] * (len(shape) - len(sharding.spec)))
        whole = tuple(
            size * int(np.prod([mesh.shape[axis] for axis in np.atleast_1d(names)]))
            if names is not None
            else size
            for size, names in zip(shape, spec, strict=True)
        )
        make = jax.make_array_from_single_device_arrays
        found[name] = make(whole, sharding, shards)
    return found


def _local_shape(module: ModuleType, name: str) -> tuple[int, ...]:
    """Return the padded shape of a source buffer on a device; a reshard's module has one buffer."""
    is_reshard = isinstance(module.SOURCE, str)
    found: tuple[int, ...] = module.LOCAL_SOURCE_SHAPE if is_reshard else module.SOURCE[name][1][0]
    return found


def _held(array: Any, ids: tuple[int, ...]) -> dict[int, Any]:
    places = {device: number for number, device in enumerate(jax.devices())}
    return {
        ids[places[shard.device]]: np.asarray(to_bits(shard.data))
        for shard in array.addressable_shards
    }
