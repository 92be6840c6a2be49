"""Public reports about JAX on CPU devices: programs, and one call onto another order of devices.
Prints, as JSON, the bytes that the busiest device receives, and what is wrong with values."""

from __future__ import annotations

import json
import os
from typing import Any

from cpu_devices import flags

os.environ["XLA_FLAGS"] = flags(16)
os.environ["JAX_PLATFORMS"] = "cpu"

import emitted
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from report_cases import CALL, PROGRAMS

import shardwright as sw

jax.config.update("jax_disable_most_optimizations", True)

ZIGZAG = np.arange(64, dtype=np.int32).reshape(8, 8)[[0, 7, 1, 6, 2, 5, 3, 4]].reshape(-1)
"""Of 64 rows over four devices: device r gets blocks r and 7 - r of eight."""


def block_quantized(w: Any) -> Any:
    """Blocks of 128 x 128 as float8 with a scale each."""
    blocks = w.reshape(w.shape[0] // 128, 128, w.shape[1] // 128, 128)
    scales = jnp.abs(blocks).max((1, 3)) / 448
    cast = (blocks / scales[:, None, :, None]).astype(jnp.float8_e4m3fn)
    return cast.reshape(w.shape), scales


FUNCTIONS = {
    "xla_transposed_dot": lambda x, y: (x @ y).T,
    "xla_dynamic_slice_replicated": lambda x, i: lax.dynamic_index_in_dim(x, i),
    "jax_concat_replica_axis": lambda a, b: jnp.concatenate([a, b]),
    "slice_split_dim": lambda x: x[..., :16],
    "fp8_blocks_program": block_quantized,
    "zigzag_program": lambda x: jnp.take(x, ZIGZAG, axis=1),
}


def of_programs() -> dict[str, Any]:
    """Each program beside one device."""
    found = {}
    for name, case in PROGRAMS.items():
        avals = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in case.avals]
        sizes = tuple(case.mesh.values())
        devices = np.array(jax.devices()[: np.prod(sizes)]).reshape(sizes)
        mesh = Mesh(devices, tuple(case.mesh))
        program = sw.partition(
            FUNCTIONS[name],
            *avals,
            mesh=mesh,
            in_shardings=case.inputs,
            out_shardings=case.outputs,
            mode="cheapest",
        )
        wrong = emitted.fault(FUNCTIONS[name], avals, program, mesh)
        found[name] = program.bytes_received, wrong
    return found


def of_call() -> tuple[int, str]:
    """An array on all devices onto the same in another order."""
    source, target = (
        NamedSharding(
            Mesh(np.array(jax.devices())[[*ids]].reshape([*axes.values()]), tuple(axes)), P(*spec)
        )
        for axes, ids, spec in (CALL.source, CALL.target)
    )
    x = jax.device_put(np.arange(np.prod(CALL.shape), dtype=np.float32).reshape(CALL.shape), source)
    y, wanted = sw.reshard(x, target), jax.device_put(x, target)
    wrong = "" if y.sharding == target else f"{y.sharding}"
    for own, other in zip(y.addressable_shards, wanted.addressable_shards, strict=True):
        if own.device != other.device or (np.asarray(own.data) != np.asarray(other.data)).any():
            wrong = wrong or f"{own.device}"
    traffic = sw.plan(sw.Reshard(CALL.shape, np.float32, source, target)).traffic
    return traffic.received_max, wrong


if __name__ == "__main__":
    print(json.dumps({**of_programs(), "device_order_16": of_call()}))
