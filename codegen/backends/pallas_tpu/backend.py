"""The Pallas TPU backend."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from shardwright.codegen.backends.base import Backend, Request, Table
from shardwright.codegen.backends.pallas_tpu import context, review
from shardwright.codegen.backends.pallas_tpu.contract import CONTRACT
from shardwright.codegen.backends.pallas_tpu.runtime import RUNTIME
from shardwright.codegen.backends.toolchain import Compiler
from shardwright.codegen.hardware.chips import TOPOLOGIES
from shardwright.ir.plan import Plan


def _environment(_caches: Path) -> Mapping[str, str | None]:
    """Return the compiler works for any topology, whatever the machine at hand is said to be,
    and does not use what it compiled before, so that seconds are those of compiling."""
    return {
        "JAX_PLATFORMS": "cpu",
        "JAX_ENABLE_COMPILATION_CACHE": "0",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
        "TPU_ACCELERATOR_TYPE": "v5litepod-8",
        "TPU_WORKER_HOSTNAMES": "localhost",
        "TPU_SKIP_MDS_QUERY": "1",
        "TPU_LOG_DIR": "disabled",
    }


class PallasTpu(Backend):
    """One SPMD kernel in which every device pushes its tiles to receivers."""

    name = context.NAME
    unsupported = context.UNSUPPORTED
    runtime = RUNTIME
    contract = CONTRACT
    compiler = Compiler(
        kind="TPU topology",
        example="v5e:2x4",
        targets=tuple(TOPOLOGIES),
        looks_so=lambda name: ":" in name,
        packages=("jax", "libtpu"),
        saving=("flatbuffers",),
        extra="tpu",
        environment=_environment,
        is_xla=True,
    )

    def refuse(self, plan: Plan) -> None:
        context.refuse(plan)

    def render(self, request: Request) -> str:
        return context.render(request)

    def review(self, plan: Plan) -> Table:
        return review.review(plan)


BACKEND: Backend = PallasTpu()
