"""The backends. Each module has `refuse(plan)` and `render(plan, command)`."""

from __future__ import annotations

from types import ModuleType

import shardwright.codegen.backends.jax_xla.context as jax_xla
import shardwright.codegen.backends.pallas_tpu.context as pallas_tpu
import shardwright.codegen.backends.triton_gpu.context as triton_gpu

BACKENDS: dict[str, ModuleType] = {
    "pallas_tpu": pallas_tpu,
    "triton_gpu": triton_gpu,
    "jax_xla": jax_xla,
}
