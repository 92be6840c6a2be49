"""Compile a Triton module's kernel for a GPU architecture. Runs in a worker process."""

from __future__ import annotations

import dataclasses
import time
from types import ModuleType
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from shardwright.codegen.backends.triton_gpu.compile import group_launch, launch, resources
from shardwright.codegen.backends.triton_gpu.compile.launch import ALIGNMENT
from shardwright.codegen.checks.compiled.job import Job
from shardwright.codegen.checks.compiled.report import GpuCode
from shardwright.codegen.checks.compiled.saving import save

WARPS = 4
"""The warps of a program, unless a launch has few programs."""


def compile_module(module: ModuleType, job: Job) -> GpuCode:
    """Return the figures of a module's kernel, or the combined figures of its two kernels, one per
    exchange. If `job.files` is set, also save binaries, assemblies and descriptions of launches
    there.

    A device's positions are run-time arguments, so all devices use the same binary.
    """
    grouped = job.what == "group"
    codes = [_compiled(module, job, 0, grouped)]
    if not grouped:
        codes += [_compiled(module, job, k, False) for k in range(1, len(module._HOST.phases))]
    first, *others = codes
    for other in others:
        first = _both(first, other)
    return first


def _compiled(module: ModuleType, job: Job, phase: int, grouped: bool) -> GpuCode:
    start = time.perf_counter()
    kernel = compiled(module, job.target, phase, grouped=grouped)
    code = code_of(kernel, time.perf_counter() - start)
    if job.files is not None:
        binary, assembly = kinds(kernel)
        used = {
            "shared_bytes": code.shared_bytes,
            "registers": code.registers,
            "stack_bytes": code.stack_bytes,
        }
        given = (module, job.target, kernel.metadata, used)
        described = (
            group_launch.launch_json(*given) if grouped else launch.launch_json(*given, phase)
        )
        contents = {
            binary: kernel.asm[binary],
            assembly: kernel.asm[assembly].encode(),
            "json": described.encode(),
        }
        name = f"phase{phase + 1}." if phase else ""
        save(job.files, {f"{name}{ending}": content for ending, content in contents.items()})
    return code


def _both(one: GpuCode, other: GpuCode) -> GpuCode:
    """Combine the figures of two kernels: the maxima of registers, stack and shared memory, and the
    sums of all other figures. A figure that is unknown for either kernel is None."""
    figures: dict[str, Any] = {}
    for field in dataclasses.fields(GpuCode):
        given = getattr(one, field.name), getattr(other, field.name)
        combine = max if field.name in ("registers", "stack_bytes", "shared_bytes") else sum
        figures[field.name] = None if None in given else combine(given)
    return GpuCode(**figures)


def compiled(
    module: ModuleType, target: str, phase: int = 0, *, grouped: bool = False, times: int = 1
) -> Any:
    """Compile the kernel of exchange number `phase` for an architecture, as the module launches it;
    `grouped`: whether the module belongs to a group, which has a different kernel; `times`: how
    many times more threads and larger blocks programs have when a launch has few of them."""
    source, options = _source(module, phase, grouped, times), {"num_warps": WARPS * times}
    return triton.compile(source, target=gpu(target), options=options)


def code_of(kernel: Any, seconds: float) -> GpuCode:
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
    """Return Triton's names for the kernel's binary and for its assembly."""
    return ("cubin", "ptx") if "cubin" in kernel.asm else ("hsaco", "amdgcn")


def gpu(name: str) -> GPUTarget:
    if name.startswith("sm_"):
        return GPUTarget("cuda", int(name.removeprefix("sm_")), 32)
    return GPUTarget("hip", name, 64)


def _source(module: ModuleType, phase: int, grouped: bool, times: int) -> ASTSource:
    if grouped:
        kernel, given = module._HOST.kernel, group_launch.TYPES
        values = group_launch.constants(module)
    else:
        kernel, given = module._HOST.phases[phase].kernel, launch.types(module, phase)
        values = launch.constants(module, phase, times)
    names = kernel.arg_names
    pointers = [k for k, name in enumerate(names) if given.get(name, "").startswith("*")]
    return ASTSource(
        fn=kernel,
        signature={name: given.get(name, "constexpr") for name in names},
        constexprs={(names.index(name),): value for name, value in values.items()},
        attrs={(k,): [["tt.divisibility", ALIGNMENT]] for k in pointers},
    )
