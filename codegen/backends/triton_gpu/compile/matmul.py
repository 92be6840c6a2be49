"""Compile a matmul's kernels for a GPU architecture. Runs in a worker process."""

from __future__ import annotations

import math
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from types import ModuleType
from typing import Any

import torch
import triton
from triton.compiler import ASTSource

from shardwright.codegen.backends.triton_gpu.compile.launch import ALIGNMENT, kernel_facts
from shardwright.codegen.backends.triton_gpu.compile.run import code_of, gpu, kinds
from shardwright.codegen.checks.compiled.job import Job
from shardwright.codegen.checks.compiled.report import GpuCode
from shardwright.codegen.checks.compiled.saving import lines_of, save

_NUMBERS = {
    torch.bfloat16: "bf16",
    torch.float16: "fp16",
    torch.float32: "fp32",
    torch.int8: "i8",
    torch.int32: "i32",
}
_WORDS = {"flags", "told", "come", "state"}
"""The arguments that point to flags, to counters or to the number of the call."""

_TABLES = {"names", "places", "peers", "jobs", "tiles", "segments", "owners"}
"""The arguments that point to tables of integers."""

TMA_SINCE = 90
"""Ten times the first compute capability with TMA (9.0)."""


def compile_matmul(module: ModuleType, job: Job) -> GpuCode:
    """Return the combined figures of all kernels that a device launches in a call: the maxima of
    registers, stack and shared memory, and the sums of all other figures. If `job.files` is set,
    also save binaries and assemblies there."""
    found: GpuCode | None = None
    for name, kernel, seconds in compiled_kernels(module, job.target):
        code = code_of(kernel, seconds)
        if job.files is not None:
            binary, assembly = kinds(kernel)
            used = {"registers": code.registers, "stack_bytes": code.stack_bytes}
            about = kernel_facts(job.target, kernel.metadata, used)
            contents = {
                f"{name}.{binary}": kernel.asm[binary],
                f"{name}.{assembly}": kernel.asm[assembly].encode(),
                f"{name}.json": lines_of(about).encode(),
            }
            save(job.files, contents)
        found = code if found is None else _together(found, code)
    assert found is not None
    return found


def compiled_kernels(module: ModuleType, target: str) -> Iterator[tuple[str, Any, float]]:
    """Yield each kernel that a device launches in a call: its name, the compiled kernel, and the
    compile time in seconds."""
    module._HOST.tma = gpu(target).backend == "cuda" and int(gpu(target).arch) >= TMA_SINCE
    for name, (source, options) in _sources(module).items():
        start = time.perf_counter()
        made = triton.compile(source, target=gpu(target), options=options)
        yield name, made, time.perf_counter() - start


def described(host: Any) -> Any:
    """Return the support object `Member` of the matmul's first device, without allocating memory
    for it."""
    support = sys.modules[type(host).__module__]
    held = torch.empty(host.layout[-1], dtype=torch.uint8, device="meta")
    return support.Member(host, 0, held, [0] * len(host.ids))


def _sources(module: ModuleType) -> dict[str, tuple[ASTSource, dict[str, Any]]]:
    host, member = module._HOST, described(module._HOST)
    launched = {"pull": member.incoming, "multiply": member.tile_count}
    return {
        name: (_source(host, kernel, member), host.options if name == "multiply" else {})
        for name, kernel in host.kernels.items()
        if launched.get(name, True)
    }


def _source(host: Any, kernel: Any, member: Any) -> ASTSource:
    """Return a kernel's source, specialized as at launch: Triton may assume that addresses, and
    sizes of shards for which it is true, are multiples of 16. No other integers are specialized."""
    names = kernel.arg_names
    constants = {name: member.described for name in names if name == "TMA"}
    signature = {name: _type(host, name, constants) for name in names}
    if constants.get("TMA"):
        rows, columns, depth = host.blocks
        for name, block in (("a", [rows, depth]), ("b", [depth, columns])):
            signature[name] = f"tensordesc<{_NUMBERS[host.dtype]}{block}>"
    sizes = [math.prod(host.shape(side, 0)) for side in range(3)]
    known = dict(zip(("lhs_size", "rhs_size", "size"), sizes, strict=True))
    divided = [
        k
        for k, name in enumerate(names)
        if signature[name].startswith("*") or known.get(name, 1) % ALIGNMENT == 0
    ]
    return ASTSource(
        fn=kernel,
        signature=signature,
        constexprs={(names.index(name),): value for name, value in constants.items()},
        attrs={(k,): [["tt.divisibility", ALIGNMENT]] for k in divided},
    )


def _type(host: Any, name: str, constants: dict[str, Any]) -> str:
    if name in constants:
        return "constexpr"
    if name in ("lhs", "rhs", "offered", "into", "a", "b"):
        return f"*{_NUMBERS[host.dtype]}"
    if name in ("c", "out", "sums"):
        return f"*{_NUMBERS[host.out_dtype]}"
    if name in _WORDS:
        return "*i32"
    return "*i64" if name in _TABLES else "i32"


def _together(one: GpuCode, other: GpuCode) -> GpuCode:
    """Combine the figures of two kernels: the maxima of registers, stack and shared memory, and the
    sums of all other figures. A figure that is unknown for either kernel is None."""
    found: dict[str, Any] = {}
    for name, value in vars(one).items():
        given = value, getattr(other, name)
        combine = max if name in ("registers", "stack_bytes", "shared_bytes") else sum
        found[name] = None if None in given else combine(given)
    return replace(one, **found)


_UNITS = {
    "wgmma": r"wgmma\.mma_async",
    "tcgen05": r"tcgen05\.mma",
    "mma.sync": r"\bmma\.sync",
    "v_mfma": r"\bv_mfma",
    "fma": r"\bfma\.rn\.f32|\bv_(?:pk_)?fma",
    "tma": r"cp\.async\.bulk\.tensor",
    "cp.async": r"\bcp\.async\.c[ag]",
    "acquire": r"\bld\S*\.acquire|\bbuffer_inv\b",
    "poll": r"%globaltimer",
    "release": r"\batom\S*\.release|\bbuffer_wbl2\b",
}
"""Patterns of instructions that show how a kernel multiplies, loads and synchronizes, by name."""


def units_of(assembly: str) -> dict[str, int]:
    """Count the instructions that match each pattern in `_UNITS`, by name. Omit zeros."""
    found = {name: len(re.findall(pattern, assembly)) for name, pattern in _UNITS.items()}
    return {name: number for name, number in found.items() if number}
