"""Compile an emitted matmul, or XLA's own matmul, for a TPU topology. Runs in a worker process."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
from jax import export

from shardwright.codegen import registry
from shardwright.codegen.backends.pallas_tpu.compile.run import devices_of, placed
from shardwright.codegen.checks.compiled.job import Job
from shardwright.codegen.checks.compiled.report import TpuCode
from shardwright.codegen.checks.compiled.saving import lines_of, save
from shardwright.codegen.hardware.presets import topology_of
from shardwright.codegen.hardware.rates import check_multiplies
from shardwright.codegen.spec.hlo.collectives import received_in_all

Function = Callable[[Any, Any], Any]


def compile_matmul(module: ModuleType, job: Job) -> TpuCode:
    """Compile `module.matmul` and return the compiler's result. If `job.files` is set, also save
    the exported program there."""
    check_multiplies(topology_of(job.target), module.DTYPE)
    mesh = _mesh(module, job)
    program, given = _program(module, job, mesh, lambda a, b: module.matmul(a, b, mesh))
    code = _compiled(program, given, len(module.IDS))
    if registry.contract(job.emitted).collective:  # the HLO does not show what the kernels send
        code = replace(code, wire_bytes=module.WIRE_BYTES)
    if job.files is not None:
        exported = export.export(program, platforms=["tpu"])(*given)
        numbers = {device: number for number, device in enumerate(devices_of(job.target))}
        about = {
            "topology": job.target,
            "program": "matmul",
            "device_ids": list(module.IDS),
            "mesh": dict(mesh.shape),
            "mesh_devices": [numbers[device] for device in mesh.devices.flat],
            "arguments": [{"shape": list(x.shape), "dtype": str(x.dtype)} for x in given],
            "result": {"shape": list(exported.out_avals[0].shape), "dtype": module.OUT_DTYPE},
        }
        files = {"jax_export": bytes(exported.serialize()), "json": lines_of(about).encode()}
        save(job.files, files)
    return code


def compile_xla_matmul(module: ModuleType, job: Job) -> TpuCode:
    """Compile `jnp.matmul` on padded arrays of the module's shapes and return the compiler's
    result."""
    padded = module.PADDED_OUT_SHAPE

    def multiplied(a: Any, b: Any) -> Any:
        shapes = module.LHS_SHAPE, module.RHS_SHAPE
        a, b = (
            x if x.shape == shape else x[tuple(map(slice, shape))]
            for x, shape in zip((a, b), shapes, strict=True)
        )
        c = jnp.matmul(a, b, preferred_element_type=module.OUT_DTYPE)
        return c if c.shape == padded else jnp.pad(c, _behind(c.shape, padded))

    program, given = _program(module, job, _mesh(module, job), multiplied)
    return _compiled(program, given, len(module.IDS))


def _behind(shape: tuple[int, ...], padded: tuple[int, ...]) -> list[tuple[int, int]]:
    return [(0, to - size) for size, to in zip(shape, padded, strict=True)]


def _mesh(module: ModuleType, job: Job) -> Any:
    chosen = placed(len(module.IDS), job.target, aside=job.aside)
    by_id = dict(zip(sorted(module.IDS), chosen, strict=True))
    return module._LHS.mesh_of([by_id[device] for device in module.IDS])


def _program(module: ModuleType, job: Job, mesh: Any, function: Function) -> tuple[Any, list[Any]]:
    wide = max(jnp.dtype(name).itemsize for name in (module.DTYPE, module.OUT_DTYPE))
    jax.config.update("jax_enable_x64", job.what == "x64_matmul" or wide == 8)
    given = [
        jax.ShapeDtypeStruct(side.padded, module.DTYPE, sharding=sharding(mesh))
        for side, sharding in (
            (module._LHS, module.lhs_sharding),
            (module._RHS, module.rhs_sharding),
        )
    ]
    return jax.jit(function, out_shardings=module.out_sharding(mesh)), given


def _compiled(program: Any, given: list[Any], devices: int) -> TpuCode:
    jax.clear_caches()
    start = time.perf_counter()
    lowered = program.lower(*given)
    lowered_at = time.perf_counter()
    compiled = lowered.compile()
    compiled_at = time.perf_counter()
    sizes = compiled.memory_analysis()
    return TpuCode(
        lower_seconds=lowered_at - start,
        compile_seconds=compiled_at - lowered_at,
        code_bytes=sizes.generated_code_size_in_bytes,
        temporary_bytes=sizes.temp_size_in_bytes,
        wire_bytes=max(received_in_all(compiled.as_text(), devices)),
    )
