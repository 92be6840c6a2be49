"""The Triton backend."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from shardwright.codegen.backends.base import Backend, Request
from shardwright.codegen.backends.toolchain import Compiler
from shardwright.codegen.backends.triton_gpu import context
from shardwright.codegen.backends.triton_gpu.contract import CONTRACT
from shardwright.codegen.backends.triton_gpu.group import group_files
from shardwright.codegen.backends.triton_gpu.runtime import RUNTIME
from shardwright.codegen.spec.group import Group
from shardwright.ir.plan import Plan

ARCHITECTURES = ("sm_80", "sm_90", "sm_100", "gfx942", "gfx950")
"""NVIDIA's `sm_` names and AMD's `gfx` names."""


def _environment(caches: Path) -> Mapping[str, str | None]:
    """Return the compiler does not use what it compiled before, so that seconds are those of
    compiling."""
    return {
        "TRITON_INTERPRET": None,
        "TRITON_ALWAYS_COMPILE": "1",
        "TRITON_CACHE_DIR": str(caches / "triton"),
    }


class TritonGpu(Backend):
    """Kernels that copy tiles, a program a block, and the code around them."""

    name = context.NAME
    runtime = RUNTIME
    contract = CONTRACT
    compiler = Compiler(
        kind="GPU architecture",
        example="sm_90",
        targets=ARCHITECTURES,
        looks_so=lambda name: name.startswith(("sm", "gfx")),
        packages=("triton", "torch"),
        saving=(),
        extra="gpu",
        environment=_environment,
        is_xla=False,
    )
    has_groups = True

    def refuse(self, plan: Plan) -> None:
        context.refuse(plan)

    def render(self, request: Request) -> str:
        return context.render(request)

    def group_files(self, group: Group, plans: Mapping[str, Plan]) -> dict[str, str]:
        return group_files(group, plans)


BACKEND: Backend = TritonGpu()
