"""What a compilation says: one report for each bundle and target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from shardwright.codegen.planner.xla import Collective

Verdict = Literal["ok", "failed", "skipped"]


@dataclass(frozen=True)
class TpuCode:
    """What the TPU compiler made of a program; bytes are a device's.

    `lower_seconds` is tracing and lowering in JAX, `compile_seconds` the compiler. `vmem_bytes`:
    the most that one Pallas kernel takes, None for a program without. `wire_bytes`: what the
    busiest device receives, padding included; None for a module that does not state it. `warning`:
    what the module says of the devices when it is traced. `moves`: the collectives of XLA's own
    program. `copied_bytes`: what XLA reads and writes beside collectives and kernels.
    """

    lower_seconds: float
    compile_seconds: float
    code_bytes: int
    temporary_bytes: int
    vmem_bytes: int | None = None
    wire_bytes: int | None = None
    warning: str = ""
    moves: tuple[Collective, ...] = field(default=(), hash=False)  # it has lists
    copied_bytes: int | None = None


@dataclass(frozen=True)
class GpuCode:
    """What Triton made of a kernel. Registers and stack are a thread's; None if the binary
    does not tell. Registers that do not suffice are spilled to the stack, so 0 means no spills.

    `loads` and `stores` count the instructions that load from and store to global memory, the
    `wide_` ones those of 16 bytes; `divisions` those of integers, `looped_` ones those in loops.
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
    """What came of one program: its code, or what the compiler said."""

    code: Code | None = None
    error: str = ""


@dataclass(frozen=True)
class CompileReport:
    """The verdict on one module for one target.

    `skipped` means that the bundle has no module for such a target. `detail` says in one line why
    a module failed or was skipped. `xla` is what XLA makes of the same reshard, where it was asked:
    its outcome does not bear on the verdict. `bound_bytes`: what the busiest device of a TPU
    topology has to receive at least. `best`: which of the two is best there, and by how much.
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
