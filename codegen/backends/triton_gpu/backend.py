"""The Triton backend."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from shardwright.codegen.backends.base import Backend, Grouping
from shardwright.codegen.backends.triton_gpu import context
from shardwright.codegen.backends.triton_gpu.contract import CONTRACT
from shardwright.codegen.backends.triton_gpu.matmul.context import (
    matmul_usage,
    refuse_matmul,
    render_matmul,
)
from shardwright.codegen.backends.triton_gpu.runtime import RUNTIME
from shardwright.codegen.backends.triton_gpu.timeline import timeline
from shardwright.codegen.registry.toolchain import Compiler

ARCHITECTURES = ("sm_80", "sm_90", "sm_100", "gfx942", "gfx950")
"""The architectures for which modules can be compiled, by their NVIDIA and AMD names."""


CHIPS = {
    "a100": "sm_80",
    "h100": "sm_90",
    "h200": "sm_90",
    "b200": "sm_100",
    "mi300x": "gfx942",
    "mi355x": "gfx950",
}
"""The architecture of each GPU, by the GPU's name in topologies."""


def _environment(caches: Path) -> Mapping[str, str | None]:
    """Return the environment variables of the compiler's process. With them, Triton neither
    interprets kernels nor finds them in its cache, so the measured time is compile time."""
    return {
        "TRITON_INTERPRET": None,
        "TRITON_ALWAYS_COMPILE": "1",
        "TRITON_CACHE_DIR": str(caches / "triton"),
    }


class TritonGpu(Backend):
    """Kernels that copy tiles, one program per block, and their host code."""

    name = context.NAME
    reduces = ("direct",)
    in_two = "always"
    loops = ("pulled",)
    on_torus = False
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
        chips=CHIPS,
    )
    grouping = Grouping(
        host="torch_group",
        exports=("reshard", "reshard_local"),
        environment=(("TRITON_INTERPRET", "1"),),
        how="one launch a device, or one exchange among processes",
        support=("groups", "torch_group"),
        template="triton_gpu/group.py.jinja",
        kernel="pull_kernel",
    )
    support = (
        "boxes",
        "cuts",
        "doors",
        "exchanges",
        "gaps",
        "not_run",
        "sampled",
        "sides",
        "spread",
        "torch_async",
        "torch_both",
        "torch_check",
        "torch_dtensor",
        "torch_empty",
        "torch_few",
        "torch_gpu",
        "torch_gradient",
        "torch_graphs",
        "torch_handed",
        "torch_launch",
        "torch_local",
        "torch_memory",
        "torch_moved",
        "torch_out",
        "torch_peers",
        "torch_phased",
        "torch_processes",
        "torch_reduce",
        "torch_remembered",
        "torch_several",
        "torch_symmetric",
        "torch_tensors",
        "torch_told",
        "torch_wire",
        "triton_lines",
        "triton_listed",
        "triton_rows",
    )
    matmul_support = (
        "matmul_parts",
        "torch_cotangents",
        "torch_matmul",
        "torch_member",
        "torch_ranks",
        "torch_shared",
    )
    model_host = "torch_model"
    model_support = (
        "model_boxes",
        "models",
        "progress_line",
        "torch_agreed",
        "torch_call",
        "torch_digest",
        "torch_model",
        "torch_state",
        "triton_boxes",
    )
    gradient_on_request = True

    refuse = staticmethod(context.refuse)
    lacks = staticmethod(context.lacks)
    render = staticmethod(context.render)
    timeline = staticmethod(timeline)
    refuse_matmul = staticmethod(refuse_matmul)
    matmul_usage = staticmethod(matmul_usage)
    render_matmul = staticmethod(render_matmul)


BACKEND: Backend = TritonGpu()
