"""The names that emitted modules must define."""

from __future__ import annotations

from shardwright.codegen.registry.contracts import (
    JAX,
    JAX_EXPORTS,
    JAX_GROUP_EXPORTS,
    JAX_MATMUL_EXPORTS,
    JAX_MATMULS,
    JAX_PROGRAMS,
    JAX_RELAYOUT_EXPORTS,
    Contract,
)

CONTRACT = Contract(
    verified=(*JAX, "SOURCE_IDS", "TARGET_IDS"),
    compiled=(*JAX, *JAX_PROGRAMS),
    exported={**JAX_EXPORTS, "reshard_done": "start and end", "reshard_start": "start and end"},
    exported_by_groups=JAX_GROUP_EXPORTS,
    exported_by_matmuls=JAX_MATMUL_EXPORTS,
    exported_by_relayouts=JAX_RELAYOUT_EXPORTS,
    grouped=("NAMES", "_HOST", *JAX),
    matmul=JAX_MATMULS,
    collective=True,
)
