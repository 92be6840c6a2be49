"""Compile a JAX module, or XLA's own reshard, for a TPU topology. Runs in a worker process."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from shardwright.codegen.backends.pallas_tpu.memory import padded_elements
from shardwright.codegen.backends.pallas_tpu.verify.contract import form_of, programs_of
from shardwright.codegen.checks.compiled import memory
from shardwright.codegen.checks.compiled.job import Job
from shardwright.codegen.checks.compiled.report import TpuCode
from shardwright.codegen.checks.compiled.saving import lines_of, save
from shardwright.codegen.moves.xla import collectives
from shardwright.codegen.spec.hlo import collectives as hlo
from shardwright.codegen.spec.hlo.copies import copied_bytes
from shardwright.ir.dtypes import DTYPES
from shardwright.ir.errors import InputError


@dataclass(frozen=True)
class _Program:
    """A function to compile, its single argument, and the sharding of its result (None: the
    compiler chooses)."""

    function: Callable[[Any], Any]
    argument: Any
    result: NamedSharding | None = None

    @property
    def sharding(self) -> Any:
        return jax.tree.leaves(self.argument)[0].sharding

    def jit(self) -> Any:
        if self.result is None:
            return jax.jit(self.function)
        shardings = {"in_shardings": self.argument.sharding, "out_shardings": self.result}
        return jax.jit(self.function, **shardings)


def compile_module(module: ModuleType, job: Job) -> TpuCode:
    """Compile `module.reshard` and return the compiler's result. If `job.files` is set, also save
    the exported program there."""
    if job.what == "group":
        return _grouped(module, job)
    # A module in plain JAX allocates no staging areas.
    is_kernel = job.emitted == job.backend
    memory.check(module, job.target, _staging_bytes(module) if is_kernel else 0)
    _set_widths(module, job)
    program = _whole(module, job) if _same_devices(module) else _inner(module, job)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        code = _with_stated(_compiled(program), module, is_kernel)
    home = Path(str(module.__file__)).parent.parent  # the folder also contains the support modules
    own = [str(each.message) for each in said if home in Path(each.filename).parents]
    code = replace(code, warning="; ".join(dict.fromkeys(own)))
    if job.files is not None:
        save(job.files, _artifacts(module, job, program))
    return code


def _grouped(module: ModuleType, job: Job) -> TpuCode:
    host = module._HOST
    jax.config.update("jax_enable_x64", any(kind.dtype.itemsize == 8 for kind in host.kinds))
    argument, function = host.compiled_for(placed(len(host.ranks), job.target, aside=job.aside))
    program = _Program(function, argument)
    code = replace(_compiled(program), wire_bytes=max(host.wire_bytes()))
    if job.files is not None:
        exported = export.export(program.jit(), platforms=["tpu"])(argument)
        about = {"topology": job.target, "tensors": list(module.NAMES), "device_ids": host.ranks}
        files = {"jax_export": bytes(exported.serialize()), "json": lines_of(about).encode()}
        save(job.files, files)
    return code


def _staging_bytes(module: ModuleType) -> int:
    """Return the bytes of HBM that a module's kernels need in addition to the shards, for staging
    areas and for slots of forwarded tiles."""
    return max(_staging(program, DTYPES[module.DTYPE]) for program in programs_of(module))


def _staging(program: Any, itemsize: int) -> int:
    buffers = form_of(program).buffers
    if buffers == "staged" and program.peers.sends:
        return itemsize * math.prod(map(int, program.tiling.stage))
    if buffers == "places":
        shape = program.slot.shape
        slot = padded_elements(shape, tuple(range(len(shape))), itemsize)
        return itemsize * slot * int(program.schedule.slots)
    return 0


def _with_stated(code: TpuCode, module: ModuleType, is_kernel: bool) -> TpuCode:
    """Return `code` with its wire bytes completed from the module. The compiler does not see the
    bytes that kernels send, so add the module's figure to that of XLA's collectives. In plain JAX
    every move is a collective, so use the module's figure only if the compiler reports none."""
    if is_kernel:
        return replace(code, wire_bytes=module.WIRE_BYTES + (code.wire_bytes or 0))
    return code if code.wire_bytes is not None else replace(code, wire_bytes=module.WIRE_BYTES)


def compile_xla(module: ModuleType, job: Job) -> TpuCode:
    """Compile XLA's own reshard between padded arrays of the module's shapes and return the
    compiler's result. Raises InputError for a nested split, which XLA cannot express."""
    if job.nested:
        raise InputError("XLA has no nested split")
    memory.check(module, job.target, 0)
    _set_widths(module, job)
    source, target = _meshes(module, job.target, aside=job.aside)
    shape, padded = module.SHAPE, module.PADDED_TARGET_SHAPE

    def moved(x: Any) -> Any:
        if padded == x.shape:
            return x
        x = x[tuple(slice(size) for size in shape)]
        return jnp.pad(x, [(0, to - size) for size, to in zip(shape, padded, strict=True)])

    argument = _argument(module, module.PADDED_SOURCE_SHAPE, module.source_sharding(source))
    return _compiled(_Program(moved, argument, module.target_sharding(target)), keeps_moves=True)


def _whole(module: ModuleType, job: Job) -> _Program:
    mesh, target_mesh = _meshes(module, job.target, aside=job.aside)
    return _Program(
        lambda x: module.reshard(x, mesh, target_mesh=target_mesh),
        _argument(module, module.PADDED_SOURCE_SHAPE, module.source_sharding(mesh)),
        module.target_sharding(target_mesh),
    )


def _inner(module: ModuleType, job: Job) -> _Program:
    """Return the inner program of a `reshard` whose two meshes list different devices. A single
    jitted function cannot take both meshes, so this program runs on their union, with shards
    stacked by rank."""
    ranks = _ranks(module)
    chosen = placed(len(_ranks(module)), job.target, aside=job.aside)
    union = Mesh(np.array(chosen), ("device",))
    shape = (len(ranks), *module.LOCAL_SOURCE_SHAPE)
    rows = NamedSharding(union, PartitionSpec("device"))
    return _Program(lambda x: module._HOST.stacked(x, union), _argument(module, shape, rows))


def _set_widths(module: ModuleType, job: Job) -> None:
    jax.config.update("jax_enable_x64", job.what == "x64" or DTYPES[module.DTYPE] == 8)


def _argument(module: ModuleType, shape: tuple[int, ...], sharding: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, module.DTYPE, sharding=sharding)


def _compiled(program: _Program, keeps_moves: bool = False) -> TpuCode:
    # Do not reuse the trace of an earlier program: it may have used a different integer width.
    jax.clear_caches()
    start = time.perf_counter()
    lowered = program.jit().lower(program.argument)
    lowered_at = time.perf_counter()
    compiled = lowered.compile()
    compiled_at = time.perf_counter()
    sizes, text = compiled.memory_analysis(), compiled.as_text()
    devices = len(program.sharding.device_set)
    return TpuCode(
        lower_seconds=lowered_at - start,
        compile_seconds=compiled_at - lowered_at,
        code_bytes=sizes.generated_code_size_in_bytes,
        temporary_bytes=sizes.temp_size_in_bytes,
        vmem_bytes=hlo.vmem_bytes(text),
        wire_bytes=hlo.received_bytes(text, devices),
        moves=tuple(collectives(text, devices)) if keeps_moves else (),
        copied_bytes=copied_bytes(text),
    )


def _artifacts(module: ModuleType, job: Job, program: _Program) -> dict[str, bytes]:
    """Return, by file suffix, the exported program and a JSON description of how to call it.

    In the description, `device_ids[r]` is the logical id of rank r, which runs on the topology's
    r-th device; `mesh` is the argument's mesh; `mesh_devices` lists its devices by position, as
    indices into the topology.
    """
    exported = export.export(program.jit(), platforms=["tpu"])(program.argument)
    (result,) = exported.out_avals
    sharding = program.argument.sharding
    numbers = {device: number for number, device in enumerate(devices_of(job.target))}
    about = {
        "topology": job.target,
        "program": "reshard" if _same_devices(module) else "reshard of shards stacked by rank",
        "device_ids": _ranks(module),
        "mesh": dict(sharding.mesh.shape),
        "mesh_devices": [numbers[device] for device in sharding.mesh.devices.flat],
        "argument": {"shape": list(program.argument.shape), "dtype": module.DTYPE},
        "result": {"shape": list(result.shape), "dtype": module.DTYPE},
    }
    return {"jax_export": bytes(exported.serialize()), "json": lines_of(about).encode()}


def _same_devices(module: ModuleType) -> bool:
    return tuple(module.SOURCE_IDS) == tuple(module.TARGET_IDS)


def _ranks(module: ModuleType) -> list[int]:
    """Return the device ids of both meshes in ascending order. The id at index r belongs to rank
    r."""
    return sorted({*module.SOURCE_IDS, *module.TARGET_IDS})


def _meshes(module: ModuleType, topology: str, *, aside: bool = False) -> tuple[Mesh, Mesh]:
    ranks = _ranks(module)
    by_id = dict(zip(ranks, placed(len(ranks), topology, aside=aside), strict=True))
    return (
        _mesh(module.SOURCE_AXES, [by_id[i] for i in module.SOURCE_IDS]),
        _mesh(module.TARGET_AXES, [by_id[i] for i in module.TARGET_IDS]),
    )


def _mesh(axes: Sequence[tuple[str, int]], devices: list[Any]) -> Mesh:
    names, sizes = zip(*axes, strict=True)
    return Mesh(np.array(devices).reshape(sizes), names)


def placed(wanted: int, topology: str, *, aside: bool = False) -> list[Any]:
    """Return the first `wanted` devices of a topology. With `aside`, replace the last of them by
    the topology's last device.

    Raises InputError if the topology has too few devices.
    """
    _check_placed(wanted, topology)
    devices = devices_of(topology)
    return [*devices[: wanted - 1], devices[-1]] if aside else devices[:wanted]


def _check_placed(wanted: int, topology: str) -> None:
    devices = len(devices_of(topology))
    if wanted > devices:
        raise InputError(
            "the mesh is larger than the topology",
            got=f"{wanted} devices",
            expected=f"at most the {devices} of {topology}",
        )


@cache
def devices_of(topology: str) -> list[Any]:
    """Return the devices of a topology sorted by id, since JAX lists them host by host. Also start
    the compiler, so that its startup does not count as compile time of the first program."""
    listed = topologies.get_topology_desc(platform="tpu", topology_name=topology).devices
    devices = sorted(listed, key=lambda device: device.id)
    one = NamedSharding(Mesh(np.array(devices[:1]), ("device",)), PartitionSpec())
    argument = jax.ShapeDtypeStruct((8, 128), "float32", sharding=one)
    jax.jit(lambda x: x + 1).lower(argument).compile()
    return devices
