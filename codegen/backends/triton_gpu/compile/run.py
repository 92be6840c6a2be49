"""Compile a Triton module's kernel for a GPU architecture. Runs in a worker process."""

from __future__ import annotations

import time
from types import ModuleType
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from shardwright.codegen.backends.triton_gpu.compile import group_launch, launch, resources
from shardwright.codegen.backends.triton_gpu.compile.launch import ALIGNMENT
from shardwright.codegen.compile.job import Job
from shardwright.codegen.compile.report import GpuCode
from shardwright.codegen.compile.saving import save


def compile_module(module: ModuleType, job: Job) -> GpuCode:
    """Return what Triton makes of the kernel; with `job.files`, binary and assembly are saved too.

    A device's positions are arguments, so one binary serves all devices.
    """
    start = time.perf_counter()
    grouped = job.what == "group"
    kernel = compiled(module, job.target, grouped=grouped)
    code = code_of(kernel, time.perf_counter() - start)
    if job.files is not None:
        binary, assembly = kinds(kernel)
        described = (group_launch if grouped else launch).launch_json
        used = {
            "shared_bytes": code.shared_bytes,
            "registers": code.registers,
            "stack_bytes": code.stack_bytes,
        }
        contents = {
            binary: kernel.asm[binary],
            assembly: kernel.asm[assembly].encode(),
            "json": described(module, job.target, kernel.metadata, used).encode(),
        }
        save(job.files, contents)
    return code


def compiled(module: ModuleType, target: str, *, grouped: bool = False) -> Any:
    """Return what Triton makes of the kernel for an architecture, as the module's launches call
    it; `grouped`: the module is that of a group, whose kernel is another."""
    return triton.compile(_source(module, grouped), target=_gpu(target))


def code_of(kernel: Any, seconds: float) -> GpuCode:
    """Return the figures of a compiled kernel."""
    binary, assembly = (kernel.asm[kind] for kind in kinds(kernel))
    if "cubin" in kernel.asm:
        cuobjdump = triton.knobs.nvidia.cuobjdump.path
        registers, stack = resources.of_cubin(kernel.metadata.name, binary, cuobjdump)
    else:
        registers, stack = resources.of_assembly(assembly)
    wide_loads, loads = resources.wide(resources.widths(assembly, "ld"))
    wide_stores, stores = resources.wide(resources.widths(assembly, "st"))
    looped, divisions = resources.divisions(assembly)
    return GpuCode(
        seconds=seconds,
        registers=registers,
        stack_bytes=stack,
        shared_bytes=kernel.metadata.shared,
        binary_bytes=len(binary),
        wide_loads=wide_loads,
        loads=loads,
        wide_stores=wide_stores,
        stores=stores,
        divisions=divisions,
        looped_divisions=looped,
    )


def kinds(kernel: Any) -> tuple[str, str]:
    """Return what Triton calls the binary and the assembly."""
    return ("cubin", "ptx") if "cubin" in kernel.asm else ("hsaco", "amdgcn")


def _gpu(name: str) -> GPUTarget:
    if name.startswith("sm_"):
        return GPUTarget("cuda", int(name.removeprefix("sm_")), 32)
    return GPUTarget("hip", name, 64)


def _source(module: ModuleType, grouped: bool) -> ASTSource:
    """Return the kernel as the module's launches call it."""
    if grouped:
        kernel, given = module._HOST.kernel, group_launch.TYPES
        values = group_launch.constants(module)
    else:
        kernel, given = module.pull_kernel, launch.types(module)
        values = launch.constants(module)
    names = kernel.arg_names
    pointers = [k for k, name in enumerate(names) if given.get(name, "").startswith("*")]
    return ASTSource(
        fn=kernel,
        signature={name: given.get(name, "constexpr") for name in names},
        constexprs={(names.index(name),): value for name, value in values.items()},
        attrs={(k,): [["tt.divisibility", ALIGNMENT]] for k in pointers},
    )
