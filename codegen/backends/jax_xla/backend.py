"""The backend that emits plain JAX."""

from __future__ import annotations

from shardwright.codegen.backends.base import Backend, Grouping
from shardwright.codegen.backends.jax_xla import context
from shardwright.codegen.backends.jax_xla.contract import CONTRACT
from shardwright.codegen.backends.jax_xla.matmul import (
    matmul_usage,
    refuse_matmul,
    render_matmul,
)
from shardwright.codegen.backends.jax_xla.runtime import RUNTIME
from shardwright.codegen.backends.jax_xla.timeline import relaid, timeline


class JaxXla(Backend):
    """Plain JAX, with `shard_map` and `lax` collectives, on CPU, GPU and TPU."""

    name = context.NAME
    executes = ("direct", "basis")
    reduces = ("basis",)
    portable = True
    runtime = RUNTIME
    contract = CONTRACT
    grouping = Grouping(
        host="jax_group",
        exports=("pad", "reshard", "source_sharding", "target_sharding", "unpad"),
        environment=(
            ("JAX_PLATFORMS", "cpu"),
            ("XLA_FLAGS", "--xla_force_host_platform_device_count={devices}"),
        ),
        how="one exchange for all whose elements are as wide",
        support=("groups", "jax_group"),
    )
    support = (
        "beside",
        "boxes",
        "cuts",
        "exchanges",
        "gaps",
        "jax_axes",
        "jax_bits",
        "jax_callers",
        "jax_confused",
        "jax_extents",
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
        "ranks",
        "sampled",
        "sides",
        "spread",
        "xla_bits",
        "xla_boxes",
        "xla_groups",
        "xla_program",
        "xla_ragged",
        "xla_rounds",
        "xla_steps",
    )
    matmul_support = ("jax_drawn", "jax_matmul", "jax_matmul_gradient")
    model_host = "jax_model"
    model_support = ("jax_boxes", "jax_digest", "jax_model", "jax_units", "models", "progress_line")
    gradient_on_request = True

    refuse = staticmethod(context.refuse)
    render = staticmethod(context.render)
    timeline = staticmethod(timeline)
    relaid = staticmethod(relaid)
    refuse_matmul = staticmethod(refuse_matmul)
    matmul_usage = staticmethod(matmul_usage)
    render_matmul = staticmethod(render_matmul)


BACKEND: Backend = JaxXla()
