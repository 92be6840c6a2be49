"""The XLA backend."""

from __future__ import annotations

from shardwright.codegen.backends.base import Backend
from shardwright.codegen.backends.jax_xla import context
from shardwright.codegen.backends.jax_xla.contract import CONTRACT
from shardwright.codegen.backends.jax_xla.runtime import RUNTIME
from shardwright.codegen.backends.jax_xla.timeline import timeline


class JaxXla(Backend):
    """Plain JAX, `shard_map` and `lax` collectives, on CPU, GPU and TPU."""

    name = context.NAME
    executes = ("direct", "basis")
    reduces = True
    portable = True
    runtime = RUNTIME
    contract = CONTRACT
    support = (
        "boxes",
        "jax_host",
        "jax_meshes",
        "jax_operation",
        "jax_program",
        "xla_program",
        "xla_steps",
    )
    gradient_on_request = True

    refuse = staticmethod(context.refuse)
    render = staticmethod(context.render)
    timeline = staticmethod(timeline)


BACKEND: Backend = JaxXla()
