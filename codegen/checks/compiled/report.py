"""The report of a compilation: one per bundle and target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from shardwright.codegen.moves.xla import Collective

Verdict = Literal["ok", "failed", "skipped"]


@dataclass(frozen=True)
class TpuCode:
    """The TPU compiler's figures for a program; bytes are per device.

    `lower_seconds`: the time of tracing and lowering in JAX; `compile_seconds`: the time of the
    compiler. `vmem_bytes`: the maximum VMEM of any Pallas kernel, None without kernels.
    `wire_bytes`: the bytes that the busiest device receives, padding included; None if the module
    does not state them. `warning`: the warning about devices that the module prints while traced.
    `moves`: the collectives of XLA's own program. `copied_bytes`: the bytes that XLA reads and
    writes outside collectives and kernels.
    """

    lower_seconds: float
    compile_seconds: float
    code_bytes: int
    temporary_bytes: int
    vmem_bytes: int | None = None
    wire_bytes: int | None = None
    warning: str = ""
    # Not hashed, because a Collective has lists.
    moves: tuple[Collective, ...] = field(default=(), hash=False)
    copied_bytes: int | None = None


@dataclass(frozen=True)
class GpuCode:
    """Triton's figures for a kernel. Registers and stack are per thread; None if the binary does
    not state them. Registers spill to the stack, so 0 means no spills.

    `loads` and `stores`: the instructions on global memory; `wide_loads` and `wide_stores`: the
    16-byte ones among them. `divisions`: the integer divisions; `looped_divisions`: those inside
    loops.
    """

    seconds: float
    registers: int | None
    stack_bytes: int | None
    shared_bytes: int
    binary_bytes: int
    wide_loads: int
    loads: int
    wide_stores: int
    stores: int
    divisions: int
    looped_divisions: int


Code = TpuCode | GpuCode


@dataclass(frozen=True)
class Outcome:
    """The outcome of one program: its figures, or the compiler's error."""

    code: Code | None = None
    error: str = ""


@dataclass(frozen=True)
class CompileReport:
    """The verdict on one module for one target.

    `skipped` means that the bundle has no module for this kind of target. `detail`: the reason for
    a failure or skip, in one line. `xla`: the outcome of XLA's own reshard, if requested; it does
    not affect the verdict. `bound_bytes`: a lower bound for the bytes that the busiest device of a
    TPU topology receives. `best`: the faster of the two programs on that topology, and by how much.
    """

    name: str
    target: str
    backend: str
    verdict: Verdict
    detail: str = ""
    code: Code | None = None
    xla: Outcome | None = None
    bound_bytes: int | None = None
    best: str = ""


Progress = Callable[[int, int, CompileReport | None], None]
"""Called as progress(done, total, report): first with (0, total, None), then after each report."""
