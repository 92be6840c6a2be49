"""The backends. Each module has `refuse(plan)` and `render(plan, command)`."""

from __future__ import annotations

from types import ModuleType

from shardwright.codegen.backends import pallas_tpu, triton_gpu

BACKENDS: dict[str, ModuleType] = {"pallas_tpu": pallas_tpu, "triton_gpu": triton_gpu}
