"""The XLA backend."""

from __future__ import annotations

from shardwright.codegen.backends.base import Backend, Request
from shardwright.codegen.backends.jax_xla import context
from shardwright.codegen.backends.jax_xla.contract import CONTRACT
from shardwright.codegen.backends.jax_xla.runtime import RUNTIME
from shardwright.ir.plan import Plan


class JaxXla(Backend):
    """Plain JAX, `shard_map` and `lax` collectives, on CPU, GPU and TPU."""

    name = context.NAME
    executes = ("direct", "basis")
    reduces = True
    portable = True
    runtime = RUNTIME
    contract = CONTRACT

    def refuse(self, plan: Plan) -> None:
        context.refuse(plan)

    def render(self, request: Request) -> str:
        return context.render(request)


BACKEND: Backend = JaxXla()
