"""The Pallas TPU backend."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from shardwright.codegen.backends.base import Backend, Grouping
from shardwright.codegen.backends.pallas_tpu import context
from shardwright.codegen.backends.pallas_tpu.all_forms import FACTS
from shardwright.codegen.backends.pallas_tpu.contract import CONTRACT
from shardwright.codegen.backends.pallas_tpu.matmul.context import (
    matmul_usage,
    refuse_matmul,
    render_matmul,
    ring_of,
)
from shardwright.codegen.backends.pallas_tpu.review import review
from shardwright.codegen.backends.pallas_tpu.runtime import RUNTIME
from shardwright.codegen.backends.pallas_tpu.timeline import rings, timeline
from shardwright.codegen.hardware.chips import TOPOLOGIES
from shardwright.codegen.registry.toolchain import Compiler


def _environment(_caches: Path) -> Mapping[str, str | None]:
    """Return the environment variables of the compiler's process. They let it target any topology
    on any machine and turn off JAX's compilation cache, so the measured time is compile time.
    Modules with sends that a v5e cannot make directly still compile, with a warning."""
    return {
        "JAX_PLATFORMS": "cpu",
        "JAX_ENABLE_COMPILATION_CACHE": "0",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
        "TPU_ACCELERATOR_TYPE": "v5litepod-8",
        "TPU_WORKER_HOSTNAMES": "localhost",
        "TPU_SKIP_MDS_QUERY": "1",
        "TPU_LOG_DIR": "disabled",
        "SHARDWRIGHT_FAR_SENDS": "1",
    }


class PallasTpu(Backend):
    """One SPMD kernel in which every device pushes its tiles to the receivers."""

    name = context.NAME
    reduces = ("direct",)
    in_two = "in one order"  # both kernels are in one program, which has a single device order
    on_torus = True
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

    grouping = Grouping(
        host="pallas_group",
        exports=("pad", "reshard", "source_sharding", "target_sharding", "unpad"),
        environment=(
            ("JAX_PLATFORMS", "cpu"),
            ("XLA_FLAGS", "--xla_force_host_platform_device_count={more}"),
        ),
        how="one kernel launch for all whose elements are as wide",
        support=("groups", "jax_group", "pallas_group", "xla_rounds"),
        template="pallas_tpu/group.py.jinja",
        kernel="push_kernel",
    )
    support = (
        "beside",
        "boxes",
        "cuts",
        "doors",
        "exchanges",
        "gaps",
        "jax_axes",
        "jax_bits",
        "jax_callers",
        "jax_confused",
        "jax_host",
        "jax_meshes",
        "jax_numbered",
        "jax_operation",
        "jax_orders",
        "jax_padding",
        "jax_refused",
        "jax_reverse",
        "jax_slotted",
        "jax_term_numbers",
        "jax_terms",
        "jax_traced",
        "jax_zeros",
        "not_run",
        "pallas_call",
        "pallas_cuts",
        "pallas_dense",
        "pallas_elements",
        "pallas_exchange",
        "pallas_filled",
        "pallas_flat",
        "pallas_hops",
        "pallas_in_two",
        "pallas_integers",
        "pallas_ordered",
        "pallas_own",
        "pallas_peers",
        "pallas_permuted",
        "pallas_pieces",
        "pallas_program",
        "pallas_ranks",
        "pallas_reach",
        "pallas_routes",
        "pallas_started",
        "pallas_steps",
        "pallas_tables",
        "pallas_terms",
        "pallas_threads",
        "pallas_watched",
        "ranks",
        "sampled",
        "spread",
        *(name for facts in FACTS.values() for name in facts.support),
    )
    matmul_support = (
        "jax_drawn",
        "jax_extents",
        "jax_matmul",
        "jax_matmul_gradient",
        "pallas_blocked",
        "pallas_mask",
        "pallas_matmul",
        "pallas_order",
        "pallas_products",
        "pallas_spaced",
        "sides",
        "xla_boxes",
        "xla_rounds",
        "xla_steps",
    )
    gradient_on_request = True

    refuse = staticmethod(context.refuse)
    lacks = staticmethod(context.lacks)
    render = staticmethod(context.render)
    timeline = staticmethod(timeline)
    review = staticmethod(review)
    rings = staticmethod(rings)
    refuse_matmul = staticmethod(refuse_matmul)
    matmul_usage = staticmethod(matmul_usage)
    render_matmul = staticmethod(render_matmul)
    ring_of = staticmethod(ring_of)


BACKEND: Backend = PallasTpu()
